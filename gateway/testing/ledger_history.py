"""The part of the conformance suite on threads and their history, whole or the end of it. Law: it knows no store."""

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.a2a.model import Json, Message, Part, Role, TaskState
from gateway.core.history import Window, project
from gateway.ledger.calls import (
    RESTARTED,
    Complete,
    DropPartial,
    GiveBack,
    LatestCall,
    MarkRefused,
    MeasuredCall,
    NameCall,
    NewItem,
    SetAside,
)
from gateway.ledger.errors import Conflict
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.states import ServiceCallStatus
from gateway.ledger.tasks import Finish
from gateway.ledger.threads import (
    BeginEpoch,
    ConfirmHandle,
    Displace,
    MarkHandleLost,
    MarkSynced,
    MarkUnsynced,
    RevertIfDisplaced,
    Rewind,
)
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    HandleKind,
    HistoryRecord,
    Item,
    OpaqueItem,
    OutputItem,
    Ownership,
    ReasoningItem,
    StorageOwner,
    UserItem,
)
from gateway.testing.checks import require, same
from gateway.testing.ledger_points import (
    ACCEPT,
    COMPLETE,
    FAIL,
    FINISH,
    FIRST_TURN,
    FOLLOW_UP,
    PREPARE,
    THREAD,
    says,
)
from gateway.testing.ledger_talk import Talk, answer

_G = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)
_VALUES: list[Json] = [
    None, "", [], {}, 0, -0.0, 2**63, -(2**200), 1e308, 5e-324, True, "null", "\x00\u2028\U0001f600",
    {"": None, "a": [None, {"b": ""}]},
]  # fmt: skip
_ENDED = replace(FINISH, events=None)


async def _recent(
    ledger: Ledger, turn: int, messages: int | None = None, weight: int | None = None, *, opaque: bool = False
) -> tuple[HistoryRecord, ...]:
    return await ledger.recent_history("thread-1", f"turn-{turn}", messages=messages, weight=weight, opaque=opaque)


def _numbers(records: tuple[HistoryRecord, ...]) -> list[int]:
    return sorted({record.turn for record in records})


def _next(number: int) -> CommitPoint:
    return replace(FOLLOW_UP, task=f"task-{number}", turn=f"turn-{number}", new_task=True, event=None, last_event=0)


def _prepare(number: int, generation: int, handle: str | None) -> CommitPoint:
    turn = replace(PREPARE, turn=f"turn-{number}", task=f"task-{number}", service_call=f"call-{number}", event=None)
    return replace(turn, generation=generation, handle_in=handle)


def _complete(number: int, generation: int, handle: str | None, *sent: int) -> Complete:
    said = replace(COMPLETE, items=(NewItem(answer("so")),), tool_calls=(), sent=sent, generation=generation)
    call = replace(said, turn=f"turn-{number}", service_call=f"call-{number}")
    return replace(call, handle_in=handle, handle_out=f"resp-{number}")


def _ends(number: int, status: str) -> Finish:
    states = {"cancelled": TaskState.CANCELED, "failed": TaskState.FAILED, "rejected": TaskState.REJECTED}
    state = states.get(status, TaskState.COMPLETED)
    return replace(_ENDED, task=f"task-{number}", turn=f"turn-{number}", status=status, state=state)


