"""The commit points that several parts of the gateway make, as values. Law: pure; each of them is built here alone."""

from gateway.core.lifecycles import SERVICE_CALL, advance
from gateway.core.task_record import TurnOutput
from gateway.core.turn.commands import CompleteCall, EndTool, EndTurn
from gateway.ledger.calls import Complete, Fail, NewItem
from gateway.ledger.states import ServiceCallStatus
from gateway.ledger.tasks import EventRow, Finish
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
) -> Complete:
    """C3. `sent` and `weight` as in Complete; without a handle the thread keeps its own."""
    return Complete(
        thread=thread.id,
        generation=thread.generation,
        turn=turn,
        service_call=service_call,
        handle_in=thread.handle,
        handle_out=thread.handle if command.handle is None else command.handle,
        state=command.state,
        usage=command.usage,
        items=command.items,
        tool_calls=command.tool_calls,
        sent=sent,
        now=now,
        weight=weight,
        state_version=state_version,
    )


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
) -> Fail:
    """C3 of a service call that does not count. `before`: the status that it leaves."""
    status = advance(SERVICE_CALL, before, following)
    return Fail(thread.id, thread.generation, turn, service_call, status, error_class, items, now)


def tool_ends(thread: str, generation: int, turn: str, service_call: str, command: EndTool) -> ToolEnds:
    """C5."""
    return ToolEnds(thread, generation, turn, service_call, command.id, command.status, command.outcome, command.item)


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
    visible: bool = True,
    process: str | None = None,
    ends_task: bool = True,
) -> Finish:
    """The commit point C6. `output` is the output that the turn has shown before its last status. If `ends_task` is
    false, the task continues with its next turn."""
    return Finish(
        task=task,
        turn=turn,
        thread=thread,
        status=end.status,
        failure_class=end.failure,
        state=end.state if ends_task else None,
        message=end.message,
        events=row,
        last_event=last_event,
        artifacts=output.artifacts_json(),
        messages=output.messages_json(end.message),
        visible=visible,
        now=now,
        process=process,
    )
