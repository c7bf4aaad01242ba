"""What must hold of a ledger after every step, read from the database file. Law: knows the tables and nothing of the code
that fills them."""

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from gateway.a2a.model import TERMINAL
from tests.support.rows import first_text, reading

ENDED = frozenset(str(state) for state in TERMINAL)
"""The states that a task never leaves."""


@dataclass(frozen=True)
class CallRow:
    """One service call, in the order in which they were prepared."""

    id: str
    turn: str
    status: str
    handle_in: str | None
    handle_out: str | None
    round: int
    attempt: int


@dataclass(frozen=True)
class ToolRow:
    """One tool call, in the order in which they were made."""

    id: str
    turn: str
    call: str
    external_id: str
    name: str
    executor: str
    status: str
    outcome: str | None


@dataclass(frozen=True)
class TurnRow:
    id: str
    task: str
    number: int
    status: str
    ended: bool
    last_event: int | None
    message: str
    text: str
    key: str | None
    failure: str | None


@dataclass(frozen=True)
class ItemRow:
    position: int
    turn: str
    kind: str
    replayable: bool
    payload: str | None
    sent_in: str | None
    refused_in: str | None
    call: str | None


@dataclass
class TaskRow:
    """`events` are the payloads of its log, `groups` the numbers that each row of the log claims for itself."""

    id: str
    context: str
    state: str
    last_event: int
    events: list[bytes] = field(default_factory=list)
    groups: list[tuple[int, int]] = field(default_factory=list)

    @property
    def text(self) -> str:
        """What its log says of its artifacts."""
        return "".join(told(event)[1] for event in self.events)


@dataclass
class ContextRows:
    """One context with its one thread."""

    public_id: str
    thread: str
    owner: str
    handle: str | None
    turns: list[TurnRow] = field(default_factory=list)
    calls: list[CallRow] = field(default_factory=list)
    items: list[ItemRow] = field(default_factory=list)
    tools: list[ToolRow] = field(default_factory=list)
    tasks: dict[str, TaskRow] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)


Snapshot = dict[str, ContextRows]
"""By public id."""


@lru_cache(maxsize=100_000)
def told(event: bytes) -> tuple[str | None, str]:
    """The state that an event says and the text that it adds to an artifact."""
    content: Any = json.loads(event)
    status = content.get("statusUpdate", {}).get("status", {}).get("state")
    parts = content.get("artifactUpdate", {}).get("artifact", {}).get("parts", ())
    return status, "".join(part.get("text", "") for part in parts)


@lru_cache(maxsize=100_000)
def spoken(event: bytes) -> str | None:
    """The id of the agent's message that an event brings."""
    message: dict[str, str] = json.loads(event).get("statusUpdate", {}).get("status", {}).get("message", {})
    return message.get("messageId")


