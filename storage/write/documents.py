"""Contexts from outside as rows: adopted with a backend's handle, or imported from a document. Law: rows follow from the
document alone, their owner is the caller; ids stay, so that an existing id makes the whole import fail."""

from collections.abc import Mapping

from msgspec import UNSET

from gateway.a2a.model import Message
from gateway.a2a.wire.dialect import line
from gateway.ledger.documents import Adopt, Import, PortableItem, PortableTask, PortableThread, PortableToolCall
from gateway.ports import conversation
from gateway.ports.conversation import OutputItem, UserItem, refused_output, weight
from storage import compiled
from storage.statement import Step, Values
from storage.write.values import item as item_columns
from storage.write.values import json, json_or_null, parameters

_EVENTS_IN_A_ROW = 100


def adopt(point: Adopt) -> list[Step]:
    thread = point.thread
    values = parameters(
        thread,
        **parameters(point.caller),
        now=point.now,
        public_id=point.context_public,
        thread=thread.id,
        storage_owner=thread.owner.value,
        handle_kind=thread.handle_kind.value,
        adapter_state=None,
        state_version=None,
        lease_holder=None,
        lease_until=None,
        began_by="adopted",
    )
    return [(compiled.NEW_CONTEXT, values), (compiled.NEW_THREAD, values)]


def import_context(point: Import) -> list[Step]:
    document = point.document
    owner = parameters(point.caller)
    # The import is a use: the retention time of the context begins again.
    context = parameters(document, **owner, public_id=document.context_id, last_used_at=point.now)
    steps: list[Step] = [(compiled.IMPORT_CONTEXT, context)]
    for task in document.tasks:
        steps += _task(task, {**owner, "context": document.id})
    for thread in document.threads:
        steps += _thread(thread, document.id, owner)
    return steps


def _task(task: PortableTask, of: Values) -> list[Step]:
    row = parameters(
        task, **of, visible=int(task.visible), state=task.state.value, status_message=json_or_null(task.status_message)
    )
    steps: list[Step] = [(compiled.IMPORT_TASK, row)]
    for first in range(0, len(task.events), _EVENTS_IN_A_ROW):
        payloads = [line(event) for event in task.events[first : first + _EVENTS_IN_A_ROW]]
        events: Values = {
            "task": task.id,
            "first": first + 1,
            "last": first + len(payloads),
            "payload": b"\n".join(payloads).decode(),
        }
        steps.append((compiled.IMPORT_EVENTS, events))
    return steps


def _thread(thread: PortableThread, context: str, owner: Values) -> list[Step]:
    row = parameters(
        thread,
        context=context,
        storage_owner=thread.owner.value,
        handle_kind=thread.handle_kind.value,
        adapter_state=json_or_null(thread.adapter_state),
    )
    steps: list[Step] = [(compiled.IMPORT_THREAD, row)]
    for turn in thread.turns:
        record = {
            "messages": json(turn.messages),
            "artifacts": json(turn.artifacts),
            "usage": json_or_null(turn.usage),
        }
        values = parameters(turn, thread=thread.id, displaced=int(turn.displaced), **record)
        steps.append((compiled.IMPORT_TURN, values))
        for given in turn.inputs:
            message = {"message_id": given.message.message_id, "payload": json(given.message)}
            values = parameters(given, **owner, agent=thread.agent, turn=turn.id, **message)
            steps.append((compiled.IMPORT_INPUT, values))
        for call in turn.calls:
            steps.append((compiled.IMPORT_CALL, parameters(call, turn=turn.id, usage=json_or_null(call.usage))))
            steps += [(compiled.IMPORT_TOOL_CALL, _tool_call(made, call.id)) for made in call.tool_calls]
    messages = {(turn.id, given.ordinal): given.message for turn in thread.turns for given in turn.inputs}
    steps += [(compiled.IMPORT_ITEM, _item(item, thread.id, messages)) for item in thread.items]
    return steps


def _tool_call(made: PortableToolCall, service_call: str) -> Values:
    return parameters(
        made,
        service_call=service_call,
        approval_required=int(made.approval_required),
        outcome=None if made.outcome is UNSET else json(made.outcome),
    )


def _item(item: PortableItem, thread: str, messages: Mapping[tuple[str, int], Message]) -> Values:
    content: conversation.Item = item.item or UserItem(messages[item.turn, item.input or 0])
    values = parameters(item, **item_columns(content), thread=thread, replayable=int(item.replayable))
    if item.refused_in is not None and item.replayable and isinstance(content, OutputItem):
        values["weight"] = weight(refused_output(content))
    # The message of an input is stored there.
    return values if item.item is not None else {**values, "payload": None}
