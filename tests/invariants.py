"""What must be true of every database, whatever happened to the processes that wrote it.

`violations` reads the database through a connection of its own and describes each violation. Source of the numbers:
docs/state-model.md, invariants.
"""

import json
from collections.abc import Iterator
from itertools import groupby, pairwise
from pathlib import Path

from gateway.a2a.model import Message, Part, Role
from gateway.a2a.tool_calls import URI
from gateway.core.history import project
from gateway.ledger.states import OPEN, UNDER_WAY
from gateway.ports.conversation import HandleKind, HistoryRecord, Ownership, StorageOwner, UserItem, decode
from tests.support.rows import Row, Rows, reading

_FINAL = frozenset(f"TASK_STATE_{word}" for word in ("COMPLETED", "FAILED", "CANCELED", "REJECTED"))
_WAITING = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})


def unsettled(path: Path) -> list[str]:
    """What still runs, or has no process that runs it. Cheap enough for frequent calls."""
    with reading(path) as rows:
        return list(_ends(rows))


def violations(path: Path, *, settled: bool = True) -> list[str]:
    """`settled`: nothing runs and every lease has run out, so that every turn must have ended."""
    with reading(path) as rows, rows.moment():
        found = [
            *_owners(rows),
            *_handles(rows),
            *_doubts(rows),
            *_tool_calls(rows),
            *_items(rows),
            *_generations(rows),
            *_inputs(rows),
            *_events(rows),
        ]
        return [*found, *_ends(rows)] if settled else found


def _owners(rows: Rows) -> Iterator[str]:
    for row in rows(
        "SELECT context, agent, count(*) AS live FROM thread WHERE state NOT IN ('closed', 'expired', 'deleted')"
        " GROUP BY context, agent HAVING count(*) > 1"
    ):
        yield f"I1: {row['live']} live threads of context {row['context']} on {row['agent']}"
    for row in rows(
        "SELECT service_call.id FROM service_call JOIN turn ON turn.id = turn JOIN thread ON thread.id = turn.thread"
        " WHERE storage_owner = 'gateway' AND (handle_in IS NOT NULL OR handle_out IS NOT NULL)"
    ):
        yield f"I1: call {row['id']} has a handle where the gateway keeps the conversation"


def _handles(rows: Rows) -> Iterator[str]:
    """The chain of completed calls is one line, begun anew at most in another epoch, and the thread stands at its end. It
    may begin with a call of unknown outcome that is known to have made the conversation. A turn that failed may be taken
    back as a whole: then the line goes on from where that turn began. One that was displaced is, always."""
    calls = rows(
        "SELECT turn.thread, epoch, turn.status AS ended, displaced, service_call.* FROM service_call"
        " JOIN turn ON turn.id = service_call.turn JOIN thread ON thread.id = turn.thread"
        " WHERE service_call.status = 'completed' OR (service_call.status = 'unknown' AND handle_kind = 'static'"
        " AND handle_in IS NULL AND pending_handle = thread.handle)"
        " ORDER BY turn.thread, turn.number, round, attempt"
    )
    ends: dict[str, str | None] = {}
    begins: dict[str, tuple[str, str | None]] = {}
    left: dict[str, str | None] = {}
    gone: set[str] = set()
    for call in calls:
        thread, turn = call["thread"], call["turn"]
        if thread in gone and begins[thread][0] != turn:
            ends[thread] = left[thread]
            gone.remove(thread)
        expected = ends.get(thread)
        rebuilt = call["epoch"] > 1 and call["handle_in"] is None
        taken_back = thread in left and begins[thread][0] != turn and call["handle_in"] == left[thread]
        if call["handle_in"] != expected and not rebuilt and not taken_back:
            yield f"I3: call {call['id']} began at {call['handle_in']} and not where the chain stood, at {expected}"
        if thread not in begins or begins[thread][0] != turn:
            begins[thread] = turn, call["handle_in"]
        ends[thread] = call["handle_out"] if call["status"] == "completed" else call["pending_handle"]
        left.pop(thread, None)
        if call["ended"] == "failed" or (call["ended"] == "cancelled" and call["displaced"]):
            left[thread] = begins[thread][1]
        if call["ended"] in ("failed", "cancelled") and call["displaced"]:
            gone.add(thread)
    # A closed row keeps an epoch that is over; its turns and their calls belong to the one that followed.
    for row in rows("SELECT id, epoch, handle FROM thread WHERE state NOT IN ('closed', 'deleted')"):
        end = ends.get(row["id"])
        back = left.get(row["id"], end)
        if row["id"] in gone:
            end = None if row["epoch"] > 1 else back
        if row["handle"] not in (end, back):
            yield f"I3: thread {row['id']} stands at {row['handle']}, its last call at {ends.get(row['id'])}"


