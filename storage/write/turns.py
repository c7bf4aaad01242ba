"""The commit points of a turn, from its message to its end, as statements in order. Law: no I/O; a point becomes its
statements and nothing else."""

from msgspec.structs import asdict

from gateway.a2a.model import TaskState
from gateway.ledger.calls import Complete, Fail, GiveBack, MarkRefused, NewItem, NewToolCall, Prepare, SetAside
from gateway.ledger.states import OPEN
from gateway.ledger.tasks import Append, Close, EventRow, Finish
from gateway.ledger.tool_calls import ToolEnds, ToolReported
from gateway.ledger.turns import Accept, Decide, Preferences, Resume, Suspend
from gateway.ports.conversation import REFUSED_OUTPUT, OutputItem, UserItem, weight
from storage import compiled
from storage.statement import Step, Values
from storage.write.values import item, json, json_or_null, later_version, parameters

_DEFAULT = Preferences()

_REFUSED = weight(OutputItem("", REFUSED_OUTPUT))

_ENDS_ALL_TURNS = frozenset({TaskState.CANCELED, TaskState.FAILED, TaskState.REJECTED})


def append(point: Append) -> list[Step]:
    return _events(point.events, point.holder)


def accept(point: Accept) -> list[Step]:
    thread, message = point.thread, point.message
    values: Values = {
        **asdict(point),
        **asdict(point.caller),
        "context": point.context_row,
        "public_id": point.context_public,
        "thread": thread.id,
        "epoch": thread.epoch,
        "storage_owner": thread.owner.value,
        "handle_kind": thread.handle_kind.value,
        "handle": thread.handle,
        "generation": thread.generation,
        "adapter_state": json_or_null(thread.adapter_state),
        "state_version": None if thread.adapter_state is None else later_version(thread.state_version),
        "lease_holder": None,
        "lease_until": None,
        "state": TaskState.WORKING.value if point.working else TaskState.SUBMITTED.value,
        "visible": int(point.visible),
        "began_by": "message",
        "turn_status": "accepted",
        "base_generation": None,
        "started_at": None,
        "message_id": message.message_id,
        "message": json(message),
        "preferences": None if point.preferences == _DEFAULT else json(point.preferences),
        "weight": weight(UserItem(message)),
        "key_kind": point.key.kind if point.key else None,
        "key": point.key.key if point.key else None,
    }
    steps: list[Step] = [(compiled.USE_CONTEXT if point.context_public is None else compiled.NEW_CONTEXT, values)]
    if point.new_thread:
        steps.append((compiled.NEW_THREAD, values))
    steps.append((compiled.NEW_TASK if point.new_task else compiled.CONTINUE_TASK, values))
    steps += [(compiled.NEW_TURN, values), (compiled.NEW_INPUT, values), (compiled.NEW_USER_ITEM, values)]
    return steps + _events(point.event)


def prepare(point: Prepare) -> list[Step]:
    takes_lease = point.round == 0 and point.attempt == 0
    values = parameters(point, base_generation=point.generation + takes_lease)
    steps: list[Step] = [
        (compiled.TAKE_SYNCED if takes_lease else compiled.KEEP_LEASE, values),
        (compiled.RUN_TURN, values),
        (compiled.NEW_CALL, values),
    ]
    if point.event is not None:
        steps.append((compiled.START_TASK, values))
    return steps + _events(point.event)


def complete(point: Complete) -> list[Step]:
    values = parameters(
        point,
        clean=int(not any(call.status in OPEN for call in point.tool_calls)),
        adapter_state=json_or_null(point.state),
        state_version=None if point.state is None else later_version(point.state_version),
        usage=json_or_null(point.usage),
        pending_handle=None,
        run=None,
        released_by=None,
    )
    steps: list[Step] = [(compiled.MOVE_HANDLE, values), (compiled.COMPLETE_CALL, values)]
    steps += [_tool_call(call, point.service_call) for call in point.tool_calls]
    if len(point.sent) == 1:
        [values["sent"]] = point.sent
        steps.append((compiled.MARK_ONE_SENT, values))
    elif point.sent:
        values["sent"] = json(point.sent)
        steps.append((compiled.MARK_SENT, values))
    for new in point.items:
        steps.append(_item(new, point, point.service_call, sent_in=None if new.unsent else point.service_call))
    return steps


def fail(point: Fail) -> list[Step]:
    values = parameters(point, usage=json_or_null(point.usage), pending_handle=None, run=None)
    steps: list[Step] = [(compiled.FAIL_CALL, values)]
    return steps + [_item(new, point, point.service_call) for new in point.items]


def mark_refused(point: MarkRefused) -> list[Step]:
    values = parameters(point, positions=json(point.positions), weight=_REFUSED)
    return [(compiled.MARK_REFUSED, values)]


