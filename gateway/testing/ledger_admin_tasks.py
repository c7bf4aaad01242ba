"""The part of the conformance suite on tasks and upkeep as operators see them. Law: it knows no store."""

import msgspec
from msgspec.structs import replace

from gateway.a2a.model import Message, Part, Role, TaskState
from gateway.foundation.clock import earliest_row_id
from gateway.ledger.admin.contexts import PlaceKind, ThreadTurn
from gateway.ledger.admin.reads import PREVIEW
from gateway.ledger.admin.timelines import Body, BodyKey, EventLine, Timeline
from gateway.ledger.admin.upkeep import (
    CallTime,
    DeliveryFilter,
    DeliveryKey,
    FailedTurn,
    FailureFact,
    FailureKey,
    HandleDeletion,
    OpenCount,
    ToolTime,
)
from gateway.ledger.calls import NewItem, NewToolCall
from gateway.ledger.duties import TakeDuty
from gateway.ledger.leases import Heartbeat, TakeOver
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.push import ClaimPush, FailPush, PushState, PutPushConfig
from gateway.ledger.retention import MoveDeletion
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus, TurnStatus
from gateway.ledger.tasks import Append, EventRow, Usage
from gateway.ledger.threads import DeleteOrphan, MarkHandleLost
from gateway.ports.conversation import AssistantItem, CallItem, OutputItem, ReasoningItem
from gateway.testing.checks import require, same
from gateway.testing.ledger_points import (
    ACCEPT,
    APPEND,
    COMPLETE,
    ELSEWHERE,
    FAIL,
    FINISH,
    FIRST_TURN,
    FOLLOW_UP,
    PREPARE,
    PUT,
    says,
)

_TOOL = NewToolCall(
    "tool-1", 0, "fc-1", "add", '{"a":1}', "backend", ToolCallStatus.COMPLETED, {"sum": 3},
    server="math", asked_at=1150, started_at=1160, ended_at=1190,
)  # fmt: skip
_CALLED = replace(
    COMPLETE,
    items=(
        NewItem(ReasoningItem("let me add")),
        NewItem(CallItem("fc-1", "add", '{"a":1}'), tool_call="tool-1"),
        NewItem(OutputItem("fc-1", "3"), tool_call="tool-1"),
        NewItem(AssistantItem((Part(text="3"),))),
    ),
    tool_calls=(_TOOL,),
    first_at=1130,
)
_FAILED: tuple[CommitPoint, ...] = (
    ACCEPT,
    PREPARE,
    replace(FAIL, items=()),
    APPEND,
)
_FAILED_END = replace(FINISH, status=TurnStatus.FAILED, failure_class="timed-out", state=TaskState.FAILED)


async def _failures_and_turns(ledger: Ledger) -> tuple[tuple[FailedTurn, ...], tuple[ThreadTurn, ...]]:
    failures, turns = await ledger.admin.failures("acme"), await ledger.admin.turns("acme", "thread-1")
    return failures.turns, () if turns is None else turns.turns


async def _timeline(ledger: Ledger, task: str = "task-1", after: int = 0) -> Timeline:
    found = await ledger.admin.timeline("acme", task, after)
    if found is None:
        raise AssertionError(f"there is no {task}")
    return found


