"""Two gateways of this version are replaced by two of the next one under traffic, and back: nothing acknowledged is lost,
every stream shows the whole log, every task completes, no tool runs twice."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx2
import pytest

from tests.a2a_client import A2A, COMPLETED, Frame, Json, Refused, Stream, text_of, why
from tests.faults.crash_world import AGENTS, SAID, World, crash_world, effect_errors, unpaired_calls
from tests.faults.next_version import NEXT, PROJECT, next_version, start
from tests.faults.unfinished import all_ended
from tests.invariants import violations
from tests.running import Child
from tests.support.polling import interval
from tests.support.rows import query

pytestmark = [pytest.mark.xdist_group("torture"), pytest.mark.fault("R2")]

SEED = 20261122
_CONTEXTS_OF_EACH = 2
_TURNS_BETWEEN = 30
"""Answers that clients get between two steps of a deployment."""

_SHUTTING_DOWN = -32603
_FINAL = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED"})
_KINDS = ("plain", "plain", "slow", "tools")

# It counts in the words of its version.
_COUNTER = """
async def reply(turn):
    key = "count" if "count" in turn.state else "turns"
    turn.state[key] = turn.state.get(key, 0) + 1
    yield f"{key} {turn.state[key]}"
"""


@dataclass(slots=True)
class Fleet:
    """The gateways that get requests, and the results that clients got."""

    file: Path
    gateways: dict[Child, httpx2.AsyncClient] = field(default_factory=dict)
    started: list[Child] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(SEED))
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    acked: dict[str, dict[str, Json]] = field(default_factory=dict)
    """The tasks of each context as they had ended, by what was said."""
    streamed: dict[str, dict[int, Json]] = field(default_factory=dict)
    answers: int = 0
    _answered: asyncio.Condition = field(default_factory=asyncio.Condition)

    def caller(self, agent: str) -> A2A:
        return A2A(self.chance.choice(list(self.gateways.values())), agent)

    async def add(self, code: Path) -> Child:
        child = await start(code, self.file)
        self.started.append(child)
        client = httpx2.AsyncClient(base_url=child.url, headers={"A2A-Version": "1.0"}, timeout=60, trust_env=False)
        self.gateways[child] = client
        return child

    async def retire(self, child: Child) -> None:
        """Clients find out for themselves that it does not take anything any more."""
        child.signal(signal.SIGTERM)
        assert await child.ended() == 0, child.output.decode()
        await self.gateways.pop(child).aclose()

    async def replace(self, old: Child, code: Path) -> Child:
        """Under traffic before, during and after."""
        await self.more_answers()
        child = await self.add(code)
        await self.more_answers()
        for client in self.gateways.values():
            assert (await client.get("/readyz")).status_code == 200
        await self.retire(old)
        return child

    async def more_answers(self) -> None:
        wanted = self.answers + _TURNS_BETWEEN
        async with asyncio.timeout(60), self._answered:
            await self._answered.wait_for(lambda: self.answers >= wanted)

    async def answered(self, context: str, text: str, task: Json) -> None:
        self.acked.setdefault(context, {})[text] = task
        async with self._answered:
            self.answers += 1
            self._answered.notify_all()


@asynccontextmanager
async def fleet(file: Path) -> AsyncIterator[Fleet]:
    made = Fleet(file)
    try:
        yield made
    except BaseException as error:
        for child in made.started:
            error.add_note(f"{child.url} said:\n{child.output.decode()}")
        raise
    finally:
        for child, client in made.gateways.items():
            await client.aclose()
            await child.aclose()


async def _talk(fleet: Fleet, agent: str, context: str, over: asyncio.Event) -> None:
    """One message after another, each said again until there is an answer."""
    while not over.is_set():
        text = f"{next(fleet.numbers)} {fleet.chance.choice(_KINDS)}"
        streams = fleet.chance.random() < 0.5
        task = await (_stream(fleet, agent, context, text) if streams else _say(fleet, agent, context, text))
        await fleet.answered(context, text, task)


async def _say(fleet: Fleet, agent: str, context: str, text: str) -> Json:
    """To any gateway, and to another one when that one goes."""
    while True:
        try:
            return await fleet.caller(agent).send(text, context, messageId=text)
        except (httpx2.TransportError, Refused) as error:
            await _again(error)


async def _stream(fleet: Fleet, agent: str, context: str, text: str) -> Json:
    """A stream that breaks off is resumed at any gateway, after its last event."""
    task, seen = "", dict[int, Json]()

    def take(frames: list[Frame]) -> None:
        for frame in frames:
            if "task" not in frame.event:
                assert frame.number == max(seen, default=frame.number - 1 if frame.number else 0) + 1
                seen[frame.number] = frame.event

    async def follow(stream: Stream) -> None:
        nonlocal task
        frames = await stream.rest()
        task = frames[0].event["task"]["id"] if frames else task
        take(frames)

    while True:
        try:
            if not task:
                async with fleet.caller(agent).stream(text, context, messageId=text) as stream:
                    await follow(stream)
            else:
                async with fleet.caller(agent).subscribe(task, after=max(seen, default=0)) as stream:
                    await follow(stream)
            if _ended(seen):
                found = await fleet.caller(agent).get(task)
                fleet.streamed[task] = seen
                return found
        except (httpx2.TransportError, Refused) as error:
            await _again(error)


async def _again(error: Exception) -> None:
    """Raises: the error, unless it says that another gateway is to be asked."""
    if isinstance(error, Refused) and error.error["code"] != _SHUTTING_DOWN:
        raise error
    await interval()


def _ended(seen: dict[int, Json]) -> bool:
    return bool(seen) and seen[max(seen)].get("statusUpdate", {}).get("status", {}).get("state") in _FINAL


async def _all_is_there(fleet: Fleet, agent: str, context: str) -> None:
    """Every task as its caller knew it, the log as its stream showed it, and a next turn that knows every message once."""
    caller = fleet.caller(agent)
    said = fleet.acked[context]
    for text, task in said.items():
        assert why(task) == COMPLETED, text
        assert await caller.get(task["id"]) == task
        if task["id"] in fleet.streamed:
            async with caller.subscribe(task["id"], after=0) as stream:
                frames = await stream.rest()
            events = {frame.number or 0: frame.event for frame in frames if "task" not in frame.event}
            seen = fleet.streamed[task["id"]]
            # What begins a stream is the task as it was then; what came before that has no event of its own in it.
            assert {number: event for number, event in events.items() if number in seen} == seen
            assert sorted(seen) == list(range(min(seen), max(events) + 1))
    last = await caller.send("last plain", context, messageId=f"{context} last")
    assert why(last) == COMPLETED
    assert text_of(last).partition(SAID)[2].split(" | ") == [*said, "last plain"]


@asynccontextmanager
async def _world(folder: Path) -> AsyncIterator[World]:
    async with crash_world(folder) as world:
        (folder / "counter.py").write_text(_COUNTER)
        with world.file.open("a") as file:
            file.write("  counter: {type: python, ref: './counter.py:reply', idempotency: message_id}\n")
        yield world


def _schema(database: Path) -> str:
    [(version,)] = query(database, "SELECT version_num FROM alembic_version")
    return str(version)


@pytest.mark.sqlite("on PostgreSQL there is no version before this one")
async def test_a_new_version_takes_over_under_traffic_and_is_taken_back(tmp_path: Path) -> None:
    new = await asyncio.to_thread(next_version, tmp_path / "next")
    (tmp_path / "run").mkdir()
    talks = [(agent, f"{agent}-{number}") for agent in AGENTS for number in range(_CONTEXTS_OF_EACH)]
    async with asyncio.timeout(240), _world(tmp_path / "run") as world, fleet(world.file) as gateways:
        one, two = await gateways.add(PROJECT), await gateways.add(PROJECT)
        for context in ("stays", "moves"):
            await _count(gateways, context, 1)
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for agent, context in talks:
                group.create_task(_talk(gateways, agent, context, over))
            one = await gateways.replace(one, new)
            assert _schema(world.database) == NEXT
            two = await gateways.replace(two, new)
            await _count(gateways, "moves", 2, "count")
            one = await gateways.replace(one, PROJECT)
            two = await gateways.replace(two, PROJECT)
            await gateways.more_answers()
            over.set()
        assert _schema(world.database) == NEXT
        await _count(gateways, "stays", 2)
        with pytest.raises(Refused, match="A newer version of the agent"):
            await gateways.caller("counter").send("again", "moves", messageId="again")
        await all_ended(world.database)
        for agent, context in talks:
            await _all_is_there(gateways, agent, context)
        assert violations(world.database) == []
        assert effect_errors(world) == []
        assert unpaired_calls(world) == []
        _every_turn_has_its_label(world.database)
        await gateways.add(new)
        await gateways.retire(one)
        await gateways.retire(two)
        await _count(gateways, "moves", 3, "count")


async def _count(fleet: Fleet, context: str, number: int, key: str = "turns") -> Json:
    task = await fleet.caller("counter").send(f"{context} {number}", context, messageId=f"{context} {number}")
    assert text_of(task) == f"{key} {number}"
    return task


def _every_turn_has_its_label(database: Path) -> None:
    """Whichever version has written it, since there are labels."""
    [(turns, labels)] = query(database, "SELECT (SELECT count(*) FROM turn), (SELECT count(*) FROM label)")
    [(last,)] = query(database, "SELECT id FROM turn ORDER BY accepted_at DESC, id DESC LIMIT 1")
    assert query(database, "SELECT 1 FROM label WHERE turn = ?", last) == [(1,)]
    assert 0 < labels < turns
