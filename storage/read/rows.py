"""Rows as records. Law: an unreadable row is a CorruptRecord that names its owner."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from gateway.a2a.model import Json, Message, Role, TaskState
from gateway.ledger.api_keys import ApiKey
from gateway.ledger.calls import LatestCall
from gateway.ledger.errors import CorruptRecord
from gateway.ledger.quotas import CallerUse
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus, TurnStatus
from gateway.ledger.tasks import REFUSALS, ListedTask, StoredArtifact, TaskRecord, TurnRecord, Usage
from gateway.ledger.threads import ThreadRecord
from gateway.ledger.tool_calls import AskedCall, ToolCallRecord
from gateway.ledger.traces import RecordedCall, RecordedTool, RecordedTurn
from gateway.ledger.turns import Preferences
from gateway.ports import conversation
from gateway.ports.conversation import HandleKind, HistoryRecord, StorageOwner, UserItem
from storage.statement import Row

message_decoder = msgspec.json.Decoder(Message)
_usage_decoder = msgspec.json.Decoder(Usage)
_value_decoder = msgspec.json.Decoder()
preferences_decoder = msgspec.json.Decoder(Preferences)
use_decoder = msgspec.json.Decoder(tuple[CallerUse, ...])

P = TypeVar("P")
T = TypeVar("T")

_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises for a damaged text, and for one that is nested too deep."""

_in_order = attrgetter("event", "ordinal")
"""Each turn is accepted after the end of the turn before it, and that end was an event."""

_STATES = {state.value: state for state in TaskState}

_LISTED = 8
"""The number of columns of a task of a list."""

_LEFT_OUT = Message(message_id="", role=Role.USER, parts=())


def decoded(decode: Callable[[P], T], payload: P, owner: str) -> T:
    """Raises: CorruptRecord."""
    try:
        return decode(payload)
    except _UNREADABLE as error:
        raise _unreadable(owner, error) from error


def _unreadable(owner: str, error: Exception) -> CorruptRecord:
    return CorruptRecord(f"a row of {owner} cannot be read: {error}")


def json_or_null(payload: str | None, owner: str) -> Json:
    """Raises: CorruptRecord."""
    return None if payload is None else decoded(_value_decoder.decode, payload, owner)


def usage_or_null(payload: str | None, owner: str) -> Usage | None:
    """Raises: CorruptRecord."""
    return None if payload is None else decoded(_usage_decoder.decode, payload, owner)


def thread(row: Row | list[Any]) -> ThreadRecord:
    thread_id, context, agent, epoch, owner, handle_kind, handle, generation, state, lost, version, *rest = row
    unsynced, secret, withdraws = rest
    owner, handle_kind = StorageOwner(owner), HandleKind(handle_kind)
    state, version = json_or_null(state, f"thread {thread_id!r}"), version or 1
    marks = bool(lost), version, bool(unsynced), secret, bool(withdraws)
    return ThreadRecord(thread_id, context, agent, epoch, owner, handle_kind, handle, generation, state, *marks)


def task(row: Row | list[Any]) -> TaskRecord:
    task_id, context, context_id, agent, state, message, status_at, last_event, visible, created_at = row
    if message is not None:
        message = decoded(message_decoder.decode, message, f"task {task_id!r}")
    return TaskRecord(
        task_id, context, context_id, agent, _STATES[state], message, status_at, last_event, bool(visible), created_at
    )


class TurnRow(msgspec.Struct, array_like=True, forbid_unknown_fields=True, frozen=True, gc=False):
    """One message of a turn, as the database writes it. Message and messages are null where the history is left out; what both
    sides said and made stands beside the first message alone. `quarantined` is null for a turn that has ended; `tokens` are
    those of the turn, or the reports of its service calls."""

    ordinal: int
    message: Message | None
    messages: tuple[Message, ...] | None
    artifacts: tuple[StoredArtifact, ...] | None
    event: int
    quarantined: bool | None
    tokens: Usage | tuple[Json, ...] | None
    refused: int | None


_turn_decoder = msgspec.json.Decoder(TurnRow)


def turns(task_id: str, rows: Sequence[bytes]) -> tuple[TurnRecord, ...]:
    """A turn has a row for its first message and one for each further message. `rows` have any order.

    Raises: CorruptRecord.
    """
    try:
        if len(rows) == 1:
            return (_turn(_turn_decoder.decode(rows[0])),)
        found = [*map(_turn_decoder.decode, rows)]
    except _UNREADABLE as error:
        raise _unreadable(f"task {task_id!r}", error) from error
    turns: list[TurnRecord] = []
    for row in sorted(found, key=_in_order):
        if row.ordinal == 0:
            turns.append(_turn(row))
            continue
        turns[-1] = msgspec.structs.replace(
            turns[-1], answers=(*turns[-1].answers, (row.event, row.message or _LEFT_OUT))
        )
    return tuple(turns)


