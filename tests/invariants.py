"""What must be true of every database, whatever happened to the processes that wrote it.

`violations` reads it through a connection of its own and says in words what is not so. The numbers are those of the
invariants in the state model.
"""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from gateway.items import HandleKind, HistoryRecord, Ownership, StorageOwner, UserItem, decode
from gateway.model import Message, Part, Role
from gateway.projection import project

_FINAL = frozenset(f"TASK_STATE_{word}" for word in ("COMPLETED", "FAILED", "CANCELED", "REJECTED"))
_WAITING = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})
_UNDER_WAY = frozenset({"prepared", "sent", "started", "emitting"})

Row = dict[str, Any]
Database = Callable[..., list[Row]]


def violations(path: Path, *, settled: bool = True) -> list[str]:
    """`settled`: nothing runs and every lease has run out, so that every turn must have ended."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")

        def rows(sql: str, *values: object) -> list[Row]:
            return [dict(row) for row in connection.execute(sql, values)]

        found = [
            *_owners(rows),
            *_handles(rows),
            *_tool_calls(rows),
            *_items(rows),
            *_generations(rows),
            *_inputs(rows),
            *_events(rows),
        ]
        return [*found, *_ends(rows)] if settled else found


def _owners(rows: Database) -> Iterator[str]:
    for row in rows(
        "SELECT context, agent, count(*) AS live FROM thread WHERE state NOT IN ('closed', 'expired', 'deleted')"
        " GROUP BY context, agent HAVING live > 1"
    ):
        yield f"I1: {row['live']} live threads of context {row['context']} on {row['agent']}"
    for row in rows(
        "SELECT service_call.id FROM service_call JOIN turn ON turn.id = turn JOIN thread ON thread.id = turn.thread"
        " WHERE storage_owner = 'gateway' AND (handle_in IS NOT NULL OR handle_out IS NOT NULL)"
    ):
        yield f"I1: call {row['id']} has a handle where the gateway keeps the conversation"


def _handles(rows: Database) -> Iterator[str]:
    """The chain of completed calls is one line, begun anew at most in another epoch, and the thread stands at its end."""
    calls = rows(
        "SELECT turn.thread, epoch, service_call.* FROM service_call JOIN turn ON turn.id = service_call.turn"
        " JOIN thread ON thread.id = turn.thread"
        " WHERE service_call.status = 'completed' ORDER BY turn.thread, turn.number, round, attempt"
    )
    ends: dict[str, str | None] = {}
    for call in calls:
        expected = ends.get(call["thread"])
        rebuilt = call["epoch"] > 1 and call["handle_in"] is None
        if call["handle_in"] != expected and not rebuilt:
            yield f"I3: call {call['id']} began at {call['handle_in']} and not where the chain stood, at {expected}"
        ends[call["thread"]] = call["handle_out"]
    for row in rows("SELECT id, handle FROM thread WHERE state <> 'deleted'"):
        if row["handle"] != ends.get(row["id"]):
            yield f"I3: thread {row['id']} stands at {row['handle']}, its last call at {ends.get(row['id'])}"


def _tool_calls(rows: Database) -> Iterator[str]:
    for row in rows(
        "SELECT tool_call.id FROM tool_call JOIN service_call ON service_call.id = service_call"
        " JOIN turn ON turn.id = turn WHERE turn.ended_at IS NOT NULL AND outcome IS NULL"
    ):
        yield f"I4: tool call {row['id']} of an ended turn has no outcome"
    calls = rows("SELECT service_call, sequence FROM tool_call ORDER BY service_call, sequence")
    for call, group in groupby(calls, key=lambda row: row["service_call"]):
        if [row["sequence"] for row in group] != list(range(sum(1 for row in calls if row["service_call"] == call))):
            yield f"I8: the tool calls of {call} are not numbered from 0 on"


def _items(rows: Database) -> Iterator[str]:
    for thread in rows("SELECT * FROM thread WHERE state <> 'deleted'"):
        items = rows(
            "SELECT history_item.*, number FROM history_item JOIN turn ON turn.id = turn"
            " WHERE history_item.thread = ? ORDER BY number, position",
            thread["id"],
        )
        positions = sorted(row["position"] for row in items)
        if positions != list(range(1, len(items) + 1)):
            yield f"I6: thread {thread['id']} has the positions {positions}"
        if items:
            yield from _view(thread, items)


def _view(thread: Row, items: list[Row]) -> Iterator[str]:
    """What the next message would send, with itself as the last item."""
    ownership = Ownership(StorageOwner(thread["storage_owner"]), HandleKind(thread["handle_kind"]))
    number = items[-1]["number"] + 1
    records = [_record(row) for row in items]
    new = HistoryRecord(len(records) + 1, number, _user("next"), turn_id="next")
    view = project(ownership, [*records, new], "next").items
    if not isinstance(view[-1], UserItem):
        yield f"I7: the view of thread {thread['id']} does not end with the message"
    open_calls: list[str] = []
    for item in view:
        match item.__struct_config__.tag:
            case "call":
                open_calls.append(item.call_id)  # type: ignore[union-attr]
            case "output" if item.call_id in open_calls:  # type: ignore[union-attr]
                open_calls.remove(item.call_id)  # type: ignore[union-attr]
            case "output" if ownership.owner is StorageOwner.GATEWAY:
                yield f"I7: the view of thread {thread['id']} has an output without its call"
            case "user" if open_calls:
                yield f"I5: the view of thread {thread['id']} has a message behind the open calls {open_calls}"
    if open_calls:
        yield f"I7: the view of thread {thread['id']} leaves the calls {open_calls} open"


def _record(row: Row) -> HistoryRecord:
    item = _user("?") if row["payload"] is None else decode(row["payload"])
    return HistoryRecord(
        row["position"], row["number"], item, None, row["sent_in"], bool(row["replayable"]), row["turn"]
    )


def _user(text: str) -> UserItem:
    return UserItem(Message(message_id="m", role=Role.USER, parts=(Part(text=text),)))


def _generations(rows: Database) -> Iterator[str]:
    """Turns of one thread have run one after another, each in a later generation."""
    turns = rows(
        "SELECT thread, number, base_generation FROM turn WHERE base_generation IS NOT NULL"
        " ORDER BY thread, base_generation, number"
    )
    for before, after in pairwise(turns):
        if before["thread"] == after["thread"] and before["base_generation"] == after["base_generation"]:
            numbers = before["number"], after["number"]
            yield f"I10: turns {numbers} of thread {after['thread']} ran in one generation"
    for row in rows(
        "SELECT turn.id FROM turn JOIN thread ON thread.id = turn.thread WHERE base_generation > generation"
    ):
        yield f"I10: turn {row['id']} is ahead of its thread"
    for row in rows("SELECT thread, count(*) AS n FROM turn WHERE status = 'running' GROUP BY thread HAVING n > 1"):
        yield f"I10: {row['n']} turns of thread {row['thread']} run at once"


def _inputs(rows: Database) -> Iterator[str]:
    for row in rows(
        "SELECT turn.id, (SELECT count(*) FROM input WHERE input.turn = turn.id AND ordinal = 0) AS inputs,"
        " (SELECT count(*) FROM history_item WHERE history_item.turn = turn.id AND input IS NOT NULL) AS items FROM turn"
    ):
        if (row["inputs"], row["items"]) != (1, 1):
            yield f"turn {row['id']} has {row['inputs']} messages and {row['items']} items of them"
    for row in rows("SELECT id FROM task WHERE id NOT IN (SELECT task FROM turn)"):
        yield f"task {row['id']} has no turn"


def _events(rows: Database) -> Iterator[str]:
    for task in rows("SELECT * FROM task"):
        groups = rows("SELECT first, last, payload FROM event WHERE task = ? ORDER BY last", task["id"])
        numbers = [number for row in groups for number in range(row["first"], row["last"] + 1)]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"the events of task {task['id']} have a gap or a repeat: {numbers}"
        events = [json.loads(line) for row in groups for line in row["payload"].split("\n")]
        if len(events) != len(numbers):
            yield f"the groups of task {task['id']} hold {len(events)} events under {len(numbers)} numbers"
        states = [event["statusUpdate"]["status"]["state"] for event in events if "statusUpdate" in event]
        ends = [state for state in states if state in _FINAL]
        if task["state"] in _FINAL:
            if ends != [task["state"]] or states[-1] != task["state"] or "statusUpdate" not in events[-1]:
                yield f"task {task['id']} is {task['state']} and its log ends with {states[-3:]}"
            if task["last_event"] != len(numbers):
                yield f"task {task['id']} has {len(numbers)} events and says {task['last_event']}"
        elif ends:
            yield f"task {task['id']} is {task['state']} and its log has ended: {ends}"


def _ends(rows: Database) -> Iterator[str]:
    for row in rows("SELECT id, state FROM task"):
        if row["state"] not in _FINAL | _WAITING:
            yield f"task {row['id']} is still {row['state']}"
    for row in rows("SELECT id, status FROM turn WHERE ended_at IS NULL AND status <> 'waiting'"):
        yield f"turn {row['id']} is still {row['status']}"
    for row in rows("SELECT service_call.id, service_call.status FROM service_call JOIN turn ON turn.id = turn"):
        if row["status"] in _UNDER_WAY:
            yield f"call {row['id']} is still {row['status']}"
