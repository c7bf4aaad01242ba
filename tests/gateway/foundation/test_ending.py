"""The end of a process with a bound."""

import subprocess
import sys

_SCRIPT = """
import os, threading, time
from contextlib import suppress
from gateway.foundation.ending import bound_end, end_process

os.set_blocking(2, False)
with suppress(BlockingIOError):
    while True:
        os.write(2, b"x" * 65536)
os.set_blocking(2, True)
threading.Thread(target=time.sleep, args=(3600,)).start()
bound_end()
end_process(7)
"""


def test_it_ends_although_nobody_reads_its_standard_error() -> None:
    with subprocess.Popen([sys.executable, "-c", _SCRIPT], stderr=subprocess.PIPE) as process:
        try:
            assert process.wait(30) == 7
        finally:
            process.kill()
