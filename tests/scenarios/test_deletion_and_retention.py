"""The end of contexts, and ids of a backend used by strangers. Source: docs/state-model.md, scenarios by their numbers."""

import asyncio
from collections.abc import Sequence

import pytest

from gateway.a2a.errors import InvalidParams, NotFound, TaskNotFound, UnsupportedOperation
from gateway.a2a.model import Message, Part, Role, SendMessageRequest, TaskState
from gateway.core.history import INTERRUPTED
from gateway.ledger.calls import Complete
from gateway.ledger.events import Frame
from gateway.ledger.retention import DeleteContext, ExpireContext, PurgeContext
from gateway.ledger.threads import Caller
from gateway.operations.contexts import ContextTransfer
from gateway.ports.adapter import AdapterError, CallCompleted, CallStarted, Ending, ErrorClass, TextDelta
from gateway.ports.conversation import Ownership
from tests.support.core import Core, answer, events, frames, logged, numbers, query, said, soon, states, until
from tests.support.deletions import DAY, DeletingAdapter, contexts, deletions, retention
from tests.support.scripted import BR, G, Pause, ScriptedAdapter, says

ADA = Caller("ada")
BOTH = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
ASKS = [CallCompleted("r", Ending.INPUT_REQUIRED, (Part(text="which?"),))]
CUT = AdapterError(ErrorClass.INTERRUPTED, "cut")
FOUND_EVERYWHERE = ("task", "turn", "input", "service_call", "history_item", "event")


def left(core: Core) -> list[str]:
    """The tables that hold anything of what was said."""
    return [table for table in FOUND_EVERYWHERE if query(core.path, f"SELECT 1 FROM {table}")]


def jobs(core: Core) -> list[str]:
    return [handle for (handle,) in query(core.path, "SELECT handle FROM delete_job ORDER BY handle")]


def text_of(read: Sequence[Frame]) -> str:
    [told] = events(read)
    assert told.task is not None
    return answer(told.task)


# --- callers who name ids of a backend ---


class Naming(ScriptedAdapter):
    """Its callers may know the backend's words."""

    def named_handle(self, message: Message) -> str | None:
        return (message.metadata or {}).get("previous_response_id")


def naming(handle: str, context: str | None = "c") -> SendMessageRequest:
    metadata = {"previous_response_id": handle}
    message = Message(message_id="m", context_id=context, role=Role.USER, parts=(Part(text="hi"),), metadata=metadata)
    return SendMessageRequest(message=message)


@pytest.mark.parametrize("context", ["c", "new", None])
@BOTH
async def test_26_a_caller_who_names_another_conversation_of_the_backend_is_refused(
    core: Core, ownership: Ownership, context: str | None
) -> None:
    adapter = Naming(ownership, says("A1", "r1"))
    core.agent(adapter)
    await core.send("1", context="c")
    before = query(core.path, "SELECT count(*) FROM input")
    with pytest.raises(InvalidParams, match=r"message\.metadata: 'r0' is not where this context stands"):
        await core.operations.send_message(core.call(), naming("r0", context))
    assert (len(adapter.requests), query(core.path, "SELECT count(*) FROM input")) == (1, before)


async def test_26_one_who_repeats_where_the_context_stands_is_heard(core: Core) -> None:
    adapter = Naming(BR, says("A1", "r1"), says("A2", "r2"))
    core.agent(adapter)
    await core.send("1", context="c")
    await core.operations.send_message(core.call(), naming("r1"))
    assert adapter.sent[1] == ("r1", ["U hi"])


async def test_26_a_context_id_that_looks_like_one_of_the_backends_is_none(core: Core) -> None:
    adapter = ScriptedAdapter(BR, says("A1", "r1"))
    core.agent(adapter)
    await core.send("1", context="resp_68ca", references=None)
    assert adapter.sent == [(None, ["U 1"])]


# --- handles ---


async def test_44_every_handle_that_was_ever_issued_is_kept_while_the_chain_moves(core: Core) -> None:
    core.agent(DeletingAdapter(BR, says("A1", "r1"), [CallStarted("r2"), TextDelta("hm"), CUT], says("A3", "r3")))
    for text in "123":
        await core.send(text, context="c")
    issued = query(core.path, "SELECT pending_handle, handle_out FROM service_call ORDER BY id")
    assert issued == [(None, "r1"), ("r2", None), (None, "r3")]


async def test_44_139_each_of_them_is_deleted_at_the_backend_with_its_context(core: Core) -> None:
    adapter = DeletingAdapter(BR, *(says("A", f"r{number}") for number in range(1, 6)))
    core.agent(adapter)
    for text in "12345":
        await core.send(text, context="c")
    await contexts(core).delete(ADA, "c")
    await soon(deletions(core).run_due())
    assert sorted(adapter.asked) == ["r1", "r2", "r3", "r4", "r5"]
    assert jobs(core) == []


# --- M. deletion ---