def _doubts(rows: Rows) -> Iterator[str]:
    for row in rows(
        "SELECT thread.id FROM thread JOIN turn ON turn.thread = thread.id JOIN service_call ON service_call.turn = turn.id"
        " WHERE thread.state = 'unsynced' GROUP BY thread.id HAVING max(turn.number)"
        " > coalesce(max(CASE WHEN service_call.status = 'unknown' THEN turn.number END), 0)"
    ):
        yield f"I16: thread {row['id']} went on behind a call of unknown outcome that was not looked up"


def _tool_calls(rows: Rows) -> Iterator[str]:
    for row in rows(
        "SELECT tool_call.id FROM tool_call JOIN service_call ON service_call.id = service_call"
        " JOIN turn ON turn.id = turn WHERE turn.ended_at IS NOT NULL AND outcome IS NULL"
    ):
        yield f"I4: tool call {row['id']} of an ended turn has no outcome"
    calls = rows("SELECT service_call, sequence FROM tool_call ORDER BY service_call, sequence")
    for call, group in groupby(calls, key=lambda row: row["service_call"]):
        numbers = [row["sequence"] for row in group]
        if numbers != list(range(len(numbers))):
            yield f"I8: the tool calls of {call} are not numbered from 0 on"
    for row in rows("SELECT * FROM tool_call"):
        yield from _outcome(row)
    yield from _outputs(rows)
    yield from _rounds(rows)


_EXECUTORS = {
    "running": {"gateway"},
    "pending_consent": {"gateway"},
    "interrupted": {"gateway"},
    "not_found": {"gateway"},
    "external": {"backend"},
    "announced": {"gateway", "client"},
}
"""Whose a tool call of this status may be; any other may be anybody's."""

_PHASES = {"args-delta": 0, "requested": 1, "awaiting-approval": 2, "executing": 3, "progress": 4}
_LAST = 5
"""The phases of a tool call in their order; any other is its end."""

_RAN = frozenset({"running", "completed", "failed", "interrupted"})


def _outcome(call: Row) -> Iterator[str]:
    """One outcome in the words of who answered; an approval that was needed is there and used up before its tool runs."""
    status, executor = call["status"], call["executor"]
    if executor not in _EXECUTORS.get(status, {executor}):
        yield f"I4: tool call {call['id']} of the {executor} is {status}"
    used_up = call["approval_decision"] is not None and call["approval_consumed_at"] is not None
    if executor == "gateway" and status in _RAN and call["approval_required"] and not used_up:
        yield f"I13: tool call {call['id']} ran ({status}) without an approval that was used up"
    if call["approval_consumed_at"] is not None and status not in _RAN | {"cancelled"}:
        yield f"I13: the approval of tool call {call['id']} was used up, and it is {status}"


