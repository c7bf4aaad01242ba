"""Two processes write the same conversations, with many clients at once and a kill of one process: the observations of all
clients fit one order."""

import asyncio
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, Refused, a2a_http, text_of, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Conversation, Delay, Say, Step
from tests.faults.consistency import Turn, anomalies, lost
from tests.faults.said import said
from tests.faults.unfinished import all_ended
from tests.invariants import violations
from tests.support.fork_server import Forked, ForkServer, fork_server
from tests.support.polling import interval, until
from tests.support.stores import ledger_url

pytestmark = [pytest.mark.fault("R1"), pytest.mark.xdist_group("torture")]

CONTEXTS = 3
CLIENTS = 3
"""Of each context."""
MESSAGES = 8
"""Of each client."""

AGENTS = ("chained", "kept", "conversed")


class TestTheCheck:
    """It finds what it is for."""

    def test_what_can_have_happened_is_none(self) -> None:
        turns = [
            Turn("c", "a", 0, 1, ("a",)),
            Turn("c", "b", 0, 3, ("a", "b")),
            Turn("c", "lost", 1, 4, None),
            Turn("c", "d", 4, 5, ("a", "b", "lost", "d")),
            Turn("other", "x", 0, 1, ("x",)),
        ]
        assert anomalies(turns) == []
        assert lost(turns, {"c": ("a", "b", "lost", "d"), "other": ("x",)}) == []

    @pytest.mark.parametrize(
        ("turns", "said"),
        [
            ([Turn("c", "a", 0, 1, ("a",)), Turn("c", "b", 0, 1, ("b",))], "is no beginning of"),
            ([Turn("c", "a", 0, 1, ("a",)), Turn("c", "b", 2, 3, ("a", "b", "a", "b"))], "was said 2 times"),
            ([Turn("c", "a", 0, 1, ("x", "a"))], "was never sent"),
            ([Turn("c", "a", 0, 1, ("a", "b")), Turn("c", "b", 0, 1, ("a", "b"))], "of another moment"),
            ([Turn("c", "a", 0, 1, ("b", "a")), Turn("c", "b", 2, 3, ("b",))], "which had been answered"),
        ],
        ids=["a fork", "twice", "invented", "a read of later", "out of order"],
    )
    def test_what_cannot_is_told(self, turns: list[Turn], said: str) -> None:
        assert any(said in found for found in anomalies(turns))

    def test_what_is_lost_is_told(self) -> None:
        turns = [Turn("c", "a", 0, 1, ("a",)), Turn("c", "b", 0, 1, None), Turn("c", "x", 0, 1, None, acked=False)]
        assert lost(turns, {"c": ("a",)}) == ["b"]


def _script(conversation: Conversation) -> Iterator[Step]:
    yield Delay(0.01)
    yield Say(" | ".join(said(conversation)), chunks=3)


@dataclass(slots=True)
class World:
    parent: ForkServer
    file: Path
    chance: random.Random
    gateways: list[Forked] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)

    async def start(self, index: int) -> None:
        child = await self.parent.serving(self.file)
        self.gateways[index : index + 1] = [child]

    async def say(self, context: int, text: str) -> None:
        """One turn, at one of the two."""
        invoked, acked, read = time.monotonic(), False, None
        child = self.chance.choice(self.gateways)
        async with a2a_http(child.url.result()) as http:
            caller = A2A(http, AGENTS[context % len(AGENTS)])
            try:
                async with caller.stream(text, f"context-{context}") as stream:
                    acked = bool(await stream.read(1))
                    frames = await stream.rest()
                if acked:
                    task = await caller.get(frames[0].event["task"]["id"])
                    read = tuple(text_of(task).split(" | ")) if why(task) == COMPLETED else None
            except (httpx2.TransportError, Refused):
                await interval()
        self.turns.append(Turn(f"context-{context}", text, invoked, time.monotonic(), read, acked))


async def test_what_clients_of_two_processes_see_can_have_happened_in_one_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = random.SystemRandom().randrange(1, 10**9)
    async with asyncio.timeout(240), serve(ResponsesServer(_script).app) as backend, fork_server() as parent:
        file = tmp_path / "gateway.yaml"
        file.write_text(
            "version: 1\nserver: {port: 0}\nlimits: {queued_turns_per_context: 100}\n"
            f"storage: {{url: '{ledger_url(tmp_path / 'gateway.db')}', lease_timeout: 1s}}\nagents:\n"
            f"  chained: {{type: openai-responses, model: m, base_url: '{backend}/v1'}}\n"
            f"  kept: {{type: openai-responses, model: m, base_url: '{backend}/v1', history: {{owner: gateway}}}}\n"
            f"  conversed: {{type: openai-responses, model: m, base_url: '{backend}/v1', conversation: true}}\n"
        )
        world = World(parent, file, random.Random(seed))
        await world.start(0)
        await world.start(1)

        async def client(context: int, number: int) -> None:
            for message in range(MESSAGES):
                await world.say(context, f"{context}.{number}.{message}")

        async with asyncio.TaskGroup() as group:
            for context in range(CONTEXTS):
                for number in range(CLIENTS):
                    group.create_task(client(context, number))
            await until(lambda: len(world.turns) >= CONTEXTS * CLIENTS * MESSAGES // 3)
            await world.gateways[0].kill()
            await world.start(0)
        await all_ended(tmp_path / "gateway.db")
        last = {}
        async with a2a_http(world.gateways[0].url.result()) as http:
            for context in range(CONTEXTS):
                task = await A2A(http, AGENTS[context % len(AGENTS)]).send("last", f"context-{context}")
                last[f"context-{context}"] = tuple(text_of(task).split(" | "))

    found = anomalies(world.turns)
    with capsys.disabled():
        done = sum(turn.read is not None for turn in world.turns)
        print(f"\nseed {seed}: {len(world.turns)} turns of {CONTEXTS} contexts, {done} done, {len(found)} anomalies")  # noqa: T201
    assert found == []
    assert lost(world.turns, last) == []
    assert [name for name, read in last.items() if len(set(read)) != len(read)] == []
    assert any(turn.read is not None for turn in world.turns)
    assert violations(tmp_path / "gateway.db") == []
