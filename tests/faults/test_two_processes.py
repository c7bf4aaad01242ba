"""Two gateways on one database with many contexts, while one of the two is killed or stopped, again and again: nothing
acknowledged is lost, no chain forks, every task ends.

The default is a short run. `TORTURE_CONTEXTS=200 TORTURE_SECONDS=60` makes a long one, `TORTURE_SEED` repeats one.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx2
import pytest

from gateway.core.failures import TOOL_OUTCOME_UNKNOWN
from gateway.ledger.calls import RESTARTED
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, Json, Refused, text_of, user_message, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Delay, Say, Step
from tests.faults.effects import effect_errors, effects
from tests.faults.said import said
from tests.faults.unfinished import all_ended
from tests.invariants import violations
from tests.support.fork_server import Forked, ForkServer, fork_server
from tests.support.polling import interval

pytestmark = [pytest.mark.xdist_group("torture"), pytest.mark.fault("K14", "R1")]

CONTEXTS = int(os.environ.get("TORTURE_CONTEXTS", "24"))
SECONDS = float(os.environ.get("TORTURE_SECONDS", "6"))
SEED = int(os.environ.get("TORTURE_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)

LEASE_SECONDS = 2.0
_ENDS_WITHIN_SECONDS = 30 * LEASE_SECONDS
"""A lease to run out, an upkeep to come round, and two busy cores: state of the task, not a promise of speed."""

_LEAST = 2
"""Kills and stops, however slow the machine is."""

_FINAL = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED"})

AGENTS = ("chained", "kept", "conversed")


def _script(conversation: Conversation) -> Iterator[Step]:
    """Of every third message it has something booked, twice in one round and once in another, before it answers."""
    number = conversation.text.rpartition(".")[2]
    done = len(conversation.tool_outputs)
    if number.isdecimal() and int(number) % 3 == 0 and done < 3:
        for part in (0, 1) if done == 0 else (2,):
            yield Call("book", {"what": f"{conversation.text}.{part}"})
        return
    yield Say(" | ".join(said(conversation)), chunks=3)
    yield Delay(0.02)


@dataclass(slots=True)
class CrashRun:
    """`acked`: the acknowledged tasks, by the message's text. `gateways`: both, as they are now."""

    parent: ForkServer
    file: Path
    chance: random.Random
    gateways: list[Forked] = field(default_factory=list)
    clients: list[httpx2.AsyncClient] = field(default_factory=list)
    opened: list[httpx2.AsyncClient] = field(default_factory=list)
    acked: dict[str, Json] = field(default_factory=dict)
    ended: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    stops: int = 0
    refused: int = 0
    cut: int = 0
    texts: Iterator[int] = field(default_factory=lambda: count(1))

    def caller(self, agent: str) -> A2A:
        """At one gateway or the other."""
        return A2A(self.chance.choice(self.clients), agent)


def _context(number: int) -> tuple[str, str]:
    return AGENTS[number % len(AGENTS)], f"context-{number}"


async def _talk(crash_run: CrashRun, number: int, over: asyncio.Event) -> None:
    """One client of one context: messages of all kinds, one after another, wherever they end up."""
    agent, context = _context(number)
    while not over.is_set():
        text = f"{number}.{next(crash_run.texts)}"
        kind = crash_run.chance.random()
        caller = crash_run.caller(agent)
        try:
            if kind < 0.5:
                crash_run.acked[text] = await caller.send(text, context)
            elif kind < 0.8:
                message = user_message(text, context)
                result = await caller.call("SendMessage", message=message, configuration={"returnImmediately": True})
                crash_run.acked[text] = result["task"]
                if kind < 0.6:
                    await crash_run.caller(agent).call("CancelTask", id=result["task"]["id"])
            else:
                await _stream(crash_run, caller, agent, context, text)
        except httpx2.TransportError:
            crash_run.cut += 1
            await interval()
        except Refused:
            crash_run.refused += 1
            await interval()


async def _stream(crash_run: CrashRun, caller: A2A, agent: str, context: str, text: str) -> None:
    """And another stream on the same task, at any gateway: both must show the same events."""
    async with caller.stream(text, context) as stream:
        seen = await stream.read(1)
        if not seen:
            return
        crash_run.acked[text] = seen[0].event["task"]
        async with crash_run.caller(agent).subscribe(seen[0].event["task"]["id"], after=seen[0].number) as other:
            await other.rest()
        await stream.rest()
    own, watched = seen[1:], other.frames[1:]
    assert watched[: len(own)] == own[: len(watched)]


async def _kill(crash_run: CrashRun, over: asyncio.Event) -> None:
    """One of the two dies and another takes its place, or it stands still until its leases have run out. Never both."""
    while not over.is_set() or crash_run.kills + crash_run.stops < _LEAST:
        await asyncio.sleep(crash_run.chance.uniform(0.2, 1.5))
        index = crash_run.chance.randrange(2)
        if crash_run.chance.random() < 0.25:
            crash_run.gateways[index].signal(signal.SIGSTOP)
            await asyncio.sleep(1.5 * LEASE_SECONDS)
            crash_run.gateways[index].signal(signal.SIGCONT)
            crash_run.stops += 1
        else:
            await crash_run.gateways[index].kill()
            crash_run.kills += 1
            await _start(crash_run, index)


