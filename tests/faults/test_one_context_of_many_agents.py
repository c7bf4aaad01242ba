"""One context over agents of every type, in one file: each has a conversation of its own at its own service, through thirty
turns and ten kills; no id of one service is told to another; all of it goes to another gateway and on from there."""

import asyncio
import json
import random
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.a2a_client import A2A, Json, a2a_http, text_of
from tests.contract.backends import KEY, ROWS, Row
from tests.emulators.scripts import Conversation, Pause, Say, Step
from tests.invariants import violations
from tests.running import Child, StartChild, child_gateways
from tests.support.polling import until
from tests.support.rows import query

pytestmark = [pytest.mark.xdist_group("torture"), pytest.mark.fault("K3", "K5", "K12")]

_TURNS, _KILLS = 30, 10
_CONTEXT = "shared"
_SAID = "said: "
_FINAL = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED"})


@dataclass
class Service:
    """The emulator of one type, which answers with all that its model was told. At `stop_at` it stops, `before` its answer or
    in the middle of it, until `go`."""

    name: str
    row: Row
    emulator: Any
    url: str = ""
    stop_at: str = ""
    before: bool = False
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer(self, conversation: Conversation) -> AsyncGenerator[Step]:
        stops = conversation.text == self.stop_at
        if stops and self.before:
            self.reached.set()
            yield Pause(self.go)
        yield Say("well, ")
        if stops and not self.before:
            self.reached.set()
            yield Pause(self.go)
        yield Say(_SAID + " | ".join(conversation.user_texts))

    @property
    def agent(self) -> str:
        settings = {"type": self.row.type, **self.row.settings(self.url), **self.row.more, "idempotency": "message_id"}
        return f"{self.name}: {json.dumps(settings)}"

    def stop(self, text: str, *, before: bool) -> None:
        self.stop_at, self.before = text, before
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    def received(self) -> str:
        """All that was sent to it: paths are told by the handles of conversations, bodies by all else."""
        return json.dumps([self.emulator.requests, self.emulator.headers, getattr(self.emulator, "paths", [])])


def _services() -> list[Service]:
    """The first row of each type."""
    rows: dict[str, Row] = {}
    for row in ROWS:
        rows.setdefault(row.type, row)
    made = []
    for kind, row in rows.items():
        service = Service(kind, row, row.emulator(lambda _: (), api_key=KEY))
        service.emulator.script = service.answer
        made.append(service)
    return made


@asynccontextmanager
async def _served() -> AsyncIterator[Mapping[str, Service]]:
    services = _services()
    async with AsyncExitStack() as stack:
        for service in services:
            service.url = await stack.enter_async_context(service.emulator.serve())
        yield {service.name: service for service in services}


@dataclass
class Client:
    """Says each message until its task has ended, whatever happens to the gateway. `said` are the messages to each agent."""

    start: StartChild
    stack: AsyncExitStack
    child: Child | None = None
    http: httpx2.AsyncClient | None = None
    said: dict[str, list[str]] = field(default_factory=dict)
    tasks: dict[str, Json] = field(default_factory=dict)

    async def begin(self) -> None:
        self.child = await self.start()
        self.http = await self.stack.enter_async_context(a2a_http(self.child.url))

    async def say(self, agent: str, text: str) -> Json:
        assert self.http is not None
        self.said.setdefault(agent, [])
        if text not in self.said[agent]:
            self.said[agent].append(text)
        task = await A2A(self.http, agent).send(text, _CONTEXT, messageId=text)
        self.tasks[text] = task
        return task

    async def say_and_be_killed(self, service: Service, text: str, *, before: bool) -> Json:
        """The gateway dies while the service is at work on this message. It is said again to the next process."""
        service.stop(text, before=before)
        async with asyncio.TaskGroup() as group:
            lost = group.create_task(self._say_in_vain(service.name, text))
            await service.reached.wait()
            await self.restart()
            await lost
        service.go.set()
        return await self.say(service.name, text)

    async def _say_in_vain(self, agent: str, text: str) -> None:
        with pytest.raises(httpx2.TransportError):
            await self.say(agent, text)

    async def restart(self) -> None:
        assert self.child is not None
        await self.child.kill()
        await self.begin()