class AdminTaskTests:
    """A part of `LedgerSuite`."""

    # --- the timeline

    async def test_a_timeline_has_all_rows_of_a_turn_without_their_long_texts(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE, _CALLED, APPEND, replace(FINISH, usage=Usage(input_tokens=5)))
        found = await _timeline(ledger)
        same((found.task.context, found.task.context_id, found.task.principal), ("context-1", "public-1", "ada"))
        same((found.task.state, found.task.first_event, found.task.last_event), (TaskState.COMPLETED, 1, 6))
        [turn], [message], [call], [tool] = found.turns, found.messages, found.calls, found.tools
        same((turn.status, turn.accepted_at, turn.started_at, turn.ended_at), (TurnStatus.COMPLETED, 1000, 1100, 1300))
        same(msgspec.json.decode(turn.usage or ""), {"inputTokens": 5})
        same((message.turn, message.ordinal, message.message_id, message.received_at), ("turn-1", 0, "m", 1000))
        same(
            (call.status, call.prepared_at, call.first_at, call.ended_at),
            (ServiceCallStatus.COMPLETED, 1100, 1130, 1200),
        )
        same((call.handle_in, call.handle_out), (None, "resp-1"))
        same(
            (tool.id, tool.call, tool.turn, tool.external_id, tool.name), ("tool-1", "call-1", "turn-1", "fc-1", "add")
        )
        same((tool.status, tool.server, tool.executor), (ToolCallStatus.COMPLETED, "math", "backend"))
        same((tool.asked_at, tool.started_at, tool.ended_at), (1150, 1160, 1190))
        same([(item.kind, item.call) for item in found.items], [("reasoning", "call-1"), ("assistant", "call-1")])
        same((found.notes, found.whole, found.after, found.cut), ((), 1, None, frozenset()))

    async def test_a_task_of_another_tenant_does_not_exist(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        same(await ledger.admin.task_head("other", "task-1"), None)
        same(await ledger.admin.timeline("other", "task-1"), None)
        same(await ledger.admin.task_events("other", "task-1"), None)
        same(await ledger.admin.event("other", "task-1", 1), None)
        for key in (BodyKey("message", "turn-1"), BodyKey("item", "thread-1", 2), BodyKey("arguments", "tool-1")):
            same(await ledger.admin.body("other", key), None)

    async def test_the_items_of_a_turn_are_found_in_a_long_thread(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE, _CALLED, APPEND, FINISH)
        for number in range(2, 12):
            await ledger.commit(*_turn(number))
        for number in (2, 7, 11):
            found = await _timeline(ledger, f"task-{number}")
            same([(item.turn, item.kind) for item in found.items], [(f"turn-{number}", "assistant")])

    async def test_turns_of_a_long_task_come_in_pages(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE, _CALLED, APPEND, replace(FINISH, state=None))
        for number in range(2, 53):
            await ledger.commit(*_turn(number, task="task-1"))
        first = await _timeline(ledger)
        same((len(first.turns), first.after, first.whole), (50, 50, 52))
        rest = await _timeline(ledger, after=50)
        same(([turn.number for turn in rest.turns], rest.after), ([51, 52], None))
        same([call.id for call in rest.calls], ["call-51", "call-52"])

    async def test_a_take_over_is_noted(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE)
        await ledger.commit(TakeOver("thread-1", 1, "process-2", 20_000, "turn-1", 9001))
        [note] = (await _timeline(ledger)).notes
        same((note.turn, note.at, note.kind, note.detail), ("turn-1", 9001, "taken-over", "process-2"))

    # --- long texts

    async def test_long_texts_are_read_one_by_one_and_in_pieces(self, ledger: Ledger) -> None:
        long = "x" * 100_000
        await ledger.commit(replace(ACCEPT, message=says(long)), PREPARE, _CALLED, APPEND, FINISH)
        key = BodyKey("message", "turn-1")
        first = await ledger.admin.body("acme", key)
        require(first is not None and len(first.text) == 65_536 and first.next == 65_536, f"found {first!r:.200}")
        rest = await ledger.admin.body("acme", key, 65_536)
        whole = (first.text if first else "") + (rest.text if rest else "")
        require(long in whole and rest is not None and rest.next is None, "the pieces are not the whole")
        same(len(whole), first.length if first else None)
        for other, text in (
            (BodyKey("arguments", "tool-1"), '{"a":1}'),
            (BodyKey("outcome", "tool-1"), '{"sum":3}'),
            (BodyKey("artifacts", "turn-1"), FINISH.artifacts.decode()),
            (BodyKey("said", "turn-1"), "[]"),
            (BodyKey("usage", "call-1"), '{"tokens":7}'),
        ):
            same(await ledger.admin.body("acme", other), Body(text, 0, len(text)))
        same(await ledger.admin.body("acme", BodyKey("usage", "call-9")), None)
        same(await ledger.admin.body("acme", BodyKey("item", "thread-1", 99)), None)

    async def test_many_texts_are_previewed_at_once(self, ledger: Ledger) -> None:
        await ledger.commit(replace(ACCEPT, message=says("y" * 1000)), PREPARE, _CALLED, APPEND, FINISH)
        keys = (
            BodyKey("message", "turn-1"),
            BodyKey("arguments", "tool-1"),
            BodyKey("item", "thread-1", 2),
            BodyKey("item", "thread-1", 5),
            BodyKey("usage", "call-9"),
            BodyKey("outcome", "none"),
        )
        found = await ledger.admin.previews("acme", keys)
        same({*found}, {*keys[:4]})
        same([len(found[key].text) for key in keys[:2]], [PREVIEW, 7])
        require("let me add" in found[keys[2]].text, f"found {found[keys[2]]}")
        same(await ledger.admin.previews("acme", ()), {})

    # --- events

    async def test_events_come_in_pages_of_a_number_and_a_size(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        page = await ledger.admin.task_events("acme", "task-1", limit=4)
        found = [(event.number, event.payload) for event in page.events] if page else None
        same(found, [(number, b'{"n":%d}' % number) for number in range(1, 5)])
        same((page and page.after, page and page.last), (4, 6))
        rest = await ledger.admin.task_events("acme", "task-1", 4)
        same([event.number for event in rest.events] if rest else None, [5, 6])
        same((rest and rest.after, await ledger.admin.event("acme", "task-1", 4)), (None, b'{"n":4}'))

    async def test_a_long_event_is_cut_and_a_page_of_long_ones_is_short(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE)
        long = b'{"n":"' + b"x" * 100_000 + b'"}'
        for number in range(3, 11):
            await ledger.commit(Append(EventRow("task-1", number, number, long)))
        page = await ledger.admin.task_events("acme", "task-1", 2)
        same([event.number for event in page.events] if page else None, [3, 4, 5, 6])
        same(page and page.events[0], EventLine(3, long[:65_536], len(long)))
        same((page and page.after, await ledger.admin.event("acme", "task-1", 7)), (6, long))

    async def test_a_log_that_is_gone_has_no_events(self, ledger: Ledger) -> None:
        await ledger.commit(replace(ACCEPT, event=None, last_event=0))
        page = await ledger.admin.task_events("acme", "task-1")
        same((page and page.events, page and page.last, page and page.after), ((), 0, None))
        same(await ledger.admin.event("acme", "task-1", 1), None)


class AdminUpkeepTests:
    """A part of `LedgerSuite`."""

    async def test_an_overview_counts_open_turns_and_shows_what_they_do(self, ledger: Ledger) -> None:
        announced = replace(_TOOL, status=ToolCallStatus.ANNOUNCED, outcome=None, executor="gateway")
        await ledger.commit(
            ACCEPT, PREPARE, replace(_CALLED, items=_CALLED.items[:2], tool_calls=(announced,)), ELSEWHERE
        )
        found = await ledger.admin.overview("acme")
        counts = (OpenCount("echo", TurnStatus.ACCEPTED, 1, 1000), OpenCount("echo", TurnStatus.RUNNING, 1, 1000))
        same(found.open_counts, counts)
        [turn] = found.turns
        same((turn.turn, turn.task, turn.context, turn.principal), ("turn-1", "task-1", "context-1", "ada"))
        same((turn.call, turn.call_status, turn.prepared_at), ("call-1", ServiceCallStatus.COMPLETED, 1100))
        same((turn.process, turn.tries, turn.answering), ("process-1", 0, False))
        [tool] = found.tools
        same((tool.id, tool.name, tool.status, tool.turn), ("tool-1", "add", ToolCallStatus.ANNOUNCED, "turn-1"))
        same((await ledger.admin.overview("other")).open_counts, ())

    async def test_a_turn_answers_when_a_piece_of_an_answer_is_its_latest_event(self, ledger: Ledger) -> None:
        piece = b'{"artifactUpdate":{"taskId":"task-1"}}'
        await ledger.commit(ACCEPT, PREPARE, Append(EventRow("task-1", 3, 3, piece)))
        same([turn.answering for turn in (await ledger.admin.overview("acme")).turns], [True])

    async def test_an_overview_tells_how_long_things_took_lately(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE, _CALLED, APPEND, FINISH)
        found = await ledger.admin.overview("acme")
        same(found.call_times, (CallTime("echo", 30, 100),))
        same(found.tool_times, ((ToolTime("echo", "add", 30),), *[()] * 8))

    async def test_what_tools_took_is_told_of_turns_of_several_ages(self, ledger: Ledger) -> None:
        minute = 60_000
        turn = earliest_row_id(ledger.now() - 90 * minute)
        begun = [replace(each, turn=turn) for each in (ACCEPT, PREPARE, _CALLED)]
        await ledger.commit(*begun, APPEND, replace(FINISH, turn=turn))
        found = await ledger.admin.overview("acme")
        same([len(sample) for sample in found.tool_times], [1, 1, 1, 1, 1, 0, 0, 0, 0])
        same((await ledger.admin.overview("other")).tool_times, ((),) * 9)

    async def test_a_tool_call_that_failed_does_not_tell_how_long_they_take(self, ledger: Ledger) -> None:
        failed = replace(_TOOL, status=ToolCallStatus.FAILED, outcome={"error": "no"})
        await ledger.commit(ACCEPT, PREPARE, replace(_CALLED, tool_calls=(failed,)), APPEND, FINISH)
        same((await ledger.admin.overview("acme")).tool_times[0], ())

    async def test_failures_are_told_with_their_latest_error(self, ledger: Ledger) -> None:
        now = ledger.now()
        await ledger.commit(*_FAILED, replace(_FAILED_END, now=now))
        found = await ledger.admin.overview("acme")
        told = FailureFact("echo", "timed-out", "task-1", "thread-1", "context-1", now, True, 1, None)
        same(found.failures, (told,))
        page = await ledger.admin.failures("acme")
        [failed] = page.turns
        same((failed.turn, failed.failure_class, failed.error_class), ("turn-1", "timed-out", "timed-out"))
        same(failed.call, "call-1")
        same((failed.ended_at, page.before), (now, None))
        same((await ledger.admin.failures("acme", "other")).turns, ())
        same((await ledger.admin.failures("other")).turns, ())
        same((await ledger.admin.failures("acme", before=FailureKey(now, "turn-1"))).turns, ())

    async def test_the_correlation_id_of_a_failure_is_told_with_it_and_leads_to_it(self, ledger: Ledger) -> None:
        words = Part(text='said "correlationId":"ffff"')
        told_as = {"correlationId": "c0ffee", "errorClass": "timed-out"}
        message = Message(message_id="m-9", role=Role.AGENT, parts=(words,), metadata=told_as)
        now = ledger.now()
        await ledger.commit(*_FAILED, replace(_FAILED_END, message=message, now=now))
        [failed], [turn] = await _failures_and_turns(ledger)
        [fact] = (await ledger.admin.overview("acme")).failures
        head = await ledger.admin.task_head("acme", "task-1")
        told = (failed.correlation_id, turn.correlation_id, fact.correlation_id, head and head.correlation_id)
        same(told, ("c0ffee",) * 4)
        [place] = (await ledger.admin.locate("acme", "c0ffee")).places
        same((place.kind, place.task, place.turn), (PlaceKind.FAILURE, "task-1", "turn-1"))
        same((await ledger.admin.locate("acme", "c0ff")).places, ())
        same((await ledger.admin.locate("acme", "ffff")).places, ())

    async def test_threads_that_cannot_continue_are_told_with_their_latest_turn(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN, MarkHandleLost("thread-1", 2))
        [broken] = (await ledger.admin.overview("acme")).broken
        same((broken.thread, broken.state, broken.handle, broken.turn), ("thread-1", "lost", "resp-1", "turn-1"))
        same(broken.since, ACCEPT.now)
        same((await ledger.admin.overview("other")).broken, ())

    async def test_a_thread_is_lost_since_the_first_turn_that_failed_for_it(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN)
        for number, ended in ((2, 2500), (3, 2900)):
            names = {"task": f"task-{number}", "turn": f"turn-{number}"}
            call = replace(PREPARE, **names, service_call=f"call-{number}", generation=number, event=None, now=ended)
            failed = replace(FAIL, turn=names["turn"], service_call=call.service_call, generation=number + 1, items=())
            end = replace(_FAILED_END, **names, failure_class="handle-expired", events=None, now=ended)
            turn = replace(FOLLOW_UP, **names, new_task=True, event=None)
            await ledger.commit(turn, call, failed, end)
        await ledger.commit(MarkHandleLost("thread-1", 4))
        [broken] = (await ledger.admin.overview("acme")).broken
        same((broken.turn, broken.since), ("turn-3", 2500))

    async def test_deliveries_are_told_with_how_far_behind_they_are(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE, PUT, APPEND)
        same((await ledger.admin.deliveries("acme", DeliveryFilter.STUCK)).deliveries, ())
        [due] = await ledger.due_pushes(10**12, (), 10)
        failed = FailPush("task-1", "config-1", due.due_at, 9000, PushState.ACTIVE, 1, "HTTP 503" + "x" * 300)
        await ledger.commit(failed)
        for where in (DeliveryFilter.STUCK, DeliveryFilter.ACTIVE):
            [found] = (await ledger.admin.deliveries("acme", where)).deliveries
            same((found.task, found.id, found.context, found.principal), ("task-1", "config-1", "context-1", "ada"))
            same((found.next_event, found.last_event, found.attempts, found.due_at), (due.next_event, 5, 1, 9000))
            same((found.receiver, found.state, len(found.last_error or "")), ("hook.example/", PushState.ACTIVE, 200))
            same((await ledger.admin.deliveries("other", where)).deliveries, ())
            same((await ledger.admin.deliveries("acme", where, DeliveryKey(500, "task-1", "config-1"))).deliveries, ())
        same(len((await ledger.admin.deliveries("acme", DeliveryFilter.STUCK, task="task-1")).deliveries), 1)

    async def test_an_overview_sums_the_stuck_deliveries_of_each_receiver(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE, APPEND)
        await ledger.commit(*[_receiver(number, f"hook.example/in?key={number}") for number in range(1, 31)])
        await ledger.commit(_receiver(31, "hook.example/other"), _receiver(32, "hook.example/in"))
        await ledger.commit(Append(EventRow("task-1", 6, 8, b'{"n":6}\n{"n":7}\n{"n":8}')))
        for due in await ledger.due_pushes(10**12, (), 100):
            gone, sound = due.config.id == "config-30", due.config.id == "config-32"
            state, until = (PushState.GONE, None) if gone else (PushState.ACTIVE, 9000)
            failed = FailPush("task-1", due.config.id, due.due_at, until, state, 1, "HTTP 503")
            await ledger.commit(ClaimPush("task-1", due.config.id, due.due_at, 9000) if sound else failed)
        found = (await ledger.admin.overview("acme")).stuck
        told = [
            (each.oldest.receiver, each.oldest.state, each.oldest.id, each.deliveries, each.behind) for each in found
        ]
        same(
            told,
            [
                ("hook.example/in", PushState.ACTIVE, "config-1", 29, 87),
                ("hook.example/in", PushState.GONE, "config-30", 1, 3),
                ("hook.example/other", PushState.ACTIVE, "config-31", 1, 3),
            ],
        )
        same((found[0].oldest.context, found[0].oldest.last_error, found[0].whole), ("context-1", "HTTP 503", True))
        same((await ledger.admin.overview("other")).stuck, ())

    async def test_a_delivery_that_is_refused_for_good_is_stuck_and_not_to_be_delivered(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE, PUT, APPEND)
        [due] = await ledger.due_pushes(10**12, (), 10)
        await ledger.commit(FailPush("task-1", "config-1", due.due_at, None, PushState.GONE, 1, "HTTP 410"))
        same((await ledger.admin.deliveries("acme", DeliveryFilter.ACTIVE)).deliveries, ())
        [found] = (await ledger.admin.deliveries("acme", DeliveryFilter.STUCK)).deliveries
        same(found.state, PushState.GONE)

    async def test_deletions_that_were_given_up_are_apart(self, ledger: Ledger) -> None:
        await ledger.commit(*FIRST_TURN, DeleteOrphan("thread-1", "echo", "r 7", 1300))
        waiting = HandleDeletion("thread-1 r 7", "echo", "thread-1", "context-1", "ada", "r 7", 1300, 0)
        same((await ledger.admin.handle_deletions("acme", False)).deletions, (waiting,))
        same((await ledger.admin.handle_deletions("acme", True)).deletions, ())
        await ledger.commit(MoveDeletion("thread-1 r 7", 1300, None, 8))
        given_up = replace(waiting, due_at=None, attempts=8)
        same((await ledger.admin.handle_deletions("acme", True)).deletions, (given_up,))
        same((await ledger.admin.handle_deletions("other", True)).deletions, ())
        found = await ledger.admin.overview("acme")
        same((found.given_up, found.backlog.given_up), ((given_up,), 1))

    async def test_processes_are_told_with_their_duties(self, ledger: Ledger) -> None:
        until = ledger.now() + 60_000
        await ledger.commit(
            Heartbeat("process-1", until, 0), TakeDuty("retention", "process-1", until + 1, until - 60_000)
        )
        [process] = (await ledger.admin.overview("acme")).processes
        same((process.id, process.alive_until, process.duties), ("process-1", until + 1, ("retention",)))


def _receiver(number: int, address: str) -> PutPushConfig:
    config = replace(PUT.config, id=f"config-{number}", url=f"https://{address}")
    return replace(PUT, config=config, most=100, now=500 + number)


def _turn(number: int, task: str | None = None) -> tuple[CommitPoint, ...]:
    """A whole turn of the thread, with an answer; without a task, in a task of its own."""
    turn, of, call, before = f"turn-{number}", task or f"task-{number}", f"call-{number}", f"resp-{number - 1}"
    generation = 2 * (number - 1)
    return (
        replace(
            FOLLOW_UP, turn=turn, task=of, new_task=task is None, event=None, digest=turn, now=number * 1000,
        ),
        replace(
            PREPARE, turn=turn, task=of, service_call=call, generation=generation, handle_in=before, event=None,
        ),
        replace(
            COMPLETE, turn=turn, service_call=call, generation=generation + 1, handle_in=before,
            handle_out=f"resp-{number}", items=(NewItem(AssistantItem((Part(text="ok"),))),), tool_calls=(), sent=(),
        ),
        replace(
            FINISH, turn=turn, task=of, events=None, state=None if task else TaskState.COMPLETED, now=number * 1000 + 300,
        ),
    )  # fmt: skip
