"""What keeps a process from a database file: folders, missing folders, and permissions of another user."""

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from storage.schema.access import obstacle
from tests.support.nobody import as_nobody, open_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


def met_by_nobody(path: Path, *, write: bool = True) -> str | None:
    """The obstacle that a user without rights meets."""
    return as_nobody(partial(obstacle, path, write=write))


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
    why = met_by_nobody(folder / "gateway.db")
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
        why = met_by_nobody(folder / name)
        assert why is not None
        assert why.startswith(f"permission denied: '{folder}' belongs to the user ")
    assert met_by_nobody(folder / "gateway.db", write=False) is None
    folder.chmod(0o755)
