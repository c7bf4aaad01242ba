"""What is wrong now, out of an overview."""

import pytest
from msgspec.structs import replace

from gateway.a2a.model import TaskState
from gateway.core.diagnosis.problems import OpenBreaker, Problem, ProblemKind, problems
from gateway.ledger.admin.upkeep import (
    BrokenThread,
    Delivery,
    FailureFact,
    HandleDeletion,
    OpenToolFacts,
    OpenTurnFacts,
    Overview,
    StuckReceiver,
    ToolTime,
)
from gateway.ledger.backlog import Backlog
from gateway.ledger.push import PushState
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus, TurnStatus

NOW = 1_000_000
NOTHING = Overview(NOW, (), (), (), (), (), (), (), (), (), (), Backlog(0, 0, 0, 0, 0), ())
TURN = OpenTurnFacts(
    "turn-1", "task-1", "context-1", "ada", "echo", TurnStatus.RUNNING, "process-1", 0, NOW - 60_000, NOW - 60_000,
    "call-1", ServiceCallStatus.STARTED, 0, 0, NOW - 31_000,
)  # fmt: skip
TOOL = OpenToolFacts(
    "tool-1",
    "turn-1",
    "task-1",
    "context-1",
    "echo",
    "search",
    "gateway",
    ToolCallStatus.RUNNING,
    NOW - 9000,
    NOW - 6000,
)
TIMES = (tuple(ToolTime("echo", "search", took) for took in (900, 1000, 2000)),)
FAILURE = FailureFact("echo", "timed-out", "task-1", "thread-1", "context-1", NOW - 5000, True, 7, "c0ffee")
DELIVERY = Delivery(
    "task-1", "config-1", "context-1", "ada", "echo", TaskState.WORKING, "https://ada:s3cret@hook.example/in?key=s3cret",
    PushState.ACTIVE, 3, 7, NOW + 9000, 2, "HTTP 503", 500,
)  # fmt: skip


def found(**facts: object) -> list[Problem]:
    return [*problems(replace(NOTHING, **facts))]


def kinds(**facts: object) -> list[ProblemKind]:
    return [problem.kind for problem in found(**facts)]


def test_where_nothing_is_wrong_nothing_is_told() -> None:
    assert problems(NOTHING) == ()


def test_a_call_is_silent_when_no_piece_of_an_answer_came_for_half_a_minute() -> None:
    assert found(turns=(TURN,)) == [
        Problem(
            ProblemKind.SILENT, "echo", since=NOW - 31_000, took=31_000, context="context-1", task="task-1", turn="turn-1",
            row="call-1",
        )
    ]  # fmt: skip


@pytest.mark.parametrize(
    "calm",
    [
        replace(TURN, answering=True),
        replace(TURN, prepared_at=NOW - 29_999),
        replace(TURN, call_status=ServiceCallStatus.COMPLETED),
        replace(TURN, call=None, call_status=None, prepared_at=None),
    ],
)
def test_a_call_that_answers_has_just_begun_or_has_ended_is_not_silent(calm: OpenTurnFacts) -> None:
    assert kinds(turns=(calm,)) == []


def test_a_turn_that_ended_processes_is_tried_and_then_put_aside() -> None:
    assert kinds(turns=(replace(TURN, tries=2),)) == [ProblemKind.TRIED]
    assert kinds(turns=(replace(TURN, tries=4),)) == [ProblemKind.STUCK]


def test_a_tool_is_slow_at_three_times_what_its_calls_usually_take() -> None:
    [slow] = found(tools=(TOOL,), tool_times=TIMES)
    assert (slow.kind, slow.subject, slow.took, slow.usual, slow.row) == (
        ProblemKind.SLOW, "search", 6000, 2000, "tool-1",
    )  # fmt: skip
    assert kinds(tools=(replace(TOOL, started_at=NOW - 5999),), tool_times=TIMES) == []


def test_a_tool_of_which_nothing_usual_is_known_has_half_a_minute_and_a_quick_one_a_second() -> None:
    assert kinds(tools=(TOOL,), tool_times=(TIMES[0][:2],)) == []
    assert kinds(tools=(replace(TOOL, started_at=NOW - 30_000),)) == [ProblemKind.SLOW]
    quick = (tuple(ToolTime("echo", "search", 2) for _ in range(3)),)
    assert kinds(tools=(replace(TOOL, started_at=NOW - 999),), tool_times=quick) == []