class LedgerFile:
    """The database, opened to read only; it sees what is committed and nothing else."""

    def __init__(self, path: Path) -> None:
        self._open = ExitStack()
        self._rows = self._open.enter_context(reading(path))

    def close(self) -> None:
        self._open.close()

    def read(self) -> Snapshot:
        """One moment of it."""
        with self._rows.moment():
            return self._read()

    def _read(self) -> Snapshot:
        threads, names = {}, {}
        for row, name, thread, owner, handle in self._rows.tuples(
            "SELECT c.id, c.public_id, t.id, t.storage_owner, t.handle FROM context c JOIN thread t ON t.context = c.id"
        ):
            assert row not in names, f"context {name!r} has two threads"
            names[row] = threads[thread] = ContextRows(name, thread, owner, handle)
        tasks: dict[str, TaskRow] = {}
        for task, context, state, last in self._rows.tuples(
            "SELECT id, context, state, last_event FROM task ORDER BY created_at, id"
        ):
            tasks[task] = TaskRow(task, names[context].public_id, state, last)
            names[context].tasks[task] = tasks[task]
        for task, first, last, payload in self._rows.tuples(
            "SELECT task, first, last, payload FROM event ORDER BY task, last"
        ):
            tasks[task].groups.append((first, last))
            tasks[task].events += payload.encode().split(b"\n")
        turn_of: dict[str, ContextRows] = {}
        for (
            thread,
            turn,
            task,
            number,
            status,
            ended,
            last,
            message,
            payload,
            key,
            failure,
            displaced,
        ) in self._rows.tuples(
            "SELECT u.thread, u.id, u.task, u.number, u.status, u.ended_at IS NOT NULL, u.last_event, i.message_id,"
            " i.payload, i.key, u.failure_class, u.displaced"
            " FROM turn u LEFT JOIN input i ON i.turn = u.id ORDER BY u.thread, u.number"
        ):
            turn_of[turn] = threads[thread]
            text = first_text(payload)
            row = TurnRow(turn, task, number, status, bool(ended), last, message, text, key, failure)
            threads[thread].turns.append(row)
            threads[thread].left_out |= {turn} if displaced else set()
        for call in self._rows.tuples(
            "SELECT service_call.id, turn, service_call.status, handle_in, handle_out, round, attempt FROM service_call"
            " JOIN turn ON turn.id = turn ORDER BY number, round, attempt"
        ):
            turn_of[call[1]].calls.append(CallRow(*call))
        for tool in self._rows.tuples(
            "SELECT tool_call.id, turn, service_call, external_id, name, executor, tool_call.status, outcome FROM tool_call"
            " JOIN service_call ON service_call.id = service_call JOIN turn ON turn.id = turn"
            " ORDER BY number, round, attempt, sequence"
        ):
            turn_of[tool[1]].tools.append(ToolRow(*tool))
        for thread, *item in self._rows.tuples(
            "SELECT thread, position, turn, kind, replayable, payload, sent_in, refused_in, service_call"
            " FROM history_item ORDER BY position"
        ):
            threads[thread].items.append(ItemRow(*item))
        return {rows.public_id: rows for rows in names.values()}


# --- what is always so ------------------------------------------------------------------------------------------------


def check(snapshot: Snapshot) -> None:
    """Raises: AssertionError for anything that may never be in a ledger, whatever was asked of the gateway."""
    for rows in snapshot.values():
        for task in rows.tasks.values():
            _check_log(task)
            _check_task(task, rows)
        _check_order(rows)
        _check_chain(rows)


def _check_log(task: TaskRow) -> None:
    following = 1
    for first, last in task.groups:
        assert first == following, f"{task.id}: the log goes from {following - 1} to {first}"
        following = last + 1
    assert following == len(task.events) + 1, f"{task.id}: {len(task.events)} events have numbers up to {following - 1}"
    states = [told(event)[0] for event in task.events]
    finals = [state for state in states if state in ENDED]
    assert len(finals) <= 1, f"{task.id} ended twice: {finals}"
    assert finals == [state for state in states[-1:] if state in ENDED], f"{task.id} went on after {finals}"
    assert finals == [state for state in [task.state] if state in ENDED], f"{task.id}: {task.state}, {finals}"


def _check_task(task: TaskRow, rows: ContextRows) -> None:
    turns = [turn for turn in rows.turns if turn.task == task.id]
    assert turns, f"{task.id} has no turn"
    assert all(turn.ended for turn in turns[:-1]), f"{task.id} has two turns at once"
    if task.state in ENDED:
        assert turns[-1].ended, f"{task.id} ended and its turn did not"
    if turns[-1].ended:
        assert task.last_event == len(task.events), f"{task.id} counts {task.last_event} of {len(task.events)} events"


def _check_order(rows: ContextRows) -> None:
    name = rows.public_id
    numbers = [turn.number for turn in rows.turns]
    assert numbers == list(range(1, len(numbers) + 1)), f"{name}: turns {numbers}"
    positions = [item.position for item in rows.items]
    assert positions == list(range(1, len(positions) + 1)), f"{name}: items {positions}"
    users = Counter(item.turn for item in rows.items if item.kind == "user")
    assert users == Counter(turn.id for turn in rows.turns), f"{name}: not one message for each turn"
    assert not any(turn.text is None for turn in rows.turns), f"{name}: a turn without input"
    order = [item.turn for item in rows.items if item.kind == "user"]
    assert order == [turn.id for turn in rows.turns], f"{name}: messages and turns are in different orders"
    said = [item.turn for item in rows.items if item.kind != "user"]
    blocks = [turn for index, turn in enumerate(said) if index == 0 or said[index - 1] != turn]
    assert len(blocks) == len(set(blocks)), f"{name}: what was said in different turns is mixed"


