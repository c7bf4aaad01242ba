"""Two processes on one file whose turns overlap on the same contexts, with tools, cancellations and failures: the backend is
as strict as real ones, and accepts every request.

The machine decides the order: the invariants hold for any.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.a2a.errors import A2AError
from gateway.a2a.model import TERMINAL, TaskState
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.core.tools.toolset import OfferedTool
from gateway.ledger.tasks import Finish
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    CallCompleted,
    CallStarted,
    ErrorClass,
    ServiceRequest,
    TextDelta,
    ToolCallReady,
)
from gateway.ports.capabilities import Tail
from gateway.ports.conversation import CallItem, OutputItem, Ownership, StorageOwner, UserItem
from gateway.ports.tools import SourceTool, ToolDeclaration, ToolOutput, ToolRun
from gateway.scheduling.leases import LeaseTimes
from tests.invariants import violations
from tests.support.core import Core, query, running_core, soon, until
from tests.support.scripted import BR, BS, G, Pause, Script, ScriptedAdapter, in_words, says
from tests.support.unknown_calls import TailAdapter

ALL = pytest.mark.parametrize("ownership", [G, BR, BS], ids=["G", "BR", "BS"])
QUICK = LeaseTimes(0.5)
CONTEXTS = ("a", "b", "c")
CLIENTS = 6
STEPS = 40
"""Of each client."""


async def _others_come_first(chance: random.Random) -> None:
    for _ in range(chance.randrange(8)):
        await asyncio.sleep(0)


class StrictBackend:
    """Knows what was said on each of its handles, and what of that is still open. `complaints` are the requests that it
    would have refused for good."""

    def __init__(self, ownership: Ownership, chance: random.Random) -> None:
        self.ownership = ownership
        self.complaints: list[str] = []
        self.asked: set[str] = set()
        self._chance = chance
        self._open: dict[str | None, tuple[str, ...]] = {}
        self._heard: dict[str | None, frozenset[str]] = {}
        self._names = 0

    def _name(self, kind: str) -> str:
        self._names += 1
        return f"{kind}{self._names}"

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        chance = self._chance
        self._check(request)
        await _others_come_first(chance)
        kind = chance.random()
        if kind < 0.1:
            raise AdapterError(ErrorClass.UNAUTHORISED, "no such key")
        yield TextDelta(self._name("text"))
        await _others_come_first(chance)
        if kind < 0.2:
            raise AdapterError(ErrorClass.INTERRUPTED, "cut")
        calls = [self._name("call") for _ in range(chance.randrange(1, 4))] if kind < 0.6 else []
        for call in calls:
            yield ToolCallReady(call, "work" if chance.random() < 0.9 else "none", "{}")
        self.asked |= set(calls)
        yield CallCompleted(self._moved(request, tuple(calls)))

    def _moved(self, request: ServiceRequest, calls: tuple[str, ...]) -> str | None:
        """The handle behind this call, which knows more than the one before."""
        if self.ownership.owner is StorageOwner.GATEWAY:
            return None
        handle = request.handle or f"c-{request.context_id}" if self.ownership is BS else self._name("r")
        heard = self._heard.get(request.handle, frozenset()) | {in_words(item) for item in request.items}
        self._open[handle], self._heard[handle] = calls, heard
        return handle

    def _check(self, request: ServiceRequest) -> None:
        said = [in_words(item) for item in request.items]
        if len(set(said)) != len(said):
            self.complaints.append(f"said twice in one request: {said}")
        if self.ownership.owner is StorageOwner.GATEWAY:
            self._check_pairs(request)
            return
        outputs = tuple(item.call_id for item in request.items if isinstance(item, OutputItem))
        if outputs != self._open.get(request.handle, ()):
            self.complaints.append(f"open at {request.handle}: {self._open.get(request.handle)}, answered: {outputs}")
        again = self._heard.get(request.handle, frozenset()) & set(said)
        if again:
            self.complaints.append(f"said again on {request.handle}: {again}")

    def _check_pairs(self, request: ServiceRequest) -> None:
        """Calls, then their outputs in the same order, before anything else."""
        open_calls: list[str] = []
        answering = False
        for item in request.items:
            match item:
                case CallItem(call_id=call_id) if not answering:
                    open_calls.append(call_id)
                case OutputItem(call_id=call_id) if open_calls[:1] == [call_id]:
                    open_calls.pop(0)
                    answering = bool(open_calls)
                case _ if open_calls or isinstance(item, OutputItem | CallItem):
                    self.complaints.append(f"not in pairs: {[in_words(each) for each in request.items]}")
                    return
                case _:
                    pass
        if open_calls or not any(isinstance(item, UserItem) for item in request.items):
            self.complaints.append(f"without an end: {[in_words(each) for each in request.items]}")

    async def aclose(self) -> None:
        pass


class TurnRun:
    """Source and toolset of both processes. `begun` and `done` are the calls of which it was told, and their effects."""

    def __init__(self, chance: random.Random) -> None:
        self.begun: Counter[str] = Counter()
        self.done: Counter[str] = Counter()
        self._chance = chance

    def rules_in_force(self, rules: Sequence[ApprovalRule]) -> Sequence[ApprovalRule]:
        return rules

    async def offered(self) -> dict[str, OfferedTool]:
        declaration = ToolDeclaration("work", "Works.", {"type": "object"})
        return {"work": OfferedTool(declaration, "box.work", "test:box", "work", self, 60.0, lambda *_: None)}

    async def tools(self) -> tuple[SourceTool, ...]:
        return ()

    async def run(self, run: ToolRun) -> ToolOutput:
        self.begun[run.key] += 1
        await _others_come_first(self._chance)
        if self._chance.random() < 0.2:
            await asyncio.sleep(0.01)
        if self._chance.random() < 0.1:
            raise ValueError("broken")
        self.done[run.key] += 1
        return ToolOutput(run.key, error=self._chance.random() < 0.1)

    async def aclose(self) -> None:
        pass


async def _client(cores: tuple[Core, Core], chance: random.Random, name: str, tasks: list[str]) -> None:
    for number in range(STEPS):
        core = chance.choice(cores)
        with suppress(A2AError):
            match chance.random():
                case kind if kind < 0.25 and tasks:
                    await core.cancel(chance.choice(tasks[-6:]))
                case kind if kind < 0.35 and tasks:
                    await core.get(chance.choice(tasks))
                case kind:
                    text = f"{name}.{number}"
                    task = await core.send(text, context=chance.choice(CONTEXTS), at_once=kind < 0.8, message_id=text)
                    tasks.append(task.id)


@ALL
async def test_turns_that_two_processes_run_on_the_same_contexts_never_meet(
    tmp_path: Path, ownership: Ownership
) -> None:
    path, chance, tasks = tmp_path / "ledger.db", random.Random(7), list[str]()
    backend, work = StrictBackend(ownership, chance), TurnRun(chance)
    with capture_logs():
        async with (
            running_core(path, prefix="one", lease=QUICK) as one,
            running_core(path, prefix="two", lease=QUICK) as two,
        ):
            for core in (one, two):
                core.agent(backend, toolset=work, queued_turns=1000, parallel_tools=2)
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for number in range(CLIENTS):
                    group.create_task(_client((one, two), chance, str(number), tasks))
            async with asyncio.timeout(60):
                await one.runner.idle()
                await two.runner.idle()
            await until(lambda: query(path, "SELECT count(*) FROM turn WHERE ended_at IS NULL") == [(0,)])
            for task in tasks:
                assert (await one.get(task)).status.state in TERMINAL
    assert backend.complaints == []
    assert violations(path) == []
    assert set(work.begun.values()) <= {1}
    ended = dict(query(path, "SELECT id, status FROM tool_call WHERE executor = 'gateway'"))
    assert work.begun.keys() <= ended.keys()
    for call, status in ended.items():
        assert status in ("interrupted", "failed") or (call in work.begun) is (status == "completed"), (call, status)
    processes = query(path, "SELECT thread, count(DISTINCT process) FROM turn GROUP BY thread")
    assert [both for _, both in processes] == [2] * len(CONTEXTS)
    assert {"completed", "failed"} <= set(ended.values())


@ALL
async def test_136_a_lease_that_a_turn_left_behind_does_not_hold_up_the_turn_of_another_process(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    handle = "c" if ownership is BS else "r1"
    begins: Script = [CallStarted(handle)] if ownership is BS else []
    adapter = ScriptedAdapter(ownership, [*begins, *says("a", handle)], otherwise=lambda _: says("b", handle))
    async with (
        running_core(path, prefix="one", lease=QUICK) as one,
        running_core(path, prefix="two", lease=QUICK) as two,
    ):
        for core in (one, two):
            core.agent(adapter)
        lost = one.ledger.refuse(Finish)
        await one.send("1", context="c", at_once=True)
        await soon(lost.wait())
        await soon(one.runner.idle())
        between = await two.send("2", context="c", at_once=True)
        last = await one.send("3", context="c", at_once=True)
        await soon(two.runner.idle())
        await soon(one.runner.idle())
        for task in (between, last):
            assert (await one.get(task.id)).status.state is TaskState.COMPLETED


async def test_136_a_thread_that_another_process_catches_up_between_two_reads_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    adapter = ScriptedAdapter(BS, [CallStarted("c"), *says("a", "c")], otherwise=lambda _: says("b", "c"))
    async with running_core(path, lease=QUICK) as core:
        core.agent(adapter)
        lost = core.ledger.refuse(Finish)
        await core.send("1", context="c", at_once=True)
        await soon(lost.wait())
        await soon(core.runner.idle())
        # As if another process had stored what became of the call behind the read that found it.
        asked = core.ledger.answer_read("history", ())
        task = await soon(core.send("2", context="c"))
        assert (asked.is_set(), task.status.state) == (True, TaskState.COMPLETED)
    assert violations(path) == []


async def test_136_a_call_of_another_process_that_comes_in_doubt_behind_the_look_at_its_thread_is_looked_up(
    tmp_path: Path,
) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    cut = AdapterError(ErrorClass.INTERRUPTED, "the stream was cut")
    adapter = TailAdapter(says("b", "c"), found=[Tail(1, (TextDelta("a"), CallCompleted("c")))])
    async with (
        running_core(path, prefix="one", lease=QUICK) as one,
        running_core(path, prefix="two", lease=QUICK) as two,
    ):
        one.agent(TailAdapter([CallStarted("c"), TextDelta("a"), pause, cut]))
        two.agent(adapter)
        await one.send("1", context="c", at_once=True)
        await soon(pause.reached.wait())
        looking = two.ledger.slow_read("thread")
        second = await two.send("2", context="c", at_once=True)
        await soon(looking.reached.wait())
        pause.go.set()
        await until(lambda: query(path, "SELECT state, lease_holder FROM thread") == [("unsynced", None)])
        looking.go.set()
        await soon(two.runner.idle())
        assert (await two.get(second.id)).status.state is TaskState.COMPLETED
    assert len(adapter.asked) == 1
    assert query(path, "SELECT state FROM thread") == [("open",)]
    assert violations(path) == []


@ALL
async def test_133_a_turn_of_the_other_process_that_comes_between_two_of_this_one_is_not_waited_for_with_the_lease(
    tmp_path: Path, ownership: Ownership
) -> None:
    path, pause = tmp_path / "ledger.db", Pause()
    handle = "c" if ownership is BS else "r1"
    begins: Script = [CallStarted(handle)] if ownership is BS else []
    adapter = ScriptedAdapter(ownership, [*begins, pause, *says("a", handle)], otherwise=lambda _: says("b", handle))
    async with (
        running_core(path, prefix="one", lease=QUICK) as one,
        running_core(path, prefix="two", lease=QUICK) as two,
    ):
        for core in (one, two):
            core.agent(adapter)
        first = await one.send("1", context="c", at_once=True)
        await soon(pause.reached.wait())
        between = await two.send("2", context="c", at_once=True)
        last = await one.send("3", context="c", at_once=True)
        pause.go.set()
        await soon(one.runner.idle())
        await soon(two.runner.idle())
        for task in (first, between, last):
            assert (await one.get(task.id)).status.state is TaskState.COMPLETED
    assert [request.message.parts[0].text for request in adapter.requests] == ["1", "2", "3"]