def test_a_tool_that_stays_slow_is_told_though_its_latest_calls_are_all_slow() -> None:
    slow, quick = [(ToolTime("echo", "search", took),) * 50 for took in (6000, 100)]
    assert kinds(tools=(TOOL,), tool_times=(slow, slow, slow, quick, quick)) == [ProblemKind.SLOW]
    assert kinds(tools=(TOOL,), tool_times=(slow, slow, slow, slow, slow)) == []


def test_a_tool_call_that_waits_for_its_caller_is_not_slow() -> None:
    waiting = replace(TOOL, status=ToolCallStatus.PENDING_APPROVAL, started_at=None)
    assert kinds(tools=(waiting,), tool_times=TIMES) == []


def test_a_thread_whose_latest_turns_have_all_failed_is_told_once() -> None:
    six, five, four = [replace(FAILURE, latest=False, number=at, ended_at=NOW - 9000 + at) for at in (6, 5, 4)]
    [failing] = found(failures=(FAILURE, six, five))
    assert (failing.kind, failing.number, failing.thread, failing.detail) == (
        ProblemKind.FAILING, 3, "thread-1", "timed-out",
    )  # fmt: skip
    assert (failing.since, failing.correlation_id) == (NOW - 8995, "c0ffee")
    assert kinds(failures=(FAILURE, six)) == []
    assert kinds(failures=(six, five, four)) == []


def test_a_turn_that_did_not_fail_between_two_that_did_ends_their_row() -> None:
    earlier = [replace(FAILURE, latest=False, number=at) for at in (5, 4)]
    assert kinds(failures=(FAILURE, *earlier)) == []


def test_threads_that_are_lost_come_before_those_that_are_unsynced() -> None:
    thread = BrokenThread("thread-1", "context-1", "ada", "echo", "unsynced", "r1", "turn-1", "task-1", 900)
    lost = replace(thread, state="lost", since=950)
    assert kinds(broken=(thread, lost)) == [ProblemKind.LOST, ProblemKind.UNSYNCED]


def test_a_receiver_that_is_down_is_one_problem_however_many_tasks_it_misses() -> None:
    older = replace(DELIVERY, task="task-2", url="http://hook.example/in", created_at=400)
    [behind] = found(stuck=(StuckReceiver(DELIVERY, 3, 40, True), StuckReceiver(older, 100, 1000, True)))
    assert behind == Problem(
        ProblemKind.BEHIND, "echo", "hook.example/in", 1040, 103, detail="HTTP 503", context="context-1", task="task-2",
        row="config-1",
    )  # fmt: skip


def test_what_is_not_tried_any_more_is_told_apart_from_what_is() -> None:
    states = [StuckReceiver(replace(DELIVERY, state=state), 2, 7, True) for state in PushState if state != "done"]
    assert [(each.kind, each.deliveries, each.number) for each in found(stuck=(*states,))] == [
        (ProblemKind.STOPPED, 4, 14), (ProblemKind.BEHIND, 2, 7),
    ]  # fmt: skip


def test_a_sum_that_left_deliveries_out_is_the_least_that_there_is() -> None:
    gone = replace(DELIVERY, state=PushState.GONE)
    stopped = replace(DELIVERY, state=PushState.STOPPED)
    [told] = found(stuck=(StuckReceiver(gone, 2, 7, True), StuckReceiver(stopped, 2, 7, False)))
    assert told.least


def test_two_receivers_of_one_host_are_told_apart() -> None:
    other = replace(DELIVERY, url="https://hook.example:8443/other")
    stuck = tuple([StuckReceiver(each, 1, 5, True) for each in (DELIVERY, other)])
    assert [each.subject for each in found(stuck=stuck)] == ["hook.example/in", "hook.example:8443/other"]


def test_deletions_that_were_given_up_are_counted_by_agent() -> None:
    deletion = HandleDeletion("thread-1 r1", "echo", "thread-1", "context-1", "ada", "r1", None, 8)
    [given_up] = found(given_up=(deletion, replace(deletion, job="thread-1 r2", handle="r2")))
    assert (given_up.kind, given_up.number, given_up.subject) == (ProblemKind.GIVEN_UP, 2, "r1")


def test_a_backend_that_is_left_alone_comes_first() -> None:
    breaker = OpenBreaker("https://notes.example", ("notes", "memos"), 14_000, NOW - 9000)
    told = problems(replace(NOTHING, turns=(TURN,)), [breaker])
    assert [problem.kind for problem in told] == [ProblemKind.BREAKER, ProblemKind.SILENT]
    assert (told[0].agent, told[0].subject, told[0].took, told[0].since) == (
        "notes, memos", "https://notes.example", 14_000, NOW - 9000,
    )  # fmt: skip