def _check_chain(rows: ContextRows) -> None:
    name = rows.public_id
    handle: str | None = None
    completed = set()
    began: dict[str, str | None] = {}
    failed = {turn.id for turn in rows.turns if turn.status == "failed"}
    for call in rows.calls:
        # Another try may do without a turn whose outcomes its backend refuses.
        without = {began[turn] for turn in failed - {call.turn} if turn in began} if call.attempt else set()
        assert call.handle_in in {handle, *without}, (
            f"{name}: a call went on from {call.handle_in!r}, the chain was at {handle!r}"
        )
        if call.status == "completed":
            began.setdefault(call.turn, call.handle_in)
        if call.status == "completed":
            completed.add(call.id)
            assert (call.handle_out is None) == (rows.owner == "gateway"), f"{name}: {call}"
            handle = call.handle_out
    assert rows.handle == handle, f"{name}: the thread is at {rows.handle!r}, its calls led to {handle!r}"
    open_turns = {turn.id for turn in rows.turns if not turn.ended}
    running = [call for call in rows.calls if call.status == "prepared" and call.turn in open_turns]
    assert len(running) <= 1, f"{name}: two calls at once"
    for item in rows.items:
        assert item.sent_in is None or item.sent_in in completed, (
            f"{name}: {item} was sent in a call that does not count"
        )
    for turn in {call.turn for call in rows.calls}:
        counted = [call.round for call in rows.calls if call.turn == turn and call.status == "completed"]
        assert counted == list(range(len(counted))), f"{name}: the rounds {counted} of turn {turn} count"
    _check_tools(rows)


def _check_tools(rows: ContextRows) -> None:
    """Nothing is open after the end of its turn or of its round."""
    ended = {turn.id for turn in rows.turns if turn.ended}
    rounds = {call.id: call.round for call in rows.calls}
    latest: dict[str, int] = {}
    for call in rows.calls:
        latest[call.turn] = max(call.round, latest.get(call.turn, 0))
    for tool in rows.tools:
        over = tool.turn in ended or rounds[tool.call] < latest[tool.turn]
        assert tool.outcome is not None or not over, f"{rows.public_id}: {tool} is open behind its round"
        # What the backend ran itself in a call that does not count is kept for the record, and has no row.
        outputs = [item for item in rows.items if item.kind == "output" and item.turn == tool.turn and item.replayable]
        assert len(outputs) <= sum(other.turn == tool.turn for other in rows.tools), f"two outputs for {tool}"


def check_growth(before: Snapshot, after: Snapshot, touched: set[str] | None) -> None:
    """Stored data changes only where a turn continues; contexts that are not `touched` stay as they are."""
    for name, old in before.items():
        new = after[name]
        if touched is not None and name not in touched:
            assert new == old, f"{name} changed and nobody spoke to it"
            continue
        assert [item.turn for item in new.items[: len(old.items)]] == [item.turn for item in old.items]
        for item, was in zip(new.items, old.items, strict=False):
            assert (item.turn, item.kind, item.payload) == (was.turn, was.kind, was.payload), f"{name}: an item changed"
            left = {call.id for call in new.calls if call.turn in new.left_out}
            assert was.sent_in in (None, item.sent_in, *left), f"{name}: an item was sent again"
            assert was.refused_in is None or item.refused_in is not None, f"{name}: an item is refused no more"
        for tool, said in zip(new.tools, old.tools, strict=False):
            assert tool == said or said.outcome is None, f"{name}: a tool call that had its outcome changed"
        for row, past in zip(new.turns, old.turns, strict=False):
            assert row == past or not past.ended, f"{name}: a turn that had ended changed"
        for task, earlier in old.tasks.items():
            later = new.tasks[task]
            assert later.events[: len(earlier.events)] == earlier.events, f"{task}: its log changed"
            assert later == earlier or earlier.state not in ENDED, f"{task} had ended and changed"
