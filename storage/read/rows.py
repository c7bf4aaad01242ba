"""Rows as records. Law: an unreadable row is a CorruptRecord that names its owner."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import msgspec

from gateway.a2a.model import Json, Message, Role, TaskState
from gateway.ledger.api_keys import ApiKey
from gateway.ledger.calls import LatestCall
from gateway.ledger.errors import CorruptRecord
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus
from gateway.ledger.tasks import REFUSALS, StoredArtifact, TaskRecord, TurnRecord, Usage
from gateway.ledger.threads import ThreadRecord
from gateway.ledger.tool_calls import AskedCall, ToolCallRecord
from gateway.ledger.turns import Preferences
from gateway.ports import conversation
from gateway.ports.conversation import HandleKind, HistoryRecord, StorageOwner, UserItem
from storage.read.inline import Row

message_decoder = msgspec.json.Decoder(Message)
_messages_decoder = msgspec.json.Decoder(tuple[Message, ...])
_artifacts_decoder = msgspec.json.Decoder(tuple[StoredArtifact, ...])
_usage_decoder = msgspec.json.Decoder(Usage)
_reports_decoder = msgspec.json.Decoder(tuple[Json, ...])
_value_decoder = msgspec.json.Decoder()
preferences_decoder = msgspec.json.Decoder(Preferences)

P = TypeVar("P")
T = TypeVar("T")

_in_order = itemgetter(2, 0)
"""Each turn is accepted after the end of the turn before it, and that end was an event."""

_LEFT_OUT = Message(message_id="", role=Role.USER, parts=())


def decoded(decode: Callable[[P], T], payload: P, owner: str) -> T:
    """Raises: CorruptRecord."""
    try:
        return decode(payload)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise CorruptRecord(f"a row of {owner} cannot be read: {error}") from error


def json_or_null(payload: str | None, owner: str) -> Json:
    """Raises: CorruptRecord."""
    return None if payload is None else decoded(_value_decoder.decode, payload, owner)


def usage_or_null(payload: str | None, owner: str) -> Usage | None:
    """Raises: CorruptRecord."""
    return None if payload is None else decoded(_usage_decoder.decode, payload, owner)


def thread(row: Row | list[Any]) -> ThreadRecord:
    thread_id, context, agent, epoch, owner, handle_kind, handle, generation, state, lost, version, *rest = row
    unsynced, secret = rest
    owner, handle_kind, lost, unsynced = StorageOwner(owner), HandleKind(handle_kind), bool(lost), bool(unsynced)
    state, version = json_or_null(state, f"thread {thread_id!r}"), version or 1
    return ThreadRecord(
        thread_id, context, agent, epoch, owner, handle_kind, handle, generation, state, lost, version, unsynced, secret
    )


def task(row: Row | list[Any]) -> TaskRecord:
    task_id, context, context_id, agent, state, message, status_at, last_event, visible = row
    if message is not None:
        message = decoded(message_decoder.decode, message, f"task {task_id!r}")
    visible = bool(visible)
    return TaskRecord(task_id, context, context_id, agent, TaskState(state), message, status_at, last_event, visible)


def turns(task_id: str, rows: Sequence[Row]) -> tuple[TurnRecord, ...]:
    """A turn has a row for its first message and one for each further message. `rows` have any order."""
    if len(rows) == 1:
        return (decoded(_turn, rows[0], f"task {task_id!r}"),)
    return decoded(_in_turns, rows, f"task {task_id!r}")


def _in_turns(rows: Sequence[Row]) -> tuple[TurnRecord, ...]:
    turns: list[TurnRecord] = []
    for row in sorted(rows, key=_in_order):
        if row[0] == 0:
            turns.append(_turn(row))
            continue
        turns[-1] = msgspec.structs.replace(turns[-1], answers=(*turns[-1].answers, (row[2], _message(row[1]))))
    return tuple(turns)


def _message(payload: str | None) -> Message:
    """An empty message when the query has left it out."""
    return _LEFT_OUT if payload is None else message_decoder.decode(payload)


def _turn(row: Row) -> TurnRecord:
    _, payload, event, ended_at, quarantined, usage, reports, refused, messages, artifacts, _ = row
    # By position, and without a function for each column: a page of tasks has fifty of them.
    return TurnRecord(
        _LEFT_OUT if payload is None else message_decoder.decode(payload),
        event,
        None if messages is None else _messages_decoder.decode(messages),
        None if artifacts is None else _artifacts_decoder.decode(artifacts),
        ended_at is not None,
        (),
        ended_at is None and bool(quarantined),
        None if usage is None else _usage_decoder.decode(usage),
        () if reports is None else _reports_decoder.decode(f"[{reports}]"),
        None if refused is None else REFUSALS[refused],
    )


def api_key(row: Row) -> ApiKey:
    digest, name, prefix, principal, tenant, admin, *times = row
    return ApiKey(digest, name, prefix, principal, tenant, bool(admin), *times)


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