@BOTH
async def test_139_a_deleted_context_is_a_tombstone_and_nothing_of_it_is_left(core: Core, ownership: Ownership) -> None:
    core.agent(DeletingAdapter(ownership, says("A1", "r1")))
    task = await core.send("1", context="c")
    await contexts(core).delete(ADA, "c")
    assert left(core) == []
    assert query(core.path, "SELECT public_id, state FROM context") == [("c", "deleted")]
    with pytest.raises(UnsupportedOperation, match="The context 'c' is deleted"):
        await core.send("2", context="c")
    with pytest.raises(TaskNotFound):
        await core.get(task.id)
    assert jobs(core) == (["r1"] if ownership is BR else [])


async def test_139_the_backend_is_asked_again_until_it_has_forgotten(core: Core) -> None:
    down = AdapterError(ErrorClass.UNREACHABLE, "refused")
    gone = AdapterError(ErrorClass.HANDLE_NOT_FOUND, "HTTP 404")
    adapter = DeletingAdapter(BR, says("A1", "r1"), answers=(down, down, gone))
    core.agent(adapter)
    await core.send("1", context="c")
    await contexts(core).delete(ADA, "c")
    outbox = deletions(core)
    while (pause := await soon(outbox.run_due())) is not None:
        core.time.now += int(pause * 1000)
    assert (adapter.asked, jobs(core)) == (["r1"] * 3, [])


@BOTH
async def test_140_what_runs_is_cancelled_first_and_what_comes_late_is_not_stored(
    core: Core, ownership: Ownership
) -> None:
    pause = Pause()
    adapter = DeletingAdapter(ownership, [CallStarted("r1"), TextDelta("so "), pause, *says("late", "r1")])
    core.agent(adapter)
    running = await core.stream("1", context="c")
    await soon(pause.reached.wait())
    await soon(contexts(core).delete(ADA, "c"))
    assert states(await frames(running)) == ["WORKING", "CANCELED"]
    assert (left(core), adapter.broken_off) == ([], 1)
    assert jobs(core) == (["r1"] if ownership is BR else [])


async def test_140_an_answer_that_is_being_stored_is_stored_before_its_context_goes(core: Core) -> None:
    core.agent(DeletingAdapter(BR, says("A1", "r1")))
    gate = core.ledger.hold(Complete)
    stream = await core.stream("1", context="c")
    await soon(gate.reached.wait())
    async with asyncio.TaskGroup() as group:
        group.create_task(contexts(core).delete(ADA, "c"))
        await until(lambda: core.runner.runs_in(ADA, "c")[0].cancel_requested)
        core.ledger.let_go()
    assert (left(core), states(await frames(stream))[-1]) == ([], "COMPLETED")


@pytest.mark.parametrize("ends", ["fails", "is cancelled"])
async def test_141_the_handle_that_a_broken_call_left_is_deleted_and_the_chain_stays(core: Core, ends: str) -> None:
    pause = Pause()
    second = [CallStarted("r2"), TextDelta("hm"), CUT if ends == "fails" else pause]
    adapter = DeletingAdapter(BR, says("A1", "r1"), second, says("A3", "r3"))
    core.agent(adapter)
    await core.send("1", context="c")
    task = await core.send("2", context="c", at_once=True)
    if ends == "is cancelled":
        await soon(pause.reached.wait())
        await core.cancel(task.id)
    await soon(core.runner.idle())
    await soon(deletions(core).run_due())
    assert adapter.asked == ["r2"]
    await core.send("3", context="c")
    notes = [f"U {INTERRUPTED}hm"] if ends == "is cancelled" else []
    assert adapter.sent[2] == ("r1", ["U 2", *notes, "U 3"])


# --- M. retention ---


@BOTH
async def test_142_a_context_over_its_time_answers_with_an_explicit_error(core: Core, ownership: Ownership) -> None:
    core.agent(DeletingAdapter(ownership, says("A1", "r1"), says("A2", "r2"), says("A3", "r3")))
    old = await core.send("1", context="old")
    core.time.now += 60 * DAY
    await core.send("2", context="young")
    core.time.now += 31 * DAY
    await retention(core).sweep()
    with pytest.raises(UnsupportedOperation, match="The context 'old' is expired"):
        await core.send("again", context="old")
    with pytest.raises(TaskNotFound):
        await core.get(old.id)
    with pytest.raises(NotFound):
        await ContextTransfer(core.ledger, core.time.clock).export(ADA, "old")
    assert answer(await core.send("3", context="young")) == "A3"
    assert query(core.path, "SELECT public_id, state FROM context ORDER BY id") == [
        ("old", "expired"),
        ("young", "open"),
    ]
    assert jobs(core) == (["r1"] if ownership is BR else [])
    assert query(core.path, "SELECT count(*) FROM history_item") == [(4,)]


