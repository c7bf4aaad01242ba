"""A thread of the ledger that fails ends the process, and no acknowledgement is lost with it."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gateway.ledger.errors import LedgerUnavailable
from storage.ledger import open_ledger
from storage.worker import call_in_loop
from tests.storage.write.test_writer import stored

_FAILING = """
import asyncio, sys
from pathlib import Path
from storage.read.batched import BatchedReader
from storage.ledger import open_ledger
from storage.read.pool import Readers
from storage.write.writer import Writer
from tests.storage.write.test_writer import Told, events, writing

def no_memory(*_):
    raise MemoryError

async def main(path, cls, method):
    async with writing(path) as writer:
        assert await Told(writer).of(events(2, 2)) == [("0", None)]
        readers = Readers()
        await readers.open(str(path), 50)
        setattr(cls, method, no_memory)
        print("acknowledged", flush=True)
        await asyncio.gather(Told(writer).of(events(3, 3)), readers.fetch("SELECT 1", {}))

asyncio.run(main(Path(sys.argv[1]), *{"writer": (Writer, "_waiting"), "reader": (BatchedReader, "_answers")}[sys.argv[2]]))
"""


@pytest.mark.parametrize("thread", ["writer", "reader"])
async def test_a_thread_that_fails_ends_the_process_and_leaves_what_was_acknowledged(
    tmp_path: Path, thread: str
) -> None:
    path = tmp_path / "ledger.db"
    command = [sys.executable, "-c", _FAILING, str(path), thread]
    ran = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stdout) == (70, "acknowledged\n")
    assert "ledger.failed" in ran.stderr
    assert f"ledger-{thread}" in ran.stderr
    assert "MemoryError" in ran.stderr
    assert stored(path)[:2] == [1, 2]


@pytest.mark.parametrize(
    ("failure", "told"),
    [(partial(RuntimeError, "can't start new thread"), "can't start new thread"), (MemoryError, "no memory")],
)
@pytest.mark.parametrize("refused", ["ledger-writer", "ledger-reader", "Thread-"])
async def test_a_ledger_that_gets_no_thread_is_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str, failure: Callable[[], Exception], told: str
) -> None:
    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith(refused):
            raise failure()
        start(thread)

    start = threading.Thread.start
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(LedgerUnavailable, match=told):
            async with asyncio.timeout(60), open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", True):
                pass


def test_nothing_is_called_in_a_closed_loop() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    call_in_loop(loop, pytest.fail)
