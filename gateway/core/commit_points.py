"""The commit points that several parts of the gateway make, as values. Law: pure; each of them is built here alone."""

from gateway.a2a.model import Json
from gateway.core.lifecycles import SERVICE_CALL, advance
from gateway.core.task_record import TurnOutput
from gateway.core.turn.commands import CompleteCall, EndTool, EndTurn
from gateway.core.usage import NONE, storable
from gateway.ledger.calls import Complete, Fail, NewItem
from gateway.ledger.states import ServiceCallStatus
from gateway.ledger.tasks import EventRow, Finish, Usage
from gateway.ledger.threads import ThreadRecord
from gateway.ledger.tool_calls import ToolEnds


def complete(
    thread: ThreadRecord,
    turn: str,
    service_call: str,
    command: CompleteCall,
    sent: tuple[int, ...],
    state_version: int,
    now: int,
    weight: int | None = None,
    *,
    secret: str | None,
    first_at: int | None,
) -> Complete:
    """C3. `sent`, `weight`, `secret` and `first_at` as in Complete; without a handle the thread keeps its own."""
    at = (thread.id, thread.generation, turn, service_call)
    made = (command.state, command.usage, command.items, command.tool_calls)
    handle_out = thread.handle if command.handle is None else command.handle
    return Complete(*at, thread.handle, handle_out, *made, sent, now, weight, state_version, secret, first_at)


def fail(
    thread: ThreadRecord,
    turn: str,
    service_call: str,
    error_class: str,
    now: int,
    *,
    before: ServiceCallStatus = ServiceCallStatus.PREPARED,
    following: ServiceCallStatus = ServiceCallStatus.FAILED,
    items: tuple[NewItem, ...] = (),
    usage: Json = None,
    first_at: int | None = None,
) -> Fail:
    """C3 of a service call that does not count. `before` is the status of the call before this point."""
    status = advance(SERVICE_CALL, before, following)
    at = (thread.id, thread.generation, turn, service_call)
    return Fail(*at, status, error_class, items, now, storable(usage), first_at)


def tool_ends(thread: str, generation: int, turn: str, service_call: str, command: EndTool) -> ToolEnds:
    """C5."""
    end = (command.id, command.status, command.outcome, command.at, command.item)
    return ToolEnds(thread, generation, turn, service_call, *end)


def finish(
    output: TurnOutput,
    end: EndTurn,
    task: str,
    turn: str,
    thread: str,
    row: EventRow | None,
    last_event: int,
    now: int,
    *,
    spent: Usage | None = None,
    visible: bool = True,
    process: str | None = None,
    ends_task: bool = True,
) -> Finish:
    """The commit point C6. `output` is the output that the turn has shown before its last status. `spent` are the tokens of
    the turn, None if no service call ends with it. If `ends_task` is false, the task continues with its next turn."""
    state = end.state if ends_task else None
    ended = (task, turn, thread, end.status, end.failure, state, end.message, row, last_event)
    tokens = output.usage if spent is None else spent
    record = output.artifacts_json(), output.messages_json(end.message), None if tokens is NONE else tokens
    return Finish(*ended, *record, visible, now, process)