def set_aside(point: SetAside) -> list[Step]:
    return [(compiled.SET_ASIDE, parameters(point, positions=json(point.positions)))]


def give_back(point: GiveBack) -> list[Step]:
    return [(compiled.GIVE_BACK, parameters(point, positions=json(point.positions)))]


def _tool_call(call: NewToolCall, service_call: str) -> Step:
    values = parameters(
        call,
        service_call=service_call,
        # A settled call has an outcome even where that is null.
        outcome=json_or_null(call.outcome) if call.status in OPEN else json(call.outcome),
        approval_required=int(call.asked),
        approval_expires_at=call.expires_at,
    )
    return compiled.NEW_TOOL_CALL, values


def end_tool(point: ToolEnds) -> list[Step]:
    end = parameters(point, outcome=json(point.outcome))
    return [(compiled.END_TOOL, end), _item(point.item, point, point.service_call)]


def report_tool(point: ToolReported) -> list[Step]:
    return [(compiled.REPORT_TOOL, parameters(point, outcome=json(point.outcome)))]


def _item(
    new: NewItem, point: Complete | Fail | ToolEnds | Decide, service_call: str | None, *, sent_in: str | None = None
) -> Step:
    values: Values = {
        "thread": point.thread,
        "turn": point.turn,
        "service_call": service_call,
        "tool_call": new.tool_call,
        "provider_id": new.provider_id,
        "replayable": int(new.replayable),
        "sent_in": sent_in,
        **item(new.item),
    }
    return compiled.NEW_ITEM, values


def suspend(point: Suspend) -> list[Step]:
    values = parameters(point, state=point.state.value, status_message=json_or_null(point.message))
    return [(compiled.SUSPEND_TURN, values), (compiled.SET_TASK_WAITING, values), *_events(point.events)]


def resume(point: Resume) -> list[Step]:
    values = parameters(point, base_generation=point.generation + 1)
    steps: list[Step] = [(compiled.TAKE_LEASE, values), (compiled.RESUME_TURN, values), (compiled.START_TASK, values)]
    return steps + _events(point.event)


def decide(point: Decide) -> list[Step]:
    values = parameters(point, **parameters(point.caller), state=point.state.value)
    steps: list[Step] = [(compiled.ANSWER_TURN, values)]
    answer = point.answer
    if answer is not None:
        message = answer.message
        stored: Values = {
            **values,
            **asdict(answer),
            "message_id": message.message_id,
            "message": json(message),
            "key_kind": answer.key.kind if answer.key else None,
            "key": answer.key.key if answer.key else None,
        }
        steps = [(compiled.USE_CONTEXT, values), *steps, (compiled.NEXT_INPUT, stored)]
        # The content of the message without its answers. The input is the whole message; an item is only a part of it.
        steps += [_item(NewItem(content), point, None) for content in answer.items]
    for verdict in point.verdicts:
        decision = parameters(
            verdict, turn=point.turn, now=point.now, standing=point.context if verdict.always else None
        )
        steps.append((compiled.DECIDE_TOOL, decision))
    steps += [(compiled.RETRY_TOOL, {"turn": point.turn, "tool_call": call}) for call in point.retries]
    if point.question is not None:
        steps.append((compiled.SET_QUESTION, {**values, "question": json(point.question)}))
    if point.resumes:
        steps.append((compiled.START_TASK, values))
    return steps


def finish(point: Finish) -> list[Step]:
    values = parameters(
        point,
        state=point.state.value if point.state else None,
        status_message=json_or_null(point.message),
        artifacts=point.artifacts.decode(),
        messages=point.messages.decode(),
        usage=json_or_null(point.usage),
        visible=int(point.visible),
    )
    steps: list[Step] = [(compiled.END_TURN, values), (compiled.ABANDON_CALLS, values)]
    if point.state is None:
        steps.append((compiled.SET_LAST_EVENT, values))
    elif point.state in _ENDS_ALL_TURNS:
        steps += [(compiled.CANCEL_TURNS, values), (compiled.END_TASK, values)]
    else:
        steps.append((compiled.END_IDLE_TASK, values))
    return steps + _events(point.events)


def close(point: Close) -> list[Step]:
    return [(compiled.CLOSE_TASK, parameters(point, state=point.state.value)), *_events(point.event)]


def _events(row: EventRow | None, holder: str | None = None) -> list[Step]:
    """Of the units in which the events are all that changes a `holder` has to be known; others have fences of their own."""
    if row is None:
        return []
    numbers = {"first": row.first, "last": row.last}
    values: Values = {"task": row.task, **numbers, "payload": row.payload.decode(), "holder": holder}
    return [(compiled.NEW_EVENTS, values)]
