"""The part of the conformance suite on what a turn has done and when. Law: it knows no store."""

from msgspec.structs import replace

from gateway.ledger.calls import RESTARTED
from gateway.ledger.port import Ledger
from gateway.ledger.states import ToolCallStatus, TurnStatus
from gateway.ledger.tool_calls import ToolStarts
from gateway.ledger.traces import RecordedCall, RecordedTool, RecordedTurn
from gateway.testing.checks import same
from gateway.testing.ledger_points import (
    ACCEPT,
    APPEND,
    COMPLETE,
    FAIL,
    FINISH,
    FOLLOW_UP,
    PREPARE,
    numbered,
)

_TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 vendor=1"


class TraceTests:
    """A part of `LedgerSuite`."""

    async def test_a_turn_keeps_the_trace_of_its_caller_and_its_times(self, ledger: Ledger) -> None:
        same(await ledger.recorded_turn("turn-1"), None)
        await ledger.commit(replace(ACCEPT, trace=_TRACE))
        accepted = RecordedTurn(_TRACE, 1000, None, "process-1", TurnStatus.ACCEPTED, None, (), ())
        same(await ledger.recorded_turn("turn-1"), accepted)
        await ledger.commit(PREPARE, replace(COMPLETE, first_at=1150), APPEND, FINISH)
        call = RecordedCall(0, 0, None, 1100, 1150, 1200, {"tokens": 7})
        ended = replace(accepted, ended_at=1300, status=TurnStatus.COMPLETED, calls=(call,))
        same(await ledger.recorded_turn("turn-1"), ended)

    async def test_the_tries_of_a_turn_are_there_in_their_order(self, ledger: Ledger) -> None:
        again = replace(PREPARE, generation=1, attempt=1, service_call="call-2", now=1250, event=None)
        failed = replace(FAIL, error_class=RESTARTED, first_at=1150)
        await ledger.commit(ACCEPT, PREPARE, failed, again)
        found = await ledger.recorded_turn("turn-1")
        same(
            None if found is None else found.calls,
            (
                RecordedCall(0, 0, RESTARTED, 1100, 1150, 1200, None),
                RecordedCall(0, 1, None, 1250, None, None, None),
            ),
        )

    async def test_a_tool_of_the_gateway_is_there_once_it_has_begun(self, ledger: Ledger) -> None:
        await ledger.commit(*numbered(1))
        found = await ledger.recorded_turn("turn-1")
        same(None if found is None else found.tools, ())
        await ledger.commit(ToolStarts("thread-1", 2, "tool-1", 1300))
        found = await ledger.recorded_turn("turn-1")
        tool = RecordedTool("tool-1", "add", None, ToolCallStatus.RUNNING, 1300, None)
        same(None if found is None else found.tools, (tool,))

    async def test_an_event_belongs_to_the_turn_in_which_it_was_logged(self, ledger: Ledger) -> None:
        await ledger.commit(replace(ACCEPT, trace=_TRACE), PREPARE, COMPLETE, APPEND, replace(FINISH, state=None))
        following = replace(FOLLOW_UP, last_event=7, event=replace(APPEND.events, first=7, last=7, payload=b"{}"))
        await ledger.commit(following)
        same(await ledger.turn_of_event("task-1", 6), ("turn-1", _TRACE))
        same(await ledger.turn_of_event("task-1", 7), ("turn-2", None))
        same(await ledger.turn_of_event("task-2", 1), None)