class HistoryTests:
    """A part of `LedgerSuite`."""

    async def test_history_is_in_order_of_turns_whatever_was_stored_first(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, FOLLOW_UP, replace(PREPARE, event=None), COMPLETE)
        mine = HistoryRecord(1, 1, UserItem(says("hi")), sent_in="call-1", turn_id="turn-1")
        theirs = replace(mine, service_call="call-1")
        call = replace(theirs, position=3, item=CallItem("fc-1", "add", "{}"), provider_id="item-1", sequence=0)
        output = replace(theirs, position=4, item=OutputItem("fc-1", ""), sequence=0)
        said = replace(theirs, position=5, item=answer("hello"))
        later = HistoryRecord(2, 2, UserItem(says("more")), turn_id="turn-2")
        same(await ledger.history("thread-1", unsent_only=False), (mine, call, output, said, later))

    async def test_unsent_are_messages_and_outputs_that_no_completed_call_carried(self, ledger: Ledger) -> None:
        kept = (
            NewItem(CallItem("c", "f", "{}")), NewItem(OutputItem("c", 1)), NewItem(answer("hel"), replayable=False),
        )  # fmt: skip
        await ledger.commit(ACCEPT, PREPARE, replace(FAIL, items=kept))
        message = HistoryRecord(1, 1, UserItem(says("hi")), turn_id="turn-1")
        output = HistoryRecord(3, 1, OutputItem("c", 1), turn_id="turn-1", service_call="call-1")
        same(await ledger.history("thread-1", unsent_only=True), (message, output))
        again = replace(PREPARE, generation=1, attempt=1, service_call="call-2", event=None)
        await ledger.commit(again, replace(COMPLETE, service_call="call-2", sent=(1, 3)))
        same(await ledger.history("thread-1", unsent_only=True), ())

    @pytest.mark.parametrize("value", _VALUES, ids=repr)
    async def test_json_comes_back_as_it_was(self, ledger: Ledger, value: Any) -> None:
        items: tuple[Item, ...] = (
            OutputItem("", value),
            ReasoningItem("", opaque=value),
            OpaqueItem("kind", {"value": value}),
            AssistantItem((Part(data=value), Part(text=""), Part(text="x", metadata={"": value}))),
        )
        message = Message(message_id="", role=Role.USER, parts=(Part(data=value),), metadata={"k": value})
        await ledger.commit(replace(ACCEPT, message=message), PREPARE)
        await ledger.commit(replace(COMPLETE, items=tuple(map(NewItem, items)), tool_calls=(), state=[value]))
        history = await ledger.history("thread-1", unsent_only=False)
        same(repr([record.item for record in history]), repr([UserItem(message), *items]))
        thread = await ledger.thread("thread-1")
        same(repr(thread and thread.adapter_state), repr([value]))

    async def test_what_a_backend_refused_is_left_out_and_what_was_set_aside_can_come_back(
        self, ledger: Ledger
    ) -> None:
        await ledger.commit(ACCEPT, PREPARE, COMPLETE, _ENDED, _next(2), _prepare(2, 2, "resp-1"))

        async def refused() -> list[int]:
            found = await ledger.history("thread-1", unsent_only=False)
            out = [record for record in found if record.refused_in is not None]
            require(not any(record.replayable for record in out), f"found {out!r}, to be sent again")
            return [record.position for record in out]

        await ledger.commit(MarkRefused("thread-1", "call-2", (1, 5)))
        same(await refused(), [5])
        await ledger.commit(SetAside("thread-1", "call-2", (1, 2, 3, 4)))
        same(await refused(), [1, 2, 3, 4, 5])
        await ledger.commit(GiveBack("thread-1", (1, 2, 3, 4)))
        same(await refused(), [5])

    async def test_the_kept_part_of_an_answer_goes_when_the_whole_is_found(self, ledger: Ledger) -> None:
        part = NewItem(answer("hel"))
        await ledger.commit(ACCEPT, PREPARE, replace(FAIL, status=ServiceCallStatus.UNKNOWN, items=(part,)))
        await ledger.commit(DropPartial("thread-1", "call-1"))
        left = await ledger.history("thread-1", unsent_only=False)
        same([record.item for record in left if record.replayable], [UserItem(says("hi"))])

    # --- calls and handles

    async def test_the_latest_call_of_a_turn_comes_with_where_it_began_and_how_often_it_was_made_again(
        self, ledger: Ledger
    ) -> None:
        await ledger.commit(ACCEPT, PREPARE)
        first = LatestCall("call-1", 0, 0, ServiceCallStatus.PREPARED, None, None, 0, False)
        same(await ledger.latest_call("turn-1"), first)
        again = replace(PREPARE, generation=1, attempt=1, service_call="call-2", event=None)
        await ledger.commit(replace(FAIL, error_class=RESTARTED), again, NameCall("call-2", "resp-1", "run-1"))
        second = LatestCall("call-2", 0, 1, ServiceCallStatus.STARTED, "resp-1", None, 1, False, "run-1")
        same(await ledger.latest_call("turn-1"), second)
        await ledger.commit(NameCall("call-2", None, None))
        same(await ledger.latest_call("turn-1"), second)
        same(await ledger.latest_call("turn-2"), None)

    async def test_the_latest_completed_calls_have_their_weight_and_usage(self, ledger: Ledger) -> None:
        talk = Talk()
        for number in range(1, 11):
            talk.accept("q")
            talk.run(usage={"input_tokens": number}, weight=number * 4, fails=number == 9)
        await ledger.commit(*talk.points)
        measured = await ledger.measured_calls("thread-1")
        require(len(measured) >= 2, f"found {len(measured)} calls, not a few")
        wanted = [MeasuredCall(n * 4, {"input_tokens": n}) for n in (10, *range(8, 0, -1))]
        same(list(measured), wanted[: len(measured)])

    async def test_a_lost_handle_stays_and_a_new_epoch_begins_without_it(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        history = await ledger.history("thread-1", unsent_only=False)
        epoch = BeginEpoch("thread-1", 2, "thread-old", StorageOwner.BACKEND, HandleKind.ROTATING, None, "lost", 1)
        for late in (MarkHandleLost("thread-1", 1), replace(epoch, generation=1)):
            with pytest.raises(Conflict):
                await ledger.commit(late)
        await ledger.commit(MarkHandleLost("thread-1", 2))
        known = replace(THREAD, handle="resp-1", generation=2, adapter_state={"seen": 1})
        same(await ledger.thread("thread-1"), replace(known, lost=True))
        await ledger.commit(epoch)
        same(await ledger.thread("thread-1"), replace(THREAD, epoch=2, generation=3))
        again = replace(epoch, generation=3, closed="thread-older", handle="resp-9")
        await ledger.commit(again)
        same(await ledger.thread("thread-1"), replace(THREAD, epoch=3, generation=4, handle="resp-9"))
        same(await ledger.history("thread-1", unsent_only=False), history)

    @pytest.mark.parametrize("handle", [None, "conv-1"])
    async def test_a_conversation_is_confirmed_on_a_thread_that_has_none(
        self, ledger: Ledger, handle: str | None
    ) -> None:
        static = replace(THREAD, handle_kind=HandleKind.STATIC, handle=handle)
        await ledger.commit(replace(ACCEPT, thread=static), PREPARE)
        confirm = ConfirmHandle("thread-1", 1, "conv-2")
        if handle is None:
            await ledger.commit(confirm)
            same(await ledger.thread("thread-1"), replace(static, handle="conv-2", generation=2))
        else:
            with pytest.raises(Conflict):
                await ledger.commit(confirm)

    async def test_a_thread_whose_call_nobody_heard_of_is_unsynced_until_it_is_looked_up(self, ledger: Ledger) -> None:
        cancelled = replace(_ENDED, status="cancelled", state=TaskState.CANCELED)
        await ledger.commit(ACCEPT, PREPARE, NameCall("call-1", "resp-1", "run-1"), cancelled)
        await ledger.commit(MarkUnsynced("thread-1", "turn-1"))
        thread, call = await ledger.thread("thread-1"), await ledger.unknown_call("thread-1")
        require(thread is not None and thread.unsynced, f"found {thread!r}, not an unsynced thread")
        named = call and (call.id, call.turn, call.round, call.pending, call.run)
        same(named, ("call-1", "turn-1", 0, "resp-1", "run-1"))
        await ledger.commit(MarkSynced("thread-1", 1))
        thread = await ledger.thread("thread-1")
        require(thread is not None and not thread.unsynced, f"found {thread!r}, not a synced thread")

    async def test_an_unsynced_thread_takes_no_call_before_it_is_looked_up(self, ledger: Ledger) -> None:
        cancelled = replace(_ENDED, status="cancelled", state=TaskState.CANCELED)
        await ledger.commit(ACCEPT, PREPARE, NameCall("call-1", "resp-1"), cancelled, _next(2))
        await ledger.commit(MarkUnsynced("thread-1", "turn-1"))
        with pytest.raises(Conflict):
            await ledger.commit(_prepare(2, 1, None))
        await ledger.commit(MarkSynced("thread-1", 1), _prepare(2, 1, None))
        require(await ledger.latest_call("turn-2") is not None, "the call was not prepared")

    # --- turns that do not count

    async def test_what_has_not_ended_before_a_turn_is_displaced_and_nothing_else(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN[:-1], _ENDED, *(_next(n) for n in (2, 3, 4, 5)))
        await ledger.commit(Displace("thread-1", "turn-4"))
        same(set(await ledger.cancel_requests("process-1")), {"task-2", "task-3"})
        await ledger.commit(Displace("thread-1", "turn-4", itself=True))
        same(set(await ledger.cancel_requests("process-1")), {"task-2", "task-3", "task-4"})

    @pytest.mark.parametrize(("status", "out"), [("cancelled", True), ("failed", True), ("completed", False)])
    async def test_a_displaced_turn_is_left_out_unless_it_completes(
        self, ledger: Ledger, status: str, out: bool
    ) -> None:
        await ledger.commit(*FIRST_TURN[:-1], _ENDED, _next(2), _next(3), Displace("thread-1", "turn-3"))
        running = await ledger.history("thread-1", unsent_only=False)
        same([record.turn_id for record in running if record.displaced], [])
        await ledger.commit(_ends(2, status))
        ended = await ledger.history("thread-1", unsent_only=False)
        same({record.turn_id for record in ended if record.displaced}, {"turn-2"} if out else set())

    @pytest.mark.parametrize("way", ["displaced", "rewound"])
    async def test_a_chain_goes_back_to_where_the_turn_began_and_what_it_carried_of_others_is_due_again(
        self, ledger: Ledger, way: str
    ) -> None:
        """Turn 3 failed before its request was sent, so that turn 4 carried its message."""
        await ledger.commit(*FIRST_TURN[:-1], _ENDED, *(_next(n) for n in (2, 3, 4, 5)))
        await ledger.commit(_prepare(2, 2, "resp-1"), _complete(2, 3, "resp-1", 5), _ends(2, "completed"))
        await ledger.commit(_prepare(3, 4, "resp-2"), _ends(3, "failed"))
        await ledger.commit(_prepare(4, 5, "resp-2"), _complete(4, 6, "resp-2", 6, 7))
        await ledger.commit(Displace("thread-1", "turn-5"), _ends(4, "cancelled"))
        back = RevertIfDisplaced("thread-1", "turn-4", 1)
        await ledger.commit(back if way == "displaced" else Rewind("thread-1", "turn-4", "resp-2", 1))
        unsent = await ledger.history("thread-1", unsent_only=True)
        same([record.turn_id for record in unsent if not record.displaced], ["turn-3", "turn-5"])
        thread = await ledger.thread("thread-1")
        require(thread is not None and thread.handle == "resp-2", f"found {thread!r}, not the handle resp-2")
        same([job.handle for job in await ledger.deletions(10)], ["resp-4"])

    async def test_outputs_that_a_displaced_turn_carried_are_due_again(self, ledger: Ledger) -> None:
        output = NewItem(OutputItem("c", "x"), unsent=True)
        first = replace(_complete(1, 1, None, 1), items=(NewItem(answer("so")), output))
        await ledger.commit(ACCEPT, PREPARE, first, _ENDED, _next(2), _next(3))
        await ledger.commit(_prepare(2, 2, "resp-1"), _complete(2, 3, "resp-1", 3, 4))
        await ledger.commit(Displace("thread-1", "turn-3"), _ends(2, "cancelled"))
        await ledger.commit(RevertIfDisplaced("thread-1", "turn-2", 1))
        unsent = await ledger.history("thread-1", unsent_only=True)
        told = [(record.turn_id, type(record.item)) for record in unsent if not record.displaced]
        same(told, [("turn-1", OutputItem), ("turn-3", UserItem)])

    async def test_an_unknown_call_says_whether_its_turn_was_displaced(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN[:-1], _ENDED, _next(2), _next(3), _prepare(2, 2, "resp-1"))
        await ledger.commit(Displace("thread-1", "turn-3"), _ends(2, "cancelled"), MarkUnsynced("thread-1", "turn-2"))
        call = await ledger.unknown_call("thread-1")
        require(call is not None and call.displaced, f"found {call!r}, not one of a displaced turn")

    async def test_the_items_of_a_turn_say_that_it_failed(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN[:-1], replace(_ENDED, status="failed"), _next(2))
        items = await ledger.history("thread-1", unsent_only=False)
        same([item.failed for item in items], [True] * 4 + [False])

    # --- the end of it

    async def test_as_many_whole_turns_come_as_the_window_needs(self, ledger: Ledger) -> None:
        talk = Talk()
        for number in range(1, 6):
            talk.turn(f"q{number}", answer(f"a{number}"))
        await ledger.commit(*talk.points)
        whole = await ledger.history("thread-1", unsent_only=False)
        same(await _recent(ledger, 5), whole)
        same(await _recent(ledger, 5, 100, 10_000), whole)
        for window, items in (((2, None), 2), ((3, None), 4), ((None, 1), 2), ((None, 36), 2), ((None, 37), 4)):
            same(await _recent(ledger, 5, *window), whole[-items:])

    async def test_the_running_turn_comes_whole_although_queued_turns_have_later_items(self, ledger: Ledger) -> None:
        talk = Talk()
        talk.turn("q1", answer("a1"))
        for number in (2, 3, 4, 5):
            talk.accept(f"q{number}")
        talk.run(*[answer("x" * 100)] * 20)
        await ledger.commit(*talk.points)
        for turn in (2, 3, 5):
            same(_numbers(await _recent(ledger, turn, messages=1)), [2, 3, 4, 5])
        same(_numbers(await _recent(ledger, 3, messages=23)), [1, 2, 3, 4, 5])

    async def test_what_is_not_sent_takes_no_room(self, ledger: Ledger) -> None:
        talk = Talk()
        talk.turn("q1", answer("a1"))
        talk.turn("q2", ReasoningItem("h" * 1000), answer("a2"))
        talk.accept("q3")
        talk.run(answer("c" * 1000), fails=True)
        talk.accept("q4" * 1000)
        talk.accept("q5")
        await ledger.commit(*talk.points, Displace("thread-1", "turn-5"), _ends(4, "cancelled"))
        same(_numbers(await _recent(ledger, 5, weight=100)), [1, 2, 3, 4, 5])
        same(_numbers(await _recent(ledger, 5, weight=100, opaque=True)), [2, 3, 4, 5])

    @pytest.mark.parametrize("seed", range(4))
    async def test_a_view_of_the_end_is_the_view_of_the_whole(self, ledger: Ledger, seed: int) -> None:
        random, talk, waiting, last = Random(seed), Talk(), 0, 0  # noqa: S311  # the same thread each time
        for _ in range(60):
            if waiting and random.random() < 0.6:
                waiting -= 1
                said = [answer("a" * random.choice((0, 1, 50, 400))) for _ in range(random.randrange(4))]
                talk.run(*said, ReasoningItem("r" * random.randrange(300)), fails=random.random() < 0.2)
            else:
                waiting, last = waiting + 1, last + 1
                talk.accept("q" * random.choice((1, 30, 300)))
        await ledger.commit(*talk.points)
        whole = await ledger.history("thread-1", unsent_only=False)
        shorter = 0
        for turn in range(max(1, last - 8), last + 1):
            for messages, weight in (
                (1, None),
                (5, None),
                (17, None),
                (None, 50),
                (None, 500),
                (9, 1500),
                (None, None),
            ):
                read, window = await _recent(ledger, turn, messages, weight), Window(messages, weight)
                view = project(_G, whole, f"turn-{turn}", window)
                require(project(_G, read, f"turn-{turn}", window) == view, f"{window} of turn {turn} is another view")
                shorter += len(read) < len(whole)
        require(shorter > 0, "the whole thread was read for every window")