def _outputs(rows: Rows) -> Iterator[str]:
    """Who has its outcome from the gateway or a client has one output, and one completed service call has carried it:
    none of those before it, and the next one of its turn where there is one."""
    for row in rows(
        "SELECT tool_call.id, tool_call.status, executor, round, storage_owner, sent_in, history_item.service_call,"
        " (SELECT count(*) FROM history_item WHERE tool_call = tool_call.id AND kind = 'output') AS outputs,"
        " (SELECT id FROM service_call AS following WHERE following.turn = service_call.turn"
        "  AND following.round = service_call.round + 1 AND following.status = 'completed') AS following,"
        " (SELECT status FROM service_call AS carrier WHERE carrier.id = sent_in) AS carried,"
        " (SELECT (sending.number, carrier.round, carrier.attempt)"
        "   <= (turn.number, service_call.round, service_call.attempt)"
        "  FROM service_call AS carrier JOIN turn AS sending ON sending.id = carrier.turn WHERE carrier.id = sent_in) AS early,"
        " replayable FROM tool_call JOIN service_call ON service_call.id = tool_call.service_call"
        " JOIN turn ON turn.id = service_call.turn JOIN thread ON thread.id = turn.thread"
        " LEFT JOIN history_item ON history_item.tool_call = tool_call.id AND kind = 'output'"
        " WHERE executor <> 'backend'"
    ):
        name = f"tool call {row['id']}"
        if row["sent_in"] == row["service_call"] and row["storage_owner"] == "gateway":
            continue  # No backend waits for what was decided with its service call.
        if row["outputs"] != (row["status"] not in OPEN):
            yield f"I4: {name} is {row['status']} and has {row['outputs']} outputs"
        if row["sent_in"] is not None and row["carried"] != "completed":
            yield f"I5: the output of {name} was carried by {row['sent_in']}, which is {row['carried']}"
        if row["following"] is not None and row["sent_in"] != row["following"] and row["replayable"]:
            yield f"I5: {row['following']} came behind {name}, whose output was carried by {row['sent_in']}"
        if row["early"] and row["sent_in"] != row["service_call"]:
            yield f"I5: the output of {name} was carried by {row['sent_in']}, before it was called"


def _rounds(rows: Rows) -> Iterator[str]:
    """Service calls of a turn are numbered without gaps; behind one that is complete comes the next, with nothing open."""
    calls = rows("SELECT DISTINCT turn, round FROM service_call ORDER BY turn, round")
    for turn, group in groupby(calls, key=lambda row: row["turn"]):
        numbers = [row["round"] for row in group]
        if numbers != list(range(len(numbers))):
            yield f"I8: the service calls of turn {turn} have the rounds {numbers}"
    for row in rows(
        "SELECT later.id, tool_call.id AS tool FROM service_call AS later JOIN service_call AS earlier"
        " ON earlier.turn = later.turn AND earlier.round < later.round"
        " LEFT JOIN tool_call ON tool_call.service_call = earlier.id AND outcome IS NULL"
        " WHERE tool_call.id IS NOT NULL"
    ):
        yield f"I5: call {row['id']} was made while tool call {row['tool']} of an earlier round had no outcome"
    for row in rows("SELECT turn, round, count(*) AS n FROM service_call WHERE status = 'completed' GROUP BY 1, 2"):
        if row["n"] > 1:
            yield f"I5: round {row['round']} of turn {row['turn']} was completed {row['n']} times"


def _items(rows: Rows) -> Iterator[str]:
    for thread in rows("SELECT * FROM thread WHERE state <> 'deleted'"):
        items = rows(
            "SELECT history_item.*, number, sequence, displaced = 1 AND turn.ended_at IS NOT NULL AS displaced"
            " FROM history_item"
            " JOIN turn ON turn.id = turn"
            " LEFT JOIN tool_call ON tool_call.id = tool_call"
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
    places: list[int] = []
    for item in view:
        if item.__struct_config__.tag != "output":
            places = []
        elif item.call_id in open_calls:  # type: ignore[union-attr]
            # A round's outputs in the order of its calls: each closes one behind the one before.
            places.append(open_calls.index(item.call_id) + len(places))  # type: ignore[union-attr]
            if places != sorted(places):
                yield f"I8: the view of thread {thread['id']} has outputs in another order than their calls"
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
        position=row["position"],
        turn=row["number"],
        item=item,
        sent_in=row["sent_in"],
        replayable=bool(row["replayable"]),
        turn_id=row["turn"],
        service_call=row["service_call"],
        sequence=row["sequence"],
        displaced=bool(row["displaced"]),
        refused_in=row["refused_in"],
    )


def _user(text: str) -> UserItem:
    return UserItem(Message(message_id="m", role=Role.USER, parts=(Part(text=text),)))


def _generations(rows: Rows) -> Iterator[str]:
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
    for row in rows(
        "SELECT thread, count(*) AS n FROM turn WHERE status = 'running' GROUP BY thread HAVING count(*) > 1"
    ):
        yield f"I10: {row['n']} turns of thread {row['thread']} run at once"


