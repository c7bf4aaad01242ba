"""What keeps a process from a database file: folders, missing folders, and permissions of another user."""

import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.schema.access import obstacle

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user reaches, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def as_nobody(path: Path, *, write: bool = True) -> str | None:
    """The obstacle that a user without rights meets."""
    if os.geteuid() != 0:
        return obstacle(path, write=write)
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        os.write(write_end, (obstacle(path, write=write) or "").encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    with os.fdopen(read_end) as told:
        return told.read() or None


def test_nothing_stands_in_the_way_of_a_database_that_can_be_made(folder: Path) -> None:
    assert obstacle(folder / "data" / "deep" / "gateway.db") is None
    (folder / "gateway.db").touch()
    assert obstacle(folder / "gateway.db") is None


def test_a_folder_or_a_file_in_the_wrong_place_is_named(folder: Path) -> None:
    (folder / "file").touch()
    assert obstacle(folder) == "it is a folder"
    assert obstacle(folder / "file" / "gateway.db") == f"'{folder}/file' is no folder"


@pytest.mark.parametrize("name", ["gateway.db", "gateway.db-wal", "gateway.db-shm"])
def test_a_file_of_another_user_is_named_with_its_owner(folder: Path, name: str) -> None:
    folder.chmod(0o777)
    for each in ("gateway.db", name):
        (folder / each).touch()
        (folder / each).chmod(0o666)
    (folder / name).chmod(0o000)
    why = as_nobody(folder / "gateway.db")
    assert why is not None
    owner = os.geteuid()
    assert why.startswith(
        f"permission denied: '{folder}/{name}' belongs to the user {owner} (mode 0), and this process runs as"
    )


def test_a_folder_that_cannot_be_written_is_named(folder: Path) -> None:
    (folder / "gateway.db").touch()
    (folder / "gateway.db").chmod(0o666)
    folder.chmod(0o555)
    for name in ("gateway.db", "new.db", "data/new.db"):
        why = as_nobody(folder / name)
        assert why is not None
        assert why.startswith(f"permission denied: '{folder}' belongs to the user ")
    assert as_nobody(folder / "gateway.db", write=False) is None
    folder.chmod(0o755)
