"""A context that began elsewhere as rows of this database. Law: rows are made from the document alone, their owner is the
caller; ids stay as they are, so that one that exists makes the whole import fail."""

from collections.abc import Mapping

import msgspec
from msgspec import UNSET

from gateway.a2a.model import Json, Message
from gateway.a2a.wire.v1_0 import encode
from gateway.ledger.documents import (
    Adopt,
    Import,
    PortableCall,
    PortableInput,
    PortableItem,
    PortableTask,
    PortableThread,
    PortableToolCall,
    PortableTurn,
)
from gateway.ports import conversation
from gateway.ports.conversation import UserItem, kind
from gateway.ports.weight import weight
from storage import compiled
from storage.statement import Step, Value

_EVENTS_IN_A_ROW = 100

_encoder = msgspec.json.Encoder()


def bring(point: Adopt | Import) -> list[Step]:
    return _adopt(point) if isinstance(point, Adopt) else _import(point)


def _adopt(point: Adopt) -> list[Step]:
    thread = point.thread
    values: dict[str, Value] = {
        "tenant": point.caller.tenant,
        "principal": point.caller.principal,
        "now": point.now,
        "context": thread.context,
        "public_id": point.context_public,
        "thread": thread.id,
        "agent": thread.agent,
        "epoch": thread.epoch,
        "storage_owner": thread.owner.value,
        "handle_kind": thread.handle_kind.value,
        "handle": thread.handle,
        "generation": thread.generation,
        "adapter_state": None,
        "state_version": None,
        "lease_holder": None,
        "lease_until": None,
    }
    return [(compiled.NEW_CONTEXT, values), (compiled.NEW_THREAD, values)]


def _import(point: Import) -> list[Step]:
    document = point.document
    owned: dict[str, Value] = {"tenant": point.caller.tenant, "principal": point.caller.principal}
    context: dict[str, Value] = {
        **owned,
        "id": document.id,
        "public_id": document.context_id,
        "state": document.state,
        "created_at": document.created_at,
        # Whoever imports it wants to use it: its time begins anew.
        "last_used_at": point.now,
    }
    steps: list[Step] = [(compiled.IMPORT_CONTEXT, context)]
    for task in document.tasks:
        steps += _task(task, {**owned, "context": document.id})
    for thread in document.threads:
        steps += _thread(thread, document.id, owned)
    return steps


def _task(task: PortableTask, of: dict[str, Value]) -> list[Step]:
    row: dict[str, Value] = {
        **of,
        "id": task.id,
        "agent": task.agent,
        "visible": int(task.visible),
        "created_at": task.created_at,
        "last_event": task.last_event,
        "state": task.state.value,
        "status_at": task.status_at,
        "status_message": _json_or_null(task.status_message),
    }
    steps: list[Step] = [(compiled.IMPORT_TASK, row)]
    for first in range(0, len(task.events), _EVENTS_IN_A_ROW):
        payloads = [encode(event) for event in task.events[first : first + _EVENTS_IN_A_ROW]]
        events: dict[str, Value] = {
            "task": task.id,
            "first": first + 1,
            "last": first + len(payloads),
            "payload": b"\n".join(payloads).decode(),
        }
        steps.append((compiled.IMPORT_EVENTS, events))
    return steps


def _thread(thread: PortableThread, context: str, owned: dict[str, Value]) -> list[Step]:
    row: dict[str, Value] = {
        "id": thread.id,
        "context": context,
        "agent": thread.agent,
        "epoch": thread.epoch,
        "storage_owner": thread.owner.value,
        "handle_kind": thread.handle_kind.value,
        "handle": thread.handle,
        "clean_handle": thread.clean_handle,
        "generation": thread.generation,
        "state": thread.state,
        "state_version": thread.state_version,
        "adapter_state": _json_or_null(thread.adapter_state),
    }
    steps: list[Step] = [(compiled.IMPORT_THREAD, row)]
    for turn in thread.turns:
        steps.append((compiled.IMPORT_TURN, _turn(turn, thread.id)))
        steps += [
            (compiled.IMPORT_INPUT, _input(given, turn.id, {**owned, "agent": thread.agent})) for given in turn.inputs
        ]
        for call in turn.calls:
            steps.append((compiled.IMPORT_CALL, _call(call, turn.id)))
            steps += [(compiled.IMPORT_TOOL_CALL, _tool_call(made, call.id)) for made in call.tool_calls]
    messages = {(turn.id, given.ordinal): given.message for turn in thread.turns for given in turn.inputs}
    steps += [(compiled.IMPORT_ITEM, _item(item, thread.id, messages)) for item in thread.items]
    return steps


def _turn(turn: PortableTurn, thread: str) -> dict[str, Value]:
    return {
        "id": turn.id,
        "task": turn.task,
        "thread": thread,
        "number": turn.number,
        "base_generation": turn.base_generation,
        "status": turn.status,
        "failure_class": turn.failure_class,
        "displaced": int(turn.displaced),
        "accepted_at": turn.accepted_at,
        "ended_at": turn.ended_at,
        "last_event": turn.last_event,
        "messages": _json(turn.messages),
        "artifacts": _json(turn.artifacts),
    }


def _input(given: PortableInput, turn: str, of: dict[str, Value]) -> dict[str, Value]:
    return {
        **of,
        "turn": turn,
        "ordinal": given.ordinal,
        "message_id": given.message.message_id,
        "digest": given.digest,
        "key_kind": given.key_kind,
        "key": given.key,
        "received_at": given.received_at,
        "event": given.event,
        "payload": _json(given.message),
    }


def _call(call: PortableCall, turn: str) -> dict[str, Value]:
    return {
        "id": call.id,
        "turn": turn,
        "round": call.round,
        "attempt": call.attempt,
        "status": call.status,
        "error_class": call.error_class,
        "handle_in": call.handle_in,
        "pending_handle": call.pending_handle,
        "handle_out": call.handle_out,
        "prepared_at": call.prepared_at,
        "ended_at": call.ended_at,
        "usage": _json_or_null(call.usage),
        "weight": call.weight,
    }


def _tool_call(made: PortableToolCall, service_call: str) -> dict[str, Value]:
    return {
        "id": made.id,
        "service_call": service_call,
        "sequence": made.sequence,
        "external_id": made.external_id,
        "name": made.name,
        "executor": made.executor,
        "server": made.server,
        "status": made.status,
        "digest": made.digest,
        "approval_required": int(made.approval_required),
        "approval_decision": made.approval_decision,
        "approval_by": made.approval_by,
        "approval_at": made.approval_at,
        "approval_expires_at": made.approval_expires_at,
        "approval_consumed_at": made.approval_consumed_at,
        "arguments": made.arguments,
        "outcome": None if made.outcome is UNSET else _json(made.outcome),
    }


def _item(item: PortableItem, thread: str, messages: Mapping[tuple[str, int], Message]) -> dict[str, Value]:
    what = item.item or UserItem(messages[item.turn, item.input or 0])
    return {
        "thread": thread,
        "position": item.position,
        "turn": item.turn,
        "input": item.input,
        "service_call": item.service_call,
        "tool_call": item.tool_call,
        "kind": kind(what),
        "provider_id": item.provider_id,
        "item_group": item.item_group,
        "replayable": int(item.replayable),
        "sent_in": item.sent_in,
        "weight": weight(what),
        "payload": None if item.item is None else conversation.encode(item.item).decode(),
    }


def _json(value: Json) -> str:
    return _encoder.encode(value).decode()


def _json_or_null(value: Json) -> str | None:
    return None if value is None else _json(value)
