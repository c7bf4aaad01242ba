"""A task as rows."""

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.a2a.model import TaskState
from gateway.ledger.admin.timelines import (
    CallHead,
    ItemHead,
    MessageHead,
    Note,
    TaskHead,
    Timeline,
    ToolHead,
    TurnHead,
)
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus, TurnStatus
from gateway.ui.rendering import render_rows
from gateway.ui.tasks import ROWS, Filters, TaskView
from gateway.ui.timeline import FOLD, Row, Totals, chosen, folded, rows, scale_of, totals, with_bars

NOW = 1_000_000


def turn(number: int = 1, status: TurnStatus = TurnStatus.COMPLETED, **more: Any) -> TurnHead:
    given: dict[str, Any] = {
        "id": f"t{number}",
        "thread": "th",
        "number": number,
        "status": status,
        "failure_class": None,
        "process": "",
        "cancel_asked": False,
        "displaced": False,
        "tries": 0,
        "accepted_at": 1000 * number,
        "started_at": None,
        "ended_at": 1000 * number + 900,
        "last_event": None,
        "usage": None,
        "trace": None,
    }
    return TurnHead(**given | more)


def call(
    number: int = 0, turn_: str = "t1", status: ServiceCallStatus = ServiceCallStatus.COMPLETED, **more: Any
) -> CallHead:
    given: dict[str, Any] = {
        "id": f"c{number}",
        "turn": turn_,
        "round": number,
        "attempt": 0,
        "status": status,
        "error_class": None,
        "prepared_at": 1010 + 100 * number,
        "first_at": None,
        "ended_at": 1050 + 100 * number,
        "handle_in": None,
        "pending_handle": None,
        "handle_out": None,
        "run": None,
        "usage": None,
        "weight": None,
    }
    return CallHead(**given | more)


def tool(
    number: int = 0, call_: str = "c0", status: ToolCallStatus = ToolCallStatus.COMPLETED, **more: Any
) -> ToolHead:
    given: dict[str, Any] = {
        "id": f"x{number}",
        "call": call_,
        "turn": "t1",
        "sequence": number,
        "external_id": f"e{number}",
        "name": "search",
        "executor": "gateway",
        "server": None,
        "status": status,
        "approval_required": False,
        "decision": None,
        "answered_by": None,
        "answered_at": None,
        "expires_at": None,
        "asked_at": 1050,
        "started_at": 1051,
        "ended_at": 1060 + number,
    }
    return ToolHead(**given | more)


def timeline(*found: Any, state: TaskState = TaskState.COMPLETED) -> Timeline:
    def of(kind: type) -> tuple[Any, ...]:
        return tuple(each for each in found if isinstance(each, kind))

    task = TaskHead("task", "row", "c-1", "", "ada", "a", True, state, 5000, 1000, 1, 9, None)
    turns = of(TurnHead)
    return Timeline(
        task, turns, of(MessageHead), of(CallHead), of(ToolHead), of(ItemHead), of(Note), len(turns), None, frozenset()
    )


def ids(found: tuple[Row, ...]) -> list[str]:
    return [row.id for row in found]


MESSAGE = MessageHead("t1", 0, "m", 1001, 1)
REASONING = ItemHead("th", 2, "t1", "c0", "reasoning", True, None, None, 10)


def test_rows_stand_below_their_turn_in_order() -> None:
    found = timeline(tool(), call(1), call(0), REASONING, MESSAGE, turn(1), Note("t1", 1005, "taken-over", "p"))
    assert ids(rows(found, NOW)) == [
        "turn-t1",
        "message-t1-0",
        "note-t1-0",
        "call-c0",
        "item-th-2",
        "tool-x0",
        "call-c1",
    ]


def test_a_call_tells_its_handles_and_why_it_failed() -> None:
    failed = call(
        0,
        status=ServiceCallStatus.FAILED,
        error_class="rate-limited",
        handle_in="resp_1",
        pending_handle="resp_2",
    )
    row = rows(timeline(turn(1), failed), NOW)[1]
    assert (row.title, row.bad, row.state) == ("Call 1, try 1", True, "failed")
    assert ("failed because", "rate-limited") in row.facts
    assert ("handle", "resp_1 → resp_2") in row.facts


