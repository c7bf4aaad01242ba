"""A ledger that is gone when its process ends."""

import asyncio
import os
import signal
import sys
import tempfile
from pathlib import Path

import pytest

from gateway.ledger.errors import LedgerUnavailable
from gateway.testing.ledger_points import ACCEPT, ADA
from storage.temporary import TemporarySettings, open_temporary

SETTINGS = TemporarySettings(url="temporary")

_KILLED = """
import asyncio, os, signal
from storage.temporary import TemporarySettings, open_temporary
async def main():
    async with open_temporary(TemporarySettings(url="temporary"), False) as ledger:
        await ledger.ready()
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files, of the test's own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def found(place: Path) -> set[str]:
    return {folder.name for folder in place.iterdir()}


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


async def test_without_a_place_for_temporary_files_it_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(LedgerUnavailable, match="no folder for a temporary database can be made in"):
        async with open_temporary(SETTINGS, True):
            pass


async def test_only_the_owner_can_read_it(place: Path) -> None:
    async with open_temporary(SETTINGS, True):
        [name] = found(place)
        assert mode(place / name) == 0o700


async def test_what_a_killed_process_has_left_is_removed_by_the_next_one(place: Path) -> None:
    environment = os.environ | {"TMPDIR": str(place)}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _KILLED, env=environment)
    assert await process.wait() == -signal.SIGKILL
    [left] = found(place)
    assert "gateway.db" in found(place / left)
    async with open_temporary(SETTINGS, True):
        assert left not in found(place)


async def test_that_of_a_living_process_and_folders_of_others_stay(place: Path) -> None:
    (place / "mine").mkdir()
    (place / f"a2a-gateway-temporary-{os.geteuid()}-made").mkdir()
    async with open_temporary(SETTINGS, True) as one:
        async with open_temporary(SETTINGS, True) as other:
            await one.commit(ACCEPT)
            assert await one.task(ADA, "echo", "task-1") is not None
            assert await other.task(ADA, "echo", "task-1") is None
        await one.ready()
    assert found(place) == {"mine", f"a2a-gateway-temporary-{os.geteuid()}-made"}


async def test_nothing_is_there_when_it_is_opened_again(place: Path) -> None:
    async with open_temporary(SETTINGS, True) as ledger:
        await ledger.commit(ACCEPT)
    assert found(place) == set()
    async with open_temporary(SETTINGS, True) as ledger:
        assert await ledger.task(ADA, "echo", "task-1") is None