def _turn(row: TurnRow) -> TurnRecord:
    quarantined, tokens, refused = row.quarantined, row.tokens, row.refused
    return TurnRecord(
        row.message or _LEFT_OUT,
        row.event,
        row.messages,
        row.artifacts,
        quarantined is None,
        (),
        quarantined is True,
        None if isinstance(tokens, tuple) else tokens,
        tokens if isinstance(tokens, tuple) else (),
        None if refused is None else REFUSALS[refused],
    )


def listed(row: Row, agent: str, of_turns: Sequence[bytes]) -> ListedTask:
    """A task of this agent from a list, and the rows of its turns. What follows the task in its row is left aside."""
    task_id, context, context_id, state, message, status_at, last_event, created_at = row[:_LISTED]
    size, said = sum(map(len, of_turns)), None
    try:
        if message is not None:
            size += len(message)
            said = decoded(message_decoder.decode, message, f"task {task_id!r}")
        shown: tuple[TurnRecord, ...] | CorruptRecord = turns(task_id, of_turns)
    except CorruptRecord as error:
        shown = error
    record = TaskRecord(
        task_id, context, context_id, agent, _STATES[state], said, status_at, last_event, True, created_at
    )
    return ListedTask(record, shown, size, last_event)


def api_key(row: Row) -> ApiKey:
    digest, name, prefix, principal, tenant, admin, *times = row
    return ApiKey(digest, name, prefix, principal, tenant, bool(admin), *times)


def recorded_turn(row: Row, calls: Sequence[Row], tools: Sequence[Row], owner: str) -> RecordedTurn:
    """Raises: CorruptRecord."""
    trace, accepted_at, ended_at, process, status, failure = row
    of_calls = tuple(
        [
            RecordedCall(number, attempt, error, began, first, ended, json_or_null(usage, owner))
            for number, attempt, error, began, first, ended, usage in calls
        ]
    )
    of_tools = tuple(
        [
            RecordedTool(id_, name, server, ToolCallStatus(state), began, ended)
            for id_, name, server, state, began, ended in tools
        ]
    )
    return RecordedTurn(trace, accepted_at, ended_at, process, TurnStatus(status), failure, of_calls, of_tools)


def latest_call(row: Row) -> LatestCall:
    call_id, number, attempt, status, *rest = row
    return LatestCall(call_id, number, attempt, ServiceCallStatus(status), *rest)


def tool_call(row: Sequence[Any]) -> ToolCallRecord:
    record = ToolCallRecord(*row)
    return msgspec.structs.replace(record, status=ToolCallStatus(record.status))


def asked(row: Row) -> AskedCall:
    *call, digest, decision, expires_at, outcome = row
    return AskedCall(tool_call(call), digest, decision, expires_at, json_or_null(outcome, f"tool call {row[0]!r}"))


def item(thread_id: str, row: Row) -> HistoryRecord:
    position, turn, turn_id, payload, message, provider_id, sent_in, replayable, *rest = row
    failed, service_call, sequence, displaced, refused_in = rest
    owner = f"thread {thread_id!r}"
    if payload is None:
        item: conversation.Item = UserItem(decoded(message_decoder.decode, message, owner))
    else:
        item = decoded(conversation.decode, payload, owner)
    return HistoryRecord(
        position=position,
        turn=turn,
        item=item,
        provider_id=provider_id,
        sent_in=sent_in,
        replayable=bool(replayable),
        turn_id=turn_id,
        failed=bool(failed),
        service_call=service_call,
        sequence=sequence,
        displaced=bool(displaced),
        refused_in=refused_in,
    )


def numbered(task: str, rows: Sequence[Row], first: int) -> tuple[tuple[int, bytes], ...]:
    """The events with numbers from `first` on. Raises: CorruptRecord."""
    return tuple(
        (number, payload)
        for begin, last, payloads in rows
        for number, payload in zip(range(begin, last + 1), _lines(task, payloads, last - begin + 1), strict=True)
        if number >= first
    )


def _lines(task: str, payload: str, expected: int) -> list[bytes]:
    found = payload.encode().split(b"\n")
    if len(found) != expected:
        raise CorruptRecord(f"a row of task {task!r} holds {len(found)} events instead of {expected}")
    return found
