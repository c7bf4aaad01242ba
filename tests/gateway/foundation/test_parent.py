"""Processes that end with the one that has started them."""

import asyncio
import signal
import subprocess
import sys

import pytest

from tests.support.polling import until
from tests.support.processes import alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")

_CHILD = "import os, signal; from gateway.foundation.parent import end_with_parent; end_with_parent({parent}); "
_STUCK = "print(os.getpid(), flush=True); signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); signal.sigwait([12])"
_PARENT = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {child!r}.format(parent=os.getpid())])
child.wait()
"""


async def test_a_process_that_hears_nothing_ends_when_its_parent_is_killed() -> None:
    program = _PARENT.format(child=_CHILD + _STUCK)
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    parent.kill()
    await parent.wait()
    await until(lambda: not alive(child))


def test_a_process_whose_parent_has_ended_before_ends_at_once() -> None:
    done = subprocess.run([sys.executable, "-c", _CHILD.format(parent=1)], check=False)
    assert done.returncode == -signal.SIGKILL
