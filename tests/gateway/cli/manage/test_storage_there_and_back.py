"""A ledger that is copied to the other store, or restored there, and back: each context is exported as before, byte for byte.

COPY_CONTEXTS=10000 makes a large one.
"""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from time import monotonic

import httpx2
import psycopg
import pytest

from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Say, Status, Think, by_keyword, in_rounds
from tests.gateway.cli.conftest import CommandLine
from tests.support.fork_server import fork_server

_CONTEXTS = int(os.environ.get("COPY_CONTEXTS", "12"))
_CALLERS = 16
_WAITS = 2
_WITH_SERVICE = 1000
"""Contexts of all kinds, of more only words: the emulator of the service looks through all that it has said."""

_CODE = '''
from gateway.agent import Turn

async def reply(turn: Turn) -> str:
    return f"{len(turn.history)}: {turn.text}"

def book(hotel: str) -> str:
    """Books a room."""
    return f"booked {hotel}"
'''
_ODD = "a\x00b \ufdd0 \u2028 \U0001f600 'quoted' \\ $1 ;\n\t"
_BOOK = in_rounds([Think("It wants a room."), Call("book", {"hotel": f"Ritz {_ODD}"})], [Say(f"Done. {_ODD}", 3)])
_REFUSED = Status(400, {"error": {"message": "not so", "type": "invalid_request_error", "param": None, "code": None}})
_SCRIPT = by_keyword({"book": _BOOK, "wrong": [_REFUSED]}, [Say("Hello.", 2)])
_TOOL_CALLS = "https://a2a-gateway.dev/extensions/tool-calls/v1"

Configured = Callable[[str, str], Path]
"""Writes the configuration of a gateway of this name on this storage."""


@pytest.fixture
async def configured(tmp_path: Path) -> AsyncIterator[Configured]:
    """The gateways have the same agents, one of them with a service and a tool whose calls need approval."""
    code = tmp_path / "code_of_agents.py"
    code.write_text(_CODE)
    async with serve(ResponsesServer(_SCRIPT).app) as service:

        def write(name: str, url: str) -> Path:
            folder = tmp_path / name
            folder.mkdir()
            file = folder / "gateway.yaml"
            file.write_text(
                f"version: 1\nserver: {{port: 0}}\nstorage: {{url: '{url}'}}\n"
                f"tools: {{desk: {{type: python, ref: '{code}:book'}}}}\n"
                f"agents:\n  mine: {{type: python, ref: '{code}:reply'}}\n"
                f"  hotel: {{type: openai-responses, model: m, base_url: '{service}/v1', tools: [desk], "
                "approvals: [{tool: 'desk.*'}]}\n"
            )
            return file

        yield write


@asynccontextmanager
async def gateway(file: Path) -> AsyncGenerator[httpx2.AsyncClient, None]:
    """It is drained at the end."""
    async with fork_server() as server:
        process = await server.serving(file)
        async with a2a_http(process.url.result()) as http:
            yield http
        process.signal(signal.SIGTERM)
        assert await process.dead() == 0


async def _talk(http: httpx2.AsyncClient, number: int) -> None:
    """One of four kinds: words, a tool that was approved, one that waits for that (`_WAITS`), a message that fails."""
    mine, hotel, context = A2A(http, "mine"), A2A(http, "hotel"), _name(number)
    match _kind(number):
        case 0:
            for text in ("one", _ODD.replace("\0", "")):
                assert why(await mine.send(text, context)) == COMPLETED
        case 1:
            asked = await hotel.send("book", context)
            [call] = asked["status"]["message"]["metadata"][_TOOL_CALLS]["approval"]["tools"]
            decision = {"approvals": [{"id": call["id"], "approved": True}]}
            assert why(await hotel.send("", context, taskId=asked["id"], parts=[{"data": decision}])) == COMPLETED
        case 2:
            assert (await hotel.send("book", context))["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        case _:
            assert (await hotel.send("wrong", context))["status"]["state"] == "TASK_STATE_FAILED"
            assert why(await hotel.send("hello", context)) == COMPLETED


def _kind(number: int) -> int:
    return number % 4 if number < _WITH_SERVICE else 0


def _name(number: int) -> str:
    return f"c-{number:06}"


async def _each(do: Callable[[int], Awaitable[None]]) -> None:
    """With the number of every context, of several at a time."""
    numbers = iter(range(_CONTEXTS))

    async def caller() -> None:
        for number in numbers:
            await do(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(_CALLERS):
            group.create_task(caller())


async def _fill(file: Path) -> None:
    async with gateway(file) as http:
        await _each(lambda number: _talk(http, number))


async def exports(file: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    async with gateway(file) as http:

        async def export(number: int) -> None:
            context = _name(number)
            whole = f"/admin/api/v1/contexts/{context}"
            # One whose turn waits cannot be exported.
            shown = f"/a2a/hotel/tasks?contextId={context}&includeArtifacts=true"
            answer = await http.get(shown if _kind(number) == _WAITS else whole)
            assert answer.status_code == 200, answer.text
            found[context] = answer.content

        await _each(export)
    return found


class Commands:
    """Runs them. `took` says how long each has taken."""

    def __init__(self, command_line: CommandLine) -> None:
        self._command_line = command_line
        self.took: list[str] = []

    async def __call__(self, *arguments: str) -> None:
        began = monotonic()
        ended = await self._command_line(*arguments)
        self.took.append(f"{monotonic() - began:.1f} s: {ended.out}")
        assert (ended.code, ended.err) == (0, "")


@pytest.fixture
def commands(command_line: CommandLine) -> Commands:
    return Commands(command_line)


def _size(url: str) -> str:
    with psycopg.connect(url) as connection:
        [(size,)] = connection.execute("SELECT pg_size_pretty(pg_database_size(current_database()))").fetchall()
    return str(size)


def _file_size(url: str) -> str:
    return f"{Path(url.removeprefix('sqlite:///')).stat().st_size / 1e6:.1f} MB"


async def test_copied_to_postgresql_and_back_every_context_is_exported_as_before(
    configured: Configured, commands: Commands, tmp_path: Path, postgres_url: str
) -> None:
    one, other = (f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "other"))
    first = configured("first", one)
    await _fill(first)
    before = await exports(first)
    await commands("storage", "copy", one, postgres_url)
    assert await exports(configured("postgres", postgres_url)) == before
    await commands("storage", "copy", postgres_url, other)
    assert await exports(configured("back", other)) == before
    total = sum(map(len, before.values())) / 1e6
    sizes = f"exports {total:.1f} MB, SQLite {_file_size(one)}, PostgreSQL {_size(postgres_url)}"
    print(f"\n{len(before)} contexts, {sizes}\n{''.join(commands.took)}")  # noqa: T201


async def test_restored_in_postgresql_and_back_every_context_is_exported_as_before(
    configured: Configured, commands: Commands, tmp_path: Path, postgres_url: str
) -> None:
    first = configured("first", f"sqlite:///{tmp_path}/one.db")
    second = configured("postgres", postgres_url)
    third = configured("back", f"sqlite:///{tmp_path}/other.db")
    monday, tuesday = str(tmp_path / "monday"), str(tmp_path / "tuesday")
    await _fill(first)
    before = await exports(first)
    await commands("backup", monday, "-c", str(first))
    await commands("restore", monday, "-c", str(second))
    assert await exports(second) == before
    await commands("backup", tuesday, "-c", str(second))
    await commands("restore", tuesday, "-c", str(third))
    assert await exports(third) == before
    print(f"\n{len(before)} contexts\n{''.join(commands.took)}")  # noqa: T201
