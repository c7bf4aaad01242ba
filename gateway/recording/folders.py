"""Where exchanges lie: `AGENT/c01/0001.yaml`, and `AGENT/outside/0001.yaml` for those of no conversation. Law: numbers,
because the ids of a conversation are others whenever it is recorded again.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import msgspec

from gateway.ports.wire import Occasion

OUTSIDE = "outside"
UNMATCHED = "unmatched"
"""The folder for requests that a replay had no answer to."""

_KEY = "digests.key"
_MODE = 0o700
_CONTEXT = re.compile(r"c(\d+)")
_FILE = re.compile(r"(\d+)\.yaml")
_FIRST = "0001.yaml"
_IDS = "ids: "


class Folders:
    """The numbers that a recorder gives out. Used in one thread."""

    def __init__(self, root: Path) -> None:
        """Raises: OSError."""
        root.mkdir(mode=_MODE, parents=True, exist_ok=True)
        self._root = root
        self._contexts = {(agent, context): folder for agent, context, folder in contexts(root)}
        self._files: dict[Path, int] = {}
        self.size = sum(file.stat().st_size for file in root.rglob("*.yaml"))
        """Bytes that are there already."""

    def next(self, ids: Occasion) -> Path:
        """The file of the next exchange. Raises: OSError."""
        folder = self._folder(ids)
        latest = self._files.get(folder)
        if latest is None:
            latest = max((number for number, _ in files(folder)), default=0)
        self._files[folder] = latest + 1
        return folder / f"{latest + 1:04}.yaml"

    def _folder(self, ids: Occasion) -> Path:
        agent = self._root / (ids.agent or OUTSIDE)
        if not ids.context:
            folder = agent / OUTSIDE
            folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
            return folder
        known = self._contexts.get((ids.agent, ids.context))
        if known is not None:
            return known
        agent.mkdir(mode=_MODE, exist_ok=True)
        number = max((number for number, _ in _numbered(agent)), default=0) + 1
        folder = self._contexts[ids.agent, ids.context] = agent / f"c{number:02}"
        folder.mkdir(mode=_MODE)
        return folder


def key_of(root: Path) -> bytes:
    """The key of the recording's digests; empty where it has none. Raises: OSError."""
    file = root / _KEY
    return file.read_bytes() if file.exists() else b""


def key_made(root: Path) -> bytes:
    """The key, made where there is none yet. Raises: OSError."""
    known = key_of(root)
    if known:
        return known
    key = token_hex(16).encode()
    descriptor = os.open(root / _KEY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
    return key


def contexts(root: Path) -> Iterator[tuple[str, str, Path]]:
    """The conversations that are recorded: agent, context, and the folder. Raises: OSError."""
    for folder in conversations(root):
        first = first_ids(folder)
        if first is not None:
            yield first.agent, first.context, folder


def conversations(root: Path) -> Iterator[Path]:
    """The folders of all conversations. Raises: OSError."""
    for agent in sorted(root.iterdir()):
        if agent.is_dir():
            yield from (folder for _, folder in _numbered(agent))


def first_ids(folder: Path) -> Occasion | None:
    """What the first exchange of a conversation belongs to; None where there is none yet. Raises: OSError."""
    first = folder / _FIRST
    if first.exists():
        return ids_of(first)
    return next((ids for _, file in files(folder) if (ids := ids_of(file)) is not None), None)


def files(folder: Path) -> list[tuple[int, Path]]:
    """The exchanges of a folder with their numbers, in their order. Raises: OSError."""
    found = ((_FILE.fullmatch(file.name), file) for file in folder.iterdir())
    return sorted((int(match[1]), file) for match, file in found if match is not None)


def ids_of(file: Path) -> Occasion | None:
    """What an exchange belongs to, by the first line of its file; None for a file without one. Raises: OSError."""
    with file.open(encoding="utf-8", errors="replace") as opened:
        line = opened.readline()
    try:
        return msgspec.json.decode(line.removeprefix(_IDS), type=Occasion) if line.startswith(_IDS) else None
    except msgspec.MsgspecError:
        return None


def _numbered(agent: Path) -> list[tuple[int, Path]]:
    with os.scandir(agent) as entries:
        found = [(_CONTEXT.fullmatch(entry.name), entry.name) for entry in entries if entry.is_dir()]
    return sorted((int(match[1]), agent / name) for match, name in found if match is not None)