def test_a_call_that_was_cancelled_with_its_turn_is_no_problem() -> None:
    ended = call(0, status=ServiceCallStatus.FAILED, error_class="cancelled")
    row = rows(timeline(turn(1, TurnStatus.CANCELLED), ended), NOW)[1]
    assert (row.title, row.bad, row.state) == ("Call 1", False, "cancelled")
    assert "failed because" not in dict(row.facts)


def test_a_tool_says_who_allowed_it_and_after_how_long() -> None:
    allowed = tool(approval_required=True, decision="approved", answered_by="ada", asked_at=1050, started_at=61_050)
    row = rows(timeline(turn(1), call(0), allowed), NOW)[2]
    assert row.words == "allowed after 1 min"
    assert ("decided by", "ada") in row.facts


def test_what_has_not_ended_has_no_duration_and_ticks() -> None:
    open_ = timeline(
        turn(1, TurnStatus.RUNNING, ended_at=None), call(0, status=ServiceCallStatus.STARTED, ended_at=None)
    )
    assert [(row.took, row.since) for row in rows(open_, NOW)] == [(None, 1000), (None, 1010)]


def test_a_turn_that_was_put_aside_says_so() -> None:
    [row] = rows(timeline(turn(1, TurnStatus.RUNNING, ended_at=None, tries=4)), NOW)
    assert row.bad
    assert row.words == "tried 4 times after its process had died; put aside"


def test_like_siblings_are_one_row_and_a_problem_never_is() -> None:
    tools = [tool(number) for number in range(FOLD + 5)]
    tools[3] = tool(3, status=ToolCallStatus.FAILED)
    found = folded(rows(timeline(turn(1), call(0), *tools), NOW))
    assert [row.kind for row in found] == ["turn", "call", "fold", "tool"]
    assert found[2].title == f"Tool ×{FOLD + 4}"
    assert found[2].words.startswith("none failed, median ")


def test_few_siblings_stay() -> None:
    found = rows(timeline(turn(1), call(0), *(tool(number) for number in range(FOLD))), NOW)
    assert folded(found) == found


def test_a_filter_keeps_the_turn_of_what_it_leaves() -> None:
    found = rows(timeline(turn(1), call(0), tool(0), turn(2), tool(1, status=ToolCallStatus.FAILED), call(1)), NOW)
    assert ids(chosen(found, "tools", "")) == ["turn-t1", "tool-x0", "tool-x1"]
    assert ids(chosen(found, "problems", "")) == ["turn-t1", "tool-x1"]
    assert ids(chosen(found, "calls", "nothing")) == []
    assert ids(chosen(found, "all", "SEARCH")) == ["turn-t1", "tool-x0", "tool-x1"]


def test_a_wait_for_a_yes_is_thin_and_the_run_is_thick() -> None:
    waited = tool(asked_at=1050, started_at=1500, ended_at=1900)
    found = timeline(turn(1), call(0), waited)
    drawn = tuple(with_bars(rows(found, NOW), scale_of(found, NOW), {"x0": waited}))
    assert [[bar.kind for bar in row.bars] for row in drawn] == [["waited"], ["ran"], ["waited", "ran"]]


def test_a_bar_can_be_seen_however_short_it_is_and_wherever_it_stands() -> None:
    found = timeline(turn(1, ended_at=1_000_000), call(0), call(1, prepared_at=999_999, ended_at=1_000_000))
    drawn = tuple(with_bars(rows(found, NOW), scale_of(found, NOW), {}))
    assert all(bar.width >= 13 and bar.at + bar.width <= 1000 for row in drawn for bar in row.bars)


