"""A backend that is down, end to end: after five failures it gets no calls, then one call as a test, and the conversation
continues from where it stood."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.core.failures import safe_text
from gateway.engine.runtime import LEFT_ALONE
from gateway.foundation.clock import Clock
from gateway.foundation.retry import COOLDOWN
from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, text_of, why
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Conversation, Say, Status, Step
from tests.emulators.server import Emulator
from tests.running import AT_ONCE, StartLocal
from tests.support.ports import free_port
from tests.support.refusing import refusing_port

WIRES: dict[str, type[Emulator]] = {"openai-responses": ResponsesServer, "openai-chat": ChatServer}
ALL_WIRES = pytest.mark.parametrize("wire", WIRES)


class Hand:
    """A monotonic clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.clock = Clock(monotonic=lambda: self.seconds)


class Door:
    """A port in front of a service: nothing listens there while it is shut. `came`: the number of connections."""

    def __init__(self, behind: str) -> None:
        self.port = free_port()
        self.came = 0
        self._behind = httpx2.URL(behind)
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[None] | None] = {}

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connections that are left at the end are cut."""
        listener = await asyncio.start_server(self._let_in, "127.0.0.1", self.port)
        try:
            yield
        finally:
            listener.close()
            for connection in self._serving:
                connection.transport.abort()
            await asyncio.gather(*filter(None, self._serving.values()))
            self._serving.clear()

    async def _let_in(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came += 1
        self._serving[writer] = asyncio.current_task()
        inner_reader, inner_writer = await asyncio.open_connection(self._behind.host, self._behind.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(_pass_on(reader, inner_writer))
            group.create_task(_pass_on(inner_reader, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


def agent(name: str, wire: str, port: int, scheme: str = "http", *, key: str = "key", more: str = "") -> str:
    settings = f"type: {wire}, model: m, base_url: '{scheme}://127.0.0.1:{port}/v1', api_key: {key}"
    return f"{name}: {{{settings}{more and ', '}{more}}}\n"


def left_alone(seconds: int, hint: str = "") -> tuple[str, str]:
    """How the turn ends after whose failure the backend is left alone."""
    text = safe_text(ErrorClass.UNREACHABLE, "", seconds, hint=hint)
    return "TASK_STATE_FAILED", text.partition(" (correlation id ")[0]


def not_asked(seconds: int) -> tuple[str, str]:
    """How a turn ends whose backend is left alone."""
    return left_alone(seconds, LEFT_ALONE)


def said(body: dict[str, Any]) -> list[str]:
    """The texts of a request, and the handle that it continues."""
    texts = [item["content"] for item in body.get("input") or body["messages"]]
    spoken = [text if isinstance(text, str) else "".join(part["text"] for part in text) for text in texts]
    return [body.get("previous_response_id", ""), *spoken]


@pytest.mark.fault("B1")
@ALL_WIRES
async def test_a_backend_that_is_down_is_left_alone_then_asked_once_and_then_whole_again(
    start_local: StartLocal, wire: str
) -> None:
    came, go = asyncio.Event(), asyncio.Event()

    async def held(conversation: Conversation) -> AsyncIterator[Step]:
        if conversation.text.startswith("again"):
            came.set()
            await go.wait()
        yield Say(f"re {conversation.text}")

    server, hand = WIRES[wire](held), Hand()
    async with serve(server.app) as behind:
        door = Door(behind)
        gateway = await start_local(agent("a", wire, door.port), clock=hand.clock, pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "a")
            async with door.open():
                context = (await caller.send("one"))["contextId"]
            refused = [await caller.send(text, context) for text in ("two", "three")]
            assert [why(task) for task in refused] == [failed(ErrorClass.UNREACHABLE), left_alone(30)]
            async with door.open():
                door.came, server.requests[:] = 0, []
                resting = [await caller.send("four", context), await caller.send("elsewhere")]
                assert [why(task) for task in resting] == [not_asked(30), not_asked(30)]
                assert resting[0]["status"]["message"]["metadata"]["retryAfter"] == 30
                assert (door.came, server.requests) == (0, [])

                hand.seconds += COOLDOWN
                async with asyncio.timeout(30), asyncio.TaskGroup() as group:
                    trying = [group.create_task(caller.send(f"again {number}")) for number in range(4)]
                    while sum(task.done() for task in trying) < 3:
                        left = [task for task in trying if not task.done()]
                        await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                    await came.wait()
                    assert [why(task.result()) for task in trying if task.done()] == [not_asked(1)] * 3
                    assert (door.came, len(server.requests)) == (1, 1)
                    go.set()
                assert [why(task.result()) for task in trying].count(COMPLETED) == 1

                last = await caller.send("five", context)
    assert (why(last), text_of(last)) == (COMPLETED, "re five")
    before = ["two", "three", "four", "five"]
    if wire == "openai-chat":
        assert said(server.requests[-1]) == ["", "one", "re one", *before]
    else:
        assert said(server.requests[-1]) == [next(iter(server.stored)), *before]  # type: ignore[attr-defined]


@pytest.mark.fault("B1")
async def test_who_speaks_no_tls_is_left_alone_behind_five_connections(start_local: StartLocal) -> None:
    async with serve(ChatServer(lambda _: [Say("hello")]).app) as behind:
        door = Door(behind)
        gateway = await start_local(agent("a", "openai-chat", door.port, "https"), clock=Hand().clock, pace=AT_ONCE)
        async with door.open(), a2a_http(gateway.url) as http:
            tasks = [await A2A(http, "a").send(text) for text in "1234"]
    assert [why(task) for task in tasks] == [failed(ErrorClass.UNREACHABLE), left_alone(30), *[not_asked(30)] * 2]
    assert door.came == 5


@pytest.mark.fault("B1", "B6")
@pytest.mark.parametrize("status", [502, 503, 504])
@ALL_WIRES
async def test_a_proxy_that_says_that_nobody_is_behind_it_is_left_alone(
    start_local: StartLocal, wire: str, status: int
) -> None:
    server = WIRES[wire](lambda _: [Status(status, {"error": {"message": "no upstream"}})])
    async with serve(server.app) as url:
        port = httpx2.URL(url).port
        assert port is not None
        gateway = await start_local(agent("a", wire, port), clock=Hand().clock, pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            tasks = [await A2A(http, "a").send(str(number)) for number in range(7)]
    assert len(server.requests) == 5
    assert why(tasks[-1]) == not_asked(30)


@pytest.mark.fault("B5", "B6")
@pytest.mark.parametrize("status", [400, 429, 500, 529])
@ALL_WIRES
async def test_a_backend_that_answers_with_an_error_of_its_own_is_asked_every_time(
    start_local: StartLocal, wire: str, status: int
) -> None:
    server = WIRES[wire](lambda _: [Status(status, {"error": {"message": "no"}})])
    async with serve(server.app) as url:
        port = httpx2.URL(url).port
        assert port is not None
        gateway = await start_local(agent("a", wire, port), clock=Hand().clock, pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            for number in range(7):
                await A2A(http, "a").send(str(number))
    assert len(server.requests) >= 7


@pytest.mark.fault("B1")
async def test_agents_of_one_address_and_account_know_of_each_other(start_local: StartLocal) -> None:
    port = refusing_port()
    agents = {
        "chat": agent("chat", "openai-chat", port),
        "responses": agent("responses", "openai-responses", port),
        "conversations": agent("conversations", "openai-responses", port, more="conversation: true"),
        "other": agent("other", "openai-chat", port, key="other"),
    }
    gateway = await start_local("".join(agents.values()), clock=Hand().clock, pace=AT_ONCE)
    async with a2a_http(gateway.url) as http:
        tasks = {name: await A2A(http, name).send("hi") for name in agents}
    assert {name: why(task) for name, task in tasks.items()} == {
        "chat": failed(ErrorClass.UNREACHABLE),
        "responses": left_alone(30),
        "conversations": not_asked(30),
        "other": failed(ErrorClass.UNREACHABLE),
    }


@pytest.mark.fault("B1")
@pytest.mark.parametrize(("key", "told"), [("key", not_asked(30)), ("another", failed(ErrorClass.UNREACHABLE))])
async def test_a_reload_keeps_what_is_known_of_a_backend_but_not_of_another_account(
    start_local: StartLocal, tmp_path: Path, key: str, told: tuple[str, str]
) -> None:
    port = refusing_port()
    gateway = await start_local(agent("a", "openai-chat", port), clock=Hand().clock, pace=AT_ONCE)
    changed = f"version: 1\nagents:\n  {agent('a', 'openai-responses', port, key=key)}"
    async with a2a_http(gateway.url) as http:
        for text in "12":
            await A2A(http, "a").send(text)
        await gateway.gateway.reload(
            load(changed, source="changed.yaml", env={}, plugins=Registry(), base_dir=tmp_path)
        )
        assert why(await A2A(http, "a").send("3")) == told