async def test_142_a_context_that_is_used_lives_on(core: Core) -> None:
    adapter = ScriptedAdapter(G, *(says(f"A{number}") for number in range(1, 4)))
    core.agent(adapter)
    for _ in range(2):
        await core.send("1", context="c")
        core.time.now += 60 * DAY
        await retention(core).sweep()
    await core.send("2", context="c")
    assert adapter.sent[2] == (None, ["U 1", "A A1", "U 1", "A A2", "U 2"])


async def test_142_a_message_that_comes_in_between_keeps_its_context(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("A1"), says("A2")))
    await core.send("1", context="c")
    core.time.now += 91 * DAY
    reading = core.ledger.slow_read("aged_contexts")
    async with asyncio.TaskGroup() as group:
        group.create_task(retention(core).sweep())
        await soon(reading.reached.wait())
        await core.send("2", context="c")
        reading.go.set()
    assert query(core.path, "SELECT state FROM context") == [("open",)]


async def test_142_who_waits_in_a_context_that_expires_sees_it_end(core: Core) -> None:
    core.agent(ScriptedAdapter(G, ASKS))
    task = await core.send("1", context="c")
    watching = await core.subscribe(task.id)
    core.time.now += 91 * DAY
    await soon(retention(core).sweep())
    assert states(await frames(watching)) == ["INPUT_REQUIRED", "CANCELED"]
    assert left(core) == []


async def test_142_an_expiry_that_was_broken_off_is_finished_later(core: Core) -> None:
    core.agent(DeletingAdapter(BR, says("A1", "r1")))
    await core.send("1", context="c")
    core.time.now += 91 * DAY
    core.ledger.refuse(PurgeContext, error=RuntimeError("killed"))
    with pytest.raises(RuntimeError, match="killed"):
        await retention(core).sweep()
    assert core.ledger.stored(ExpireContext)
    assert left(core) != []
    with pytest.raises(UnsupportedOperation, match="The context 'c' is expired"):
        await core.send("2", context="c")
    assert (await core.list()).total_size == 0
    await retention(core).sweep()
    assert (left(core), jobs(core)) == ([], ["r1"])


async def test_142_a_deleted_context_does_not_expire_as_well(core: Core) -> None:
    core.agent(ScriptedAdapter(G, says("A1")))
    await core.send("1", context="c")
    await contexts(core).delete(ADA, "c")
    core.time.now += 91 * DAY
    await retention(core).sweep()
    assert query(core.path, "SELECT state FROM context") == [("deleted",)]
    assert len(core.ledger.stored(DeleteContext)) == 1


@BOTH
async def test_142_a_task_over_its_time_is_not_found_and_the_conversation_knows_it_still(
    core: Core, ownership: Ownership
) -> None:
    adapter = ScriptedAdapter(ownership, says("A1", "r1"), says("A2", "r2"))
    core.agent(adapter)
    task = await core.send("1", core.call(key="k"), context="c")
    core.time.now += 31 * DAY
    await retention(core).sweep()
    for missing in (core.get(task.id), core.subscribe(task.id), core.cancel(task.id), core.send("x", task=task.id)):
        with pytest.raises(TaskNotFound):
            await missing
    assert ((await core.list()).tasks, logged(core.path, task.id)) == ((), [])
    second = await core.send("1", core.call(key="k"), context="c")
    assert (second.id != task.id, said(second)) == (True, ["U 1"])
    assert adapter.sent[1] == (("r1", ["U 1"]) if ownership is BR else (None, ["U 1", "A A1", "U 1"]))


async def test_142_a_stream_whose_events_are_over_their_time_is_the_whole_task(core: Core) -> None:
    core.agent(ScriptedAdapter(G, [TextDelta("a"), None, None, *says("b")]))
    task = await core.send("1")
    before = await frames(await core.subscribe(task.id, core.call(last=2)))
    core.time.now += 8 * DAY
    await retention(core).sweep()
    assert (await core.get(task.id)) == task
    for last in (0, 2, numbers(before)[-1]):
        resumed = await frames(await core.subscribe(task.id, core.call(last=last)))
        assert (text_of(resumed), states(resumed)) == ("ab", ["COMPLETED"])
    with pytest.raises(InvalidParams, match="Last-Event-ID: 99 is beyond the task's last event"):
        await core.subscribe(task.id, core.call(last=99))


async def test_142_what_still_runs_or_waits_keeps_its_events(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, ASKS, [TextDelta("so "), None, pause, *says("on")]))
    waiting = await core.send("1")
    core.time.now += 31 * DAY
    running = await core.send("2", at_once=True)
    await soon(pause.reached.wait())
    core.time.now += 8 * DAY
    await retention(core).sweep()
    asked = await core.subscribe(waiting.id, core.call(last=0))
    resumed = await core.subscribe(running.id, core.call(last=0))
    pause.go.set()
    assert states(await frames(resumed)) == ["WORKING", "COMPLETED"]
    await core.cancel(waiting.id)
    assert states(await frames(asked)) == ["WORKING", "INPUT_REQUIRED", "CANCELED"]
    assert (await core.get(running.id)).status.state is TaskState.COMPLETED