def test_rows_that_have_ended_are_drawn_alike_while_others_run() -> None:
    found = timeline(turn(1), call(0), turn(2, TurnStatus.RUNNING, ended_at=None))
    drawn = [tuple(with_bars(rows(found, now), scale_of(found, now), {})) for now in (6100, 6200)]
    assert drawn[0] == drawn[1]


def test_sums_are_of_the_model_the_tools_and_the_waiting() -> None:
    found = timeline(
        turn(1),
        call(0, usage='{"input_tokens": 5, "output_tokens": 2}'),
        call(1, usage="{"),
        tool(0, approval_required=True, asked_at=1050, started_at=2050, ended_at=2150),
    )
    sums = totals(found, NOW)
    assert sums == Totals(model=80, calls=2, tools=100, tool_calls=1, waited=1000, tokens_in=5, tokens_out=2)


def test_questions_that_are_open_at_once_are_waited_for_once() -> None:
    asked = [
        tool(number, approval_required=True, asked_at=1000, answered_at=11_000, started_at=11_000, ended_at=12_000)
        for number in range(2)
    ]
    sums = totals(timeline(turn(1), call(0), *asked), NOW)
    assert (sums.waited, sums.tools) == (10_000, 1000)


@pytest.mark.parametrize(
    ("status", "ended_at", "waited"),
    [
        (ToolCallStatus.PENDING_APPROVAL, None, NOW - 1000),
        (ToolCallStatus.CANCELLED, 3000, 2000),
        (ToolCallStatus.CANCELLED, None, 0),
    ],
)
def test_a_question_that_nobody_answers_is_waited_for_until_its_end(
    status: ToolCallStatus, ended_at: int | None, waited: int
) -> None:
    asked = tool(0, status=status, approval_required=True, asked_at=1000, started_at=None, ended_at=ended_at)
    assert totals(timeline(turn(1), call(0), asked), NOW).waited == waited


def test_a_tool_that_runs_counts_until_now() -> None:
    runs = tool(0, status=ToolCallStatus.RUNNING, started_at=NOW - 4000, ended_at=None)
    asks = tool(1, status=ToolCallStatus.PENDING_APPROVAL, started_at=None, ended_at=None)
    ended = tool(2, started_at=1050, ended_at=1150)
    lost = tool(3, status=ToolCallStatus.INTERRUPTED, started_at=1050, ended_at=None)
    assert (
        totals(timeline(turn(status=TurnStatus.RUNNING, ended_at=None), call(0), runs, asks, ended, lost), NOW).tools
        == 4100
    )


def test_a_turn_that_failed_has_its_correlation_id_with_its_reason() -> None:
    found = timeline(turn(1, TurnStatus.FAILED, failure_class="timed-out"))
    found = replace(found, task=replace(found.task, correlation_id="c0ffee"))
    assert rows(found, NOW)[0].facts[:2] == (("failed because", "timed-out"), ("correlation id", "c0ffee"))


def test_rows_of_tools_are_short_enough_for_a_page_of_them() -> None:
    """The bound of a page is 250 KB."""
    name = "01998c1e-7f00-7abc-8def-{:012}"
    tools = [
        tool(
            number, id=name.format(number), external_id=f"call_{number:024}", server="https://tools.example/mcp",
            approval_required=True, decision="approved", answered_by="ada", asked_at=1000, started_at=2500, ended_at=4000,
        )
        for number in range(ROWS)
    ]  # fmt: skip
    found = timeline(turn(), call(0), *tools)
    found = replace(found, task=replace(found.task, id=name.format(0)))
    on = scale_of(found, NOW)
    shown = tuple(with_bars(chosen(rows(found, NOW), "tools", ""), on, {each.id: each for each in tools}))
    previews = {row.id: '{"city": "' + "x" * 190 for row in shown}
    filters = Filters("tools", "", 0, 0)
    view = TaskView(found.task, found, shown, previews, on, totals(found, NOW), "", ROWS, filters, (), frozenset())
    html = render_rows(view.rows, view)
    assert len(html) == 1 + ROWS
    assert sum(map(len, html.values())) < 235_000
