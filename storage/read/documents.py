"""The rows of a context as a document. Law: an unreadable row is an error that names its owner; no row is left out."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from gateway.a2a.model import Message, StreamResponse, TaskState
from gateway.ledger.documents import (
    FORMAT,
    VERSION,
    ContextDocument,
    PortableCall,
    PortableInput,
    PortableItem,
    PortableTask,
    PortableThread,
    PortableToolCall,
    PortableTurn,
)
from gateway.ports import conversation
from gateway.ports.conversation import HandleKind, StorageOwner
from storage.read.inline import Row
from storage.read.rows import decoded, json_or_null

_message = msgspec.json.Decoder(Message)
_messages = msgspec.json.Decoder(tuple[Message, ...])
_values = msgspec.json.Decoder(tuple[Any, ...])
_event = msgspec.json.Decoder(StreamResponse)

T = TypeVar("T")

Rows = Sequence[Row]
Below = dict[str, list[T]]


def document(
    context: Row, threads: Rows, tasks: Rows, turns: Rows, inputs: Rows, calls: Rows, tool_calls: Rows, all_items: Rows,
    events: Rows,
) -> ContextDocument:  # fmt: skip
    """Rows as the queries of `storage.sql.documents` give them. Raises: CorruptRecord."""
    context_row, public_id, state, created_at, last_used_at = context
    tools_of = _grouped(tool_calls, 1, _tool_call)
    calls_of = _grouped(calls, 1, lambda row: _call(row, tools_of))
    inputs_of = _grouped(inputs, 0, _input)
    turns_of = _grouped(turns, 2, lambda row: _turn(row, inputs_of, calls_of))
    items_of = _grouped(all_items, 0, _item)
    events_of = _grouped(events, 0, _events)
    return ContextDocument(
        format=FORMAT,
        version=VERSION,
        id=context_row,
        context_id=public_id,
        state=state,
        created_at=created_at,
        last_used_at=last_used_at,
        tasks=tuple(_task(row, events_of) for row in tasks),
        threads=tuple(_thread(row, turns_of, items_of) for row in threads),
    )


def _grouped(rows: Rows, key: int, made: Callable[[Row], T]) -> Below[T]:
    below: Below[T] = defaultdict(list)
    for row in rows:
        below[row[key]].append(made(row))
    return below


def _task(row: Row, events: Below[tuple[StreamResponse, ...]]) -> PortableTask:
    task_id, _, agent, visible, created_at, last_event, state, status_at, message = row
    return PortableTask(
        id=task_id,
        agent=agent,
        visible=bool(visible),
        created_at=created_at,
        last_event=last_event,
        state=TaskState(state),
        status_at=status_at,
        status_message=None if message is None else decoded(_message.decode, message, f"task {task_id!r}"),
        events=tuple(event for group in events[task_id] for event in group),
    )


def _events(row: Row) -> tuple[StreamResponse, ...]:
    task_id, _, _, payload = row
    return tuple(decoded(_event.decode, line, f"task {task_id!r}") for line in payload.split("\n"))


def _thread(row: Row, turns: Below[PortableTurn], all_items: Below[PortableItem]) -> PortableThread:
    thread_id, _, agent, epoch, owner, handle_kind, *handles, generation, state, version, adapter_state = row
    handle, clean_handle = handles
    return PortableThread(
        id=thread_id,
        agent=agent,
        epoch=epoch,
        owner=StorageOwner(owner),
        handle_kind=HandleKind(handle_kind),
        handle=handle,
        clean_handle=clean_handle,
        generation=generation,
        state=state,
        state_version=version,
        adapter_state=json_or_null(adapter_state, f"thread {thread_id!r}"),
        turns=tuple(turns[thread_id]),
        items=tuple(all_items[thread_id]),
    )


def _turn(row: Row, inputs: Below[PortableInput], calls: Below[PortableCall]) -> PortableTurn:
    turn_id, task, _, number, base, status, failure, displaced, *times, last_event, messages, artifacts = row
    accepted_at, ended_at = times
    owner = f"task {task!r}"
    return PortableTurn(
        id=turn_id,
        task=task,
        number=number,
        base_generation=base,
        status=status,
        failure_class=failure,
        displaced=bool(displaced),
        accepted_at=accepted_at,
        ended_at=ended_at,
        last_event=last_event,
        messages=decoded(_messages.decode, messages, owner),
        artifacts=decoded(_values.decode, artifacts, owner),
        inputs=tuple(inputs[turn_id]),
        calls=tuple(calls[turn_id]),
    )


def _input(row: Row) -> PortableInput:
    turn, ordinal, _, digest, key_kind, key, received_at, event, payload = row
    return PortableInput(
        ordinal=ordinal,
        message=decoded(_message.decode, payload, f"turn {turn!r}"),
        digest=digest,
        key_kind=key_kind,
        key=key,
        received_at=received_at,
        event=event,
    )


def _call(row: Row, tools: Below[PortableToolCall]) -> PortableCall:
    call_id, _, number, attempt, status, error_class, *handles, prepared_at, ended_at, usage, weight = row
    handle_in, pending, handle_out = handles
    return PortableCall(
        id=call_id,
        round=number,
        attempt=attempt,
        status=status,
        error_class=error_class,
        handle_in=handle_in,
        pending_handle=pending,
        handle_out=handle_out,
        prepared_at=prepared_at,
        ended_at=ended_at,
        usage=json_or_null(usage, f"service call {call_id!r}"),
        weight=weight,
        tool_calls=tuple(tools[call_id]),
    )


def _tool_call(row: Row) -> PortableToolCall:
    call_id, _, sequence, external_id, name, executor, server, status, digest, *approval, arguments, outcome = row
    required, decision, by, at, expires_at, consumed_at = approval
    return PortableToolCall(
        id=call_id,
        sequence=sequence,
        external_id=external_id,
        name=name,
        executor=executor,
        server=server,
        status=status,
        digest=digest,
        approval_required=bool(required),
        approval_decision=decision,
        approval_by=by,
        approval_at=at,
        approval_expires_at=expires_at,
        approval_consumed_at=consumed_at,
        arguments=arguments,
        outcome=UNSET if outcome is None else json_or_null(outcome, f"tool call {call_id!r}"),
    )


def _item(row: Row) -> PortableItem:
    thread, position, turn, given, service_call, tool_call, _, provider_id, group, replayable, sent_in, payload = row
    return PortableItem(
        position=position,
        turn=turn,
        input=given,
        service_call=service_call,
        tool_call=tool_call,
        provider_id=provider_id,
        item_group=group,
        replayable=bool(replayable),
        sent_in=sent_in,
        item=None if payload is None else decoded(conversation.decode, payload, f"thread {thread!r}"),
    )