async def test_each_agent_of_a_context_has_its_own_thread_whatever_happens_to_the_gateway(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random(seed := random.SystemRandom().randrange(1, 10**9))
    (one := tmp_path / "one").mkdir()
    (other := tmp_path / "other").mkdir()
    async with asyncio.timeout(300), AsyncExitStack() as stack, _served() as services:
        with capsys.disabled():
            print(f"\n{len(services)} types of agents in one context, seed {seed}")  # noqa: T201
        agents = "\n".join(service.agent for service in services.values())
        start = await stack.enter_async_context(child_gateways(agents, one))
        client = Client(start, stack)
        await client.begin()
        order = [*services, *chance.choices(list(services), k=_TURNS - len(services))]
        killed = set(chance.sample(range(_TURNS), _KILLS))
        for number, agent in enumerate(order):
            text = f"{agent} {number}"
            if number not in killed:
                task = await client.say(agent, text)
            elif number % 3 == 0:
                await client.restart()
                task = await client.say(agent, text)
            else:
                task = await client.say_and_be_killed(services[agent], text, before=number % 3 == 1)
            assert task["status"]["state"] in _FINAL, (text, task)
            if number not in killed:
                assert text_of(task) == f"well, {_SAID}{' | '.join(client.said[agent])}", text
        assert violations(one / "gateway.db") == []
        _check_no_id_is_told_to_another(one / "gateway.db", services)
        await _check_all_goes_on_elsewhere(client, services, stack, agents, other)


def _check_no_id_is_told_to_another(database: Path, services: Mapping[str, Service]) -> None:
    rows = query(
        database,
        "SELECT agent, handle FROM thread WHERE handle IS NOT NULL UNION SELECT agent, pending_handle FROM service_call"
        " JOIN turn ON turn.id = turn JOIN thread ON thread.id = thread WHERE pending_handle IS NOT NULL"
        " UNION SELECT agent, run FROM service_call JOIN turn ON turn.id = turn JOIN thread ON thread.id = thread"
        " WHERE run IS NOT NULL",
    )
    ours = [name for (name,) in query(database, "SELECT id FROM task UNION SELECT id FROM context")]
    assert len({agent for agent, _ in rows}) >= 3
    for name, service in services.items():
        received = service.received()
        foreign = [handle for agent, handle in rows if agent != name and handle in received]
        assert foreign == [], (name, foreign)
        assert [one for one in ours if one in received] == [], name


async def _check_all_goes_on_elsewhere(
    client: Client, services: Mapping[str, Service], stack: AsyncExitStack, agents: str, folder: Path
) -> None:
    """The context is exported, taken up by another gateway on another database, and goes on there."""
    assert client.http is not None
    document = await client.http.get(f"/admin/api/v1/contexts/{_CONTEXT}")
    assert document.status_code == 200
    assert client.child is not None
    await client.child.kill()
    start = await stack.enter_async_context(child_gateways(agents, folder))
    child = await start()
    http = await stack.enter_async_context(a2a_http(child.url))
    taken = await http.post("/admin/api/v1/contexts:import", content=document.content)
    assert taken.status_code in {200, 201}, taken.text
    for name in services:
        caller = A2A(http, name)
        for text in client.said[name]:
            before: dict[str, Any] = client.tasks[text]
            assert (await caller.get(before["id"]))["status"]["state"] == before["status"]["state"]
        text = f"{name} elsewhere"
        task = await caller.send(text, _CONTEXT)
        assert text_of(task) == f"well, {_SAID}{' | '.join([*client.said[name], text])}", name
    await until(lambda: violations(folder / "gateway.db") == [])
