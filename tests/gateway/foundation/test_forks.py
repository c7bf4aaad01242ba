"""A copy of the process has nothing to do with what the gateway hears."""

import subprocess
import sys

_EARLY = """
import os, signal, socket

# In the copy the hooks run in the order in which they were registered: this one is before the gateway's.
os.register_at_fork(after_in_child=lambda: os.kill(os.getpid(), signal.SIGTERM))

from gateway.foundation.forks import keep_from_copies

class Owner:
    def descriptors(self):
        return ()

owner = Owner()
keep_from_copies(owner)
heard, told = socket.socketpair()
heard.setblocking(False)
told.setblocking(False)
signal.set_wakeup_fd(told.fileno())
signal.signal(signal.SIGTERM, lambda *_: print("the handler was called", flush=True))
copy = os.fork()
if copy == 0:
    os._exit(0)
_, status = os.waitpid(copy, 0)
try:
    print("heard", heard.recv(10))
except BlockingIOError:
    print("heard nothing")
print("the copy ended with", os.waitstatus_to_exitcode(status))
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_signal_that_a_copy_gets_at_its_beginning_ends_the_copy_and_is_not_heard_by_the_gateway() -> None:
    ended = subprocess.run([sys.executable, "-c", _EARLY], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout.splitlines() == ["heard nothing", "the copy ended with -15", "the handler was called"]
