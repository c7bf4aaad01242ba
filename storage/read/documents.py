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
from storage.compiled import EXPORTED_COLUMNS
from storage.read.rows import decoded, json_or_null, usage_or_null
from storage.statement import Row

_message = msgspec.json.Decoder(Message)
_messages = msgspec.json.Decoder(tuple[Message, ...])
_values = msgspec.json.Decoder(tuple[Any, ...])
_event = msgspec.json.Decoder(StreamResponse)

T = TypeVar("T")

Rows = Sequence[Row]
Nested = dict[str, list[T]]
Fields = dict[str, Any]


def document(
    context: Row, threads: Rows, tasks: Rows, turns: Rows, inputs: Rows, calls: Rows, tool_calls: Rows, all_items: Rows,
    events: Rows,
) -> ContextDocument:  # fmt: skip
    """Rows as the queries of `storage.sql.documents` give them. Raises: CorruptRecord."""
    tools_of = _grouped(tool_calls, "tool_call", "service_call", _tool_call)
    calls_of = _grouped(calls, "service_call", "turn", lambda row: _call(row, tools_of))
    inputs_of = _grouped(inputs, "input", "turn", _input)
    turns_of = _grouped(turns, "turn", "thread", lambda row: _turn(row, inputs_of, calls_of))
    items_of = _grouped(all_items, "history_item", "thread", _item)
    events_of = _grouped(events, "event", "task", _events)
    fields = _fields("context", context)
    return ContextDocument(
        format=FORMAT,
        version=VERSION,
        context_id=fields.pop("public_id"),
        tasks=tuple(_task(_fields("task", row), events_of) for row in tasks),
        threads=tuple(_thread(_fields("thread", row), turns_of, items_of) for row in threads),
        **fields,
    )


def _fields(table: str, row: Row) -> Fields:
    """The columns of a row by name; most of them are the fields of the record."""
    return dict(zip(EXPORTED_COLUMNS[table], row, strict=True))


def _grouped(rows: Rows, table: str, owner: str, record: Callable[[Fields], T]) -> Nested[T]:
    nested: Nested[T] = defaultdict(list)
    for row in rows:
        fields = _fields(table, row)
        nested[fields[owner]].append(record(fields))
    return nested


def _task(fields: Fields, events: Nested[tuple[StreamResponse, ...]]) -> PortableTask:
    owner = f"task {fields['id']!r}"
    del fields["context"]
    message = fields["status_message"]
    fields["visible"] = bool(fields["visible"])
    fields["state"] = TaskState(fields["state"])
    fields["status_message"] = None if message is None else decoded(_message.decode, message, owner)
    return PortableTask(**fields, events=tuple(event for group in events[fields["id"]] for event in group))


def _events(fields: Fields) -> tuple[StreamResponse, ...]:
    return tuple(decoded(_event.decode, line, f"task {fields['task']!r}") for line in fields["payload"].split("\n"))


def _thread(fields: Fields, turns: Nested[PortableTurn], all_items: Nested[PortableItem]) -> PortableThread:
    thread = fields["id"]
    del fields["context"]
    fields["owner"] = StorageOwner(fields.pop("storage_owner"))
    fields["handle_kind"] = HandleKind(fields["handle_kind"])
    fields["adapter_state"] = json_or_null(fields["adapter_state"], f"thread {thread!r}")
    return PortableThread(**fields, turns=tuple(turns[thread]), items=tuple(all_items[thread]))


def _turn(fields: Fields, inputs: Nested[PortableInput], calls: Nested[PortableCall]) -> PortableTurn:
    turn, owner = fields["id"], f"task {fields['task']!r}"
    del fields["thread"]
    fields["displaced"] = bool(fields["displaced"])
    fields["messages"] = decoded(_messages.decode, fields["messages"], owner)
    fields["artifacts"] = decoded(_values.decode, fields["artifacts"], owner)
    fields["usage"] = usage_or_null(fields["usage"], owner)
    return PortableTurn(**fields, inputs=tuple(inputs[turn]), calls=tuple(calls[turn]))


def _input(fields: Fields) -> PortableInput:
    owner = f"turn {fields.pop('turn')!r}"
    del fields["message_id"]
    return PortableInput(message=decoded(_message.decode, fields.pop("payload"), owner), **fields)


def _call(fields: Fields, tools: Nested[PortableToolCall]) -> PortableCall:
    call = fields["id"]
    del fields["turn"]
    fields["usage"] = json_or_null(fields["usage"], f"service call {call!r}")
    return PortableCall(**fields, tool_calls=tuple(tools[call]))


def _tool_call(fields: Fields) -> PortableToolCall:
    owner = f"tool call {fields['id']!r}"
    del fields["service_call"]
    fields["approval_required"] = bool(fields["approval_required"])
    fields["outcome"] = UNSET if fields["outcome"] is None else json_or_null(fields["outcome"], owner)
    return PortableToolCall(**fields)


def _item(fields: Fields) -> PortableItem:
    owner = f"thread {fields.pop('thread')!r}"
    del fields["kind"]
    payload = fields.pop("payload")
    fields["replayable"] = bool(fields["replayable"])
    item = None if payload is None else decoded(conversation.decode, payload, owner)
    return PortableItem(**fields, item=item)