async def _start(crash_run: CrashRun, index: int) -> None:
    child = await crash_run.parent.serving(crash_run.file, tools=True)
    client = httpx2.AsyncClient(
        base_url=child.url.result(), headers={"A2A-Version": "1.0"}, timeout=60, trust_env=False
    )
    crash_run.opened.append(client)
    if index < len(crash_run.gateways):
        crash_run.gateways[index], crash_run.clients[index] = child, client
    else:
        crash_run.gateways.append(child)
        crash_run.clients.append(client)


async def _settled(database: Path) -> float:
    """How many leases it took until every task had ended."""
    began = time.monotonic()
    async with asyncio.timeout(_ENDS_WITHIN_SECONDS):
        await all_ended(database)
    return (time.monotonic() - began) / LEASE_SECONDS


async def test_two_gateways_of_which_one_is_killed_again_and_again_lose_and_fork_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database, file = tmp_path / "gateway.db", tmp_path / "gateway.yaml"
    async with (
        asyncio.timeout(240 + 5 * SECONDS),
        serve(ResponsesServer(_script).app) as backend,
        fork_server() as parent,
    ):
        file.write_text(
            "version: 1\nserver: {port: 0}\n"
            f"storage: {{url: 'sqlite:///gateway.db', lease_timeout: {int(LEASE_SECONDS * 1000)}ms}}\nagents:\n"
            f"  chained: {{type: openai-responses, model: m, base_url: '{backend}/v1'}}\n"
            f"  kept: {{type: openai-responses, model: m, base_url: '{backend}/v1', history: {{owner: gateway}}}}\n"
            f"  conversed: {{type: openai-responses, model: m, base_url: '{backend}/v1', conversation: true}}\n"
        )
        crash_run = CrashRun(parent, file, random.Random(SEED))
        for index in range(2):
            await _start(crash_run, index)
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(CONTEXTS):
                group.create_task(_talk(crash_run, number, over))
            killing = group.create_task(_kill(crash_run, over))
            await asyncio.sleep(SECONDS)
            over.set()
            await killing
        leases = await _settled(database)

        assert violations(database) == []
        await _all_is_there(crash_run)
        await _every_context_goes_on(crash_run)
        assert violations(database) == []
        assert effect_errors(tmp_path, database) == []
        for client in crash_run.opened:
            await client.aclose()
    with capsys.disabled():
        print(f"\nseed {SEED}: {CONTEXTS} contexts, {SECONDS:g} s, {crash_run.kills} kills, {crash_run.stops} stops")  # noqa: T201
        print(f"every task had ended {leases:.1f} leases after the last message")  # noqa: T201
        print(f"{len(crash_run.acked)} acknowledged, {crash_run.cut} cut, {crash_run.refused} refused")  # noqa: T201
        print(f"ended: {dict(crash_run.ended)}")  # noqa: T201
        print(f"{len(effects(tmp_path))} runs of tools, failures: {dict(crash_run.failures)}")  # noqa: T201
    assert crash_run.ended["TASK_STATE_COMPLETED"] > 0
    assert effects(tmp_path)
    # Nothing that the backend was sent was refused: turns fail with their process, and for no other reason.
    assert crash_run.failures.keys() <= {RESTARTED, TOOL_OUTCOME_UNKNOWN}


async def _all_is_there(crash_run: CrashRun) -> None:
    acked = iter(crash_run.acked.items())

    async def look() -> None:
        for text, seen in acked:
            agent, _ = _context(int(text.partition(".")[0]))
            task = await crash_run.caller(agent).get(seen["id"])
            state = task["status"]["state"]
            crash_run.ended[state] += 1
            assert state in _FINAL
            if state == "TASK_STATE_FAILED":
                crash_run.failures[task["status"]["message"]["metadata"]["errorClass"]] += 1
            assert task["history"][0]["parts"] == [{"text": text}]
            if seen["status"]["state"] in _FINAL:
                assert task == seen

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(look())


async def _every_context_goes_on(crash_run: CrashRun) -> None:
    """The backend's answer repeats its whole conversation: every message once, in order."""
    numbers = iter(range(CONTEXTS))

    async def look() -> None:
        for number in numbers:
            await _goes_on(crash_run, number)

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(look())


async def _goes_on(crash_run: CrashRun, number: int) -> None:
    agent, context = _context(number)
    last = await crash_run.caller(agent).send(f"{number}.last", context)
    assert why(last) == COMPLETED, f"{agent}: {last}"
    told = text_of(last).split(" | ")
    listed = [task["history"][0]["parts"][0]["text"] for task in await crash_run.caller(agent).tasks(context)]
    assert len(told) == len(set(told))
    assert sorted(told) == sorted(listed)
    mine = [text for text in crash_run.acked if text.startswith(f"{number}.")]
    assert [text for text in told if text in mine] == [text for text in mine if text in told] == mine