def _inputs(rows: Rows) -> Iterator[str]:
    for row in rows(
        "SELECT turn.id, (SELECT count(*) FROM input WHERE input.turn = turn.id AND ordinal = 0) AS inputs,"
        " coalesce(items, 0) AS items FROM turn LEFT JOIN (SELECT turn, count(*) AS items FROM history_item"
        " WHERE input IS NOT NULL GROUP BY turn) AS said ON said.turn = turn.id"
    ):
        if (row["inputs"], row["items"]) != (1, 1):
            yield f"turn {row['id']} has {row['inputs']} messages and {row['items']} items of them"
    for row in rows("SELECT id FROM task WHERE id NOT IN (SELECT task FROM turn)"):
        yield f"task {row['id']} has no turn"


def _events(rows: Rows) -> Iterator[str]:
    for task in rows("SELECT * FROM task"):
        groups = rows("SELECT first, last, payload FROM event WHERE task = ? ORDER BY last", task["id"])
        numbers = [number for row in groups for number in range(row["first"], row["last"] + 1)]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"the events of task {task['id']} have a gap or a repeat: {numbers}"
        events = [json.loads(line) for row in groups for line in row["payload"].split("\n")]
        if len(events) != len(numbers):
            yield f"the groups of task {task['id']} hold {len(events)} events under {len(numbers)} numbers"
        yield from _told(task["id"], events, ended=task["state"] in _FINAL)
        states = [event["statusUpdate"]["status"]["state"] for event in events if "statusUpdate" in event]
        ends = [state for state in states if state in _FINAL]
        if task["state"] in _FINAL:
            if ends != [task["state"]] or states[-1] != task["state"] or "statusUpdate" not in events[-1]:
                yield f"task {task['id']} is {task['state']} and its log ends with {states[-3:]}"
            if task["last_event"] != len(numbers):
                yield f"task {task['id']} has {len(numbers)} events and says {task['last_event']}"
        elif ends:
            yield f"task {task['id']} is {task['state']} and its log has ended: {ends}"


def _told(task: str, events: list[Row], *, ended: bool) -> Iterator[str]:
    """Of each tool call at most one start and one end, the start first, the call before its end, and nothing behind the end;
    one that waited for its user's consent starts once more. Where the task has ended, each call that its caller has seen has
    ended too."""
    last: dict[str, int] = {}
    begun: set[str] = set()
    for event in events:
        update = event.get("statusUpdate", {})
        question = update.get("status", {}).get("message", {}).get("metadata", {}).get(URI, {})
        for link in question.get("consent", {}).get("links", ()):
            if "callId" in link:
                last[link["callId"]] = _PHASES["awaiting-approval"]
        parts = update.get("status", {}).get("message", {}).get("parts", ())
        places = [update, *parts, *event.get("artifactUpdate", {}).get("artifact", {}).get("parts", ())]
        for fact in (place.get("metadata", {}).get(URI) for place in places):
            if fact is None:
                continue
            rank = _PHASES.get(fact["phase"], _LAST)
            before = last.get(fact["callId"], 0)
            if rank < before or (rank == before and rank in (_PHASES["executing"], _LAST)):
                yield f"I4: task {task} tells {fact['phase']} of {fact['callId']} out of order"
            last[fact["callId"]] = rank
            begun |= {fact["callId"]} if fact["phase"] == "requested" else set()
            if rank == _LAST and fact["callId"] not in begun:
                yield f"I4: task {task} shows an outcome of {fact['callId']}, and not the call"
    if ended:
        for call in sorted(begun):
            if last[call] != _LAST:
                yield f"I4: task {task} has ended and shows no outcome of {call}"


def _ends(rows: Rows) -> Iterator[str]:
    for row in rows("SELECT id, state FROM task"):
        if row["state"] not in _FINAL | _WAITING:
            yield f"task {row['id']} is still {row['state']}"
    for row in rows("SELECT id, status FROM turn WHERE ended_at IS NULL AND status <> 'waiting'"):
        yield f"turn {row['id']} is still {row['status']}"
    for row in rows("SELECT service_call.id, service_call.status FROM service_call JOIN turn ON turn.id = turn"):
        if row["status"] in UNDER_WAY:
            yield f"call {row['id']} is still {row['status']}"
