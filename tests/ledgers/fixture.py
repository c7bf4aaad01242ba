"""The ledger of a version as text: the SQL of the database, and what clients had seen of it."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Json = dict[str, Any]

FOLDER = Path(__file__).parents[1] / "fixtures" / "ledgers"


@dataclass(slots=True)
class Talk:
    """One context. `said` and `outputs` are what a service must find in its next request: the messages, and what tools have
    brought; `brings`: what those will have brought that wait now, when the caller allows it."""

    agent: str
    said: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    brings: list[str] = field(default_factory=list)
    deleted: bool = False
    listed: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Seen:
    """One task. `task` is the last answer to GetTask, `events` what a stream has shown, with its numbers; `becomes` is the
    state that it must reach when another process starts, None: the one that it has."""

    agent: str
    context: str
    said: Json
    task: Json
    events: list[list[Any]] = field(default_factory=list)
    becomes: str | None = None


@dataclass(slots=True)
class Recorded:
    """`at` is the moment, in milliseconds since 1970; `agents` has places for the addresses of the services, and `receiver`
    was the address of the receiver. `keys` has API keys by what has become of them."""

    version: str
    schema: str
    at: int
    agents: str
    settings: str
    files: dict[str, str]
    keys: dict[str, str]
    receiver: str
    backend: Json
    talks: dict[str, Talk]
    tasks: dict[str, Seen]


def versions() -> list[str]:
    return sorted(file.stem for file in FOLDER.glob("*.json"))


def sql_file(version: str) -> Path:
    return FOLDER / f"{version}.sql"


def load(version: str) -> Recorded:
    found = json.loads((FOLDER / f"{version}.json").read_text())
    found["talks"] = {name: Talk(**talk) for name, talk in found["talks"].items()}
    found["tasks"] = {name: Seen(**seen) for name, seen in found["tasks"].items()}
    return Recorded(**found)


def store(recorded: Recorded, database: Path) -> None:
    """Random ids are replaced by numbers, the same in both files."""
    document = "".join(_lines(asdict(recorded)))
    with closing(sqlite3.connect(database)) as connection:
        (oldest,) = connection.execute("PRAGMA user_version").fetchone()
        lines = [f"PRAGMA user_version = {oldest};", *connection.iterdump()]
    numbered = _Numbered()
    FOLDER.mkdir(parents=True, exist_ok=True)
    sql_file(recorded.version).write_text(numbered.of("\n".join(lines) + "\n"))
    (FOLDER / f"{recorded.version}.json").write_text(numbered.of(document))


def _lines(document: Json) -> Iterator[str]:
    """JSON with a line for each task, context and response, to be read and compared."""
    yield "{"
    for number, (name, value) in enumerate(document.items()):
        yield f"{',' * (number > 0)}\n{json.dumps(name)}: "
        if name in ("talks", "tasks", "files", "keys"):
            entries = [f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in value.items()]
            yield "{\n " + ",\n ".join(entries) + "\n}"
        else:
            yield json.dumps(value).replace('}, {"body"', '},\n {"body"')
    yield "\n}\n"


class _Numbered:
    """Random ids of the emulators, each replaced by a number of the same length."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def of(self, text: str) -> str:
        return re.sub(r"(?<![0-9a-zA-Z])([a-z]+_)([0-9a-f]{20,})(?![0-9a-zA-Z])", self._replaced, text)

    def _replaced(self, found: re.Match[str]) -> str:
        name = found[0]
        return self._known.setdefault(name, found[1] + f"{len(self._known) + 1:0{len(found[2])}x}")


def lay(version: str, database: Path) -> None:
    """The database of the version."""
    with closing(sqlite3.connect(database)) as connection:
        connection.executescript(sql_file(version).read_text())
