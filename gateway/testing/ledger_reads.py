"""The part of the conformance suite on tasks, turns and events as their caller sees them. Law: it knows no store."""

import pytest
from msgspec.structs import replace

from gateway.a2a.model import Artifact, Message, Part, Role, TaskState
from gateway.ledger.errors import CorruptRecord
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import (
    Append,
    EventRow,
    ListedTask,
    PageLimits,
    StoredArtifact,
    TaskFilter,
    TaskPage,
    TaskRecord,
    TurnRecord,
    Usage,
)
from gateway.ledger.threads import Caller, ContextRecord, ThreadRecord
from gateway.ledger.turns import IdempotencyKey, Preferences, Replay
from gateway.ports.conversation import HandleKind, StorageOwner
from gateway.testing.checks import require, same
from gateway.testing.ledger_points import (
    ACCEPT,
    ADA,
    APPEND,
    COMPLETE,
    ELSEWHERE,
    FINISH,
    FIRST_TURN,
    FOLLOW_UP,
    OTHER_THREAD,
    PREPARE,
    THREAD,
    says,
)

_EVE = Caller("eve", "acme")
_ALL = TaskFilter()
_MANY = 2**30
_TASK = TaskRecord("task-1", "context-1", "public-1", "echo", TaskState.SUBMITTED, None, 1000, 1, True, 1000)
_NO_TEXTS = ["", "x" * 10_000, "%_*?[]", "\x01\x1f\x7f\u2028\u2029\ufeff", "\U0001f600 e\u0301 \u00e9 \u05d0"]
_HOSTILE = ["../../etc/passwd", "'; DROP TABLE task; --", "a\x00b", *_NO_TEXTS]


async def _many(ledger: Ledger) -> None:
    """Tasks a to f in two contexts, two of the same time each; c has ended; g is of another agent."""
    await ledger.commit(replace(ACCEPT, task="a", event=None, key=None))
    elsewhere = replace(ELSEWHERE, task="d", turn="turn-d", now=2000)
    for name, now, first in (("b", 1000, ACCEPT), ("c", 2000, ACCEPT), ("e", 3000, ELSEWHERE), ("f", 3000, ACCEPT)):
        if name == "e":
            await ledger.commit(elsewhere)
        known = replace(first, context_public=None, new_thread=False, key=None, event=None)
        await ledger.commit(replace(known, task=name, turn=f"turn-{name}", now=now))
    await ledger.commit(
        replace(OTHER_THREAD, thread=replace(OTHER_THREAD.thread, id="thread-3"), task="g", turn="turn-g")
    )
    await ledger.commit(replace(FINISH, task="c", turn="turn-c", now=2000, events=None))


async def _sized(ledger: Ledger, *sizes: int) -> None:
    """Tasks a, b, ... with a message of so many bytes each; the latest is the last one."""
    for index, size in enumerate(sizes):
        name = "abcdefgh"[index]
        point = replace(ACCEPT if index == 0 else replace(FOLLOW_UP, new_task=True), message=says("x" * size))
        await ledger.commit(replace(point, task=name, turn=f"t-{name}", now=1000 + index, event=None, key=None))


async def _page(
    ledger: Ledger,
    where: TaskFilter = _ALL,
    most: int = 100,
    size: int = _MANY,
    history: int | None = None,
    *,
    artifacts: bool = False,
    numbers: bool = False,
) -> TaskPage:
    return await ledger.tasks(ADA, "echo", where, PageLimits(most, size, history, artifacts, numbers))


def _names(page: TaskPage) -> str:
    return "".join(each.record.id for each in page.tasks)


def _turns(listed: ListedTask) -> tuple[TurnRecord, ...]:
    if isinstance(listed.turns, tuple):
        return listed.turns
    raise AssertionError(f"the turns of {listed.record.id!r} cannot be read: {listed.turns}")


class TaskReadTests:
    """A part of `LedgerSuite`."""

    # --- contexts and tasks

    async def test_a_context_comes_with_its_live_thread_on_the_agent(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE, COMPLETE)
        thread = replace(THREAD, handle="resp-1", generation=2, adapter_state={"seen": 1})
        same(await ledger.context(ADA, "public-1", "echo"), ContextRecord("context-1", "public-1", "open", thread))
        same(await ledger.context(ADA, "public-1", "other"), ContextRecord("context-1", "public-1", "open", None))
        same(await ledger.thread("thread-1"), thread)

    @pytest.mark.parametrize("stranger", [_EVE, Caller("ada"), Caller("acme", "ada")])
    async def test_what_belongs_to_another_is_not_there(self, ledger: Ledger, stranger: Caller) -> None:
        await ledger.commit(ACCEPT)
        same(await ledger.context(stranger, "public-1", "echo"), None)
        same(await ledger.task(stranger, "echo", "task-1"), None)
        same(await ledger.whole_task(stranger, "echo", "task-1"), None)
        same(await ledger.replay(stranger, "echo", IdempotencyKey("header", "key-1")), None)
        page = await ledger.tasks(stranger, "echo", _ALL, PageLimits(100, _MANY))
        same((page.tasks, page.total, page.more), ((), 0, False))

    async def test_two_principals_may_use_the_same_context_id_and_key(self, ledger: Ledger) -> None:
        theirs = replace(ELSEWHERE, caller=_EVE, context_public="public-1", key=ACCEPT.key)
        await ledger.commit(ACCEPT)
        await ledger.commit(theirs)
        same(await ledger.context(ADA, "public-1", "echo"), ContextRecord("context-1", "public-1", "open", THREAD))
        found = await ledger.context(_EVE, "public-1", "echo")
        same(found, ContextRecord("context-2", "public-1", "open", theirs.thread))

    async def test_a_task_is_that_of_its_agent(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT)
        same(await ledger.task(ADA, "echo", "task-1"), _TASK)
        same(await ledger.task(ADA, "other", "task-1"), None)
        same(await ledger.task(ADA, "echo", "task-9"), None)

    async def test_a_hidden_task_can_be_read_but_is_in_no_list(self, ledger: Ledger) -> None:
        await ledger.commit(replace(ACCEPT, visible=False))
        same(await ledger.task(ADA, "echo", "task-1"), replace(_TASK, visible=False))
        same((await _page(ledger)).total, 0)
        await ledger.commit(PREPARE, COMPLETE, APPEND, FINISH)
        same((await _page(ledger)).total, 1)

    async def test_a_task_that_waits_keeps_its_status_message_until_it_is_answered(self, ledger: Ledger) -> None:
        asks = says("where to?", Role.AGENT)
        await ledger.commit(*FIRST_TURN[:-1], replace(FINISH, state=TaskState.INPUT_REQUIRED, message=asks))
        asked = replace(_TASK, state=TaskState.INPUT_REQUIRED, status_message=asks, status_at=1300, last_event=6)
        same(await ledger.task(ADA, "echo", "task-1"), asked)
        same(await ledger.waiting_tasks("context-1"), (asked,))
        await ledger.commit(replace(FOLLOW_UP, event=None, last_event=7))
        working = replace(_TASK, state=TaskState.WORKING, status_at=2000, last_event=7)
        same(await ledger.task(ADA, "echo", "task-1"), working)
        same(await ledger.waiting_tasks("context-1"), ())

    async def test_a_key_leads_to_the_task_that_it_made(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT)
        same(await ledger.replay(ADA, "echo", IdempotencyKey("header", "key-1")), Replay("task-1", "digest-1"))
        same(await ledger.replay(ADA, "echo", IdempotencyKey("message_id", "key-1")), None)
        same(await ledger.replay(ADA, "other", IdempotencyKey("header", "key-1")), None)

    async def test_nothing_is_found_in_an_empty_ledger(self, ledger: Ledger) -> None:
        same(await ledger.context(ADA, "public-1", "echo"), None)
        same(await ledger.thread("thread-1"), None)
        same(await ledger.first_message("task-1"), None)
        same(await ledger.turns(("task-1",), artifacts=True), {"task-1": ()})
        same(await ledger.turns((), artifacts=True), {})
        same(await ledger.events("task-1", 0), ())
        same(await ledger.history("thread-1", unsent_only=False), ())
        same(await ledger.unfinished_turns(0), ())
        same(await ledger.latest_events(("task-1",)), {})

    @pytest.mark.parametrize("name", _HOSTILE, ids=lambda name: ascii(name[:20]))
    async def test_a_hostile_id_is_data(self, ledger: Ledger, name: str) -> None:
        caller, key = Caller(name, name), IdempotencyKey("header", name)
        thread = ThreadRecord(name, name, name, 1, StorageOwner.BACKEND, HandleKind.STATIC, name, 0, None)
        odd = replace(
            ACCEPT, caller=caller, agent=name, context_row=name, context_public=name, thread=thread, task=name
        )
        await ledger.commit(ACCEPT)
        await ledger.commit(replace(odd, turn=name, digest=name, key=key, event=EventRow(name, 1, 1, b"{}")))
        same(await ledger.context(caller, name, name), ContextRecord(name, name, "open", thread))
        same(await ledger.replay(caller, name, key), Replay(name, name))
        same(await ledger.events(name, 0), ((1, b"{}"),))
        turn = TurnRecord(says("hi"), 1, None, None, ended=False)
        same(await ledger.turns((name,), artifacts=True), {name: (turn,)})
        where = TaskFilter(context_id=name, after=(1001, name))
        page = await ledger.tasks(caller, name, where, PageLimits(10, _MANY, history=1))
        same(([each.record.id for each in page.tasks], page.total, _turns(page.tasks[0])), ([name], 1, (turn,)))

    # --- turns and events

    async def test_turns_are_in_order_with_their_output(self, ledger: Ledger) -> None:
        said = b'[{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"where to?"}]}]'
        await ledger.commit(*FIRST_TURN[:-1], replace(FINISH, state=TaskState.INPUT_REQUIRED, messages=said))
        await ledger.commit(replace(FOLLOW_UP, event=None, last_event=7))
        answers = (says("where to?", Role.AGENT),)
        first = TurnRecord(says("hi"), 1, answers, None, ended=True, reports=({"tokens": 7},))
        second = TurnRecord(says("more"), 7, None, None, ended=False)
        same(await ledger.turns(("task-1",), artifacts=False), {"task-1": (first, second)})
        whole = (replace(first, artifacts=(StoredArtifact(Artifact(artifact_id="a", parts=())),)), second)
        same(await ledger.turns(("task-2", "task-1"), artifacts=True), {"task-1": whole, "task-2": ()})
        found = await ledger.whole_task(ADA, "echo", "task-1")
        same(found and found[1], whole)
        same(await ledger.first_message("task-1"), says("hi"))

    async def test_the_tokens_of_a_turn_are_those_that_its_end_sums_up(self, ledger: Ledger) -> None:
        used = Usage(input_tokens=5, total_tokens=7)
        await ledger.commit(*FIRST_TURN[:-1], replace(FINISH, usage=used))
        [turn] = (await ledger.turns(("task-1",), artifacts=False))["task-1"]
        same((turn.usage, turn.reports), (used, ()))

    async def test_what_a_message_asks_for_is_kept_with_its_turn(self, ledger: Ledger) -> None:
        asked = Preferences(("text/plain",), frozenset({"urn:x"}))
        await ledger.commit(ACCEPT, replace(FOLLOW_UP, preferences=asked))
        same([await ledger.preferences(turn) for turn in ("turn-1", "turn-2")], [Preferences(), asked])

    @pytest.mark.parametrize("after", range(7))
    async def test_events_after_a_number_begin_in_the_middle_of_a_group(self, ledger: Ledger, after: int) -> None:
        await ledger.commit(*FIRST_TURN)
        same(await ledger.events("task-1", after), tuple((n, b'{"n":%d}' % n) for n in range(after + 1, 7)))

    @pytest.mark.parametrize(
        ("after", "size", "last"),
        [(0, 1, 1), (1, 1, 4), (1, 8, 4), (1, 24, 4), (1, 25, 6), (2, 99, 6), (4, 1, 6), (6, 1, 6)],
    )
    async def test_a_page_of_events_has_whole_rows_up_to_the_one_that_makes_it_full(
        self, ledger: Ledger, after: int, size: int, last: int
    ) -> None:
        """The rows hold the events 1, 2 to 4, and 5 to 6, each of 8 bytes."""
        lines = [b'{"n": %d}' % number for number in range(1, 7)]
        rows = [EventRow("task-1", 2, 4, b"\n".join(lines[1:4])), EventRow("task-1", 5, 6, b"\n".join(lines[4:]))]
        await ledger.commit(replace(ACCEPT, event=EventRow("task-1", 1, 1, lines[0])), *map(Append, rows))
        same(await ledger.events("task-1", after, size), tuple((n, lines[n - 1]) for n in range(after + 1, last + 1)))

    async def test_a_page_of_events_counts_bytes_and_not_characters(self, ledger: Ledger) -> None:
        line = '"\U0001f600"'.encode()
        await ledger.commit(replace(ACCEPT, event=EventRow("task-1", 1, 1, line)))
        await ledger.commit(Append(EventRow("task-1", 2, 2, line)))
        same(await ledger.events("task-1", 0, len(line)), ((1, line),))

    async def test_the_last_events_of_tasks_are_found_without_tasks_that_are_gone(self, ledger: Ledger) -> None:
        await ledger.commit(replace(ACCEPT, event=None))
        same(await ledger.latest_events(("task-1", "task-2")), {"task-1": 0})
        await ledger.commit(Append(EventRow("task-1", 1, 3, b"{}\n{}\n{}")))
        await ledger.commit(replace(FOLLOW_UP, new_task=True, task="task-2", event=EventRow("task-2", 1, 1, b"2")))
        same(await ledger.latest_events(("task-1", "task-2")), {"task-1": 3, "task-2": 1})
        same(await ledger.events("task-2", 0), ((1, b"2"),))

    # --- what cannot be read

    @pytest.mark.parametrize("damage", [{"artifacts": b"["}, {"messages": b"{}"}], ids=["artifacts", "messages"])
    async def test_a_turn_that_cannot_be_read_names_its_task_and_hides_no_other(
        self, ledger: Ledger, damage: dict[str, bytes]
    ) -> None:
        await ledger.commit(*FIRST_TURN[:-1], replace(FINISH, **damage))
        await ledger.commit(ELSEWHERE)
        with pytest.raises(CorruptRecord, match="task-1"):
            await ledger.turns(("task-1",), artifacts=True)
        same([len(turns) for turns in (await ledger.turns(("task-9",), artifacts=True)).values()], [1])
        page = await _page(ledger, artifacts=True)
        unreadable = [(each.record.id, isinstance(each.turns, CorruptRecord)) for each in page.tasks]
        same(unreadable, [("task-1", True), ("task-9", False)])

    async def test_events_that_are_fewer_than_their_numbers_are_not_given_out(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, Append(EventRow("task-1", 2, 4, b"{}")))
        with pytest.raises(CorruptRecord, match="task-1"):
            await ledger.events("task-1", 0)

    # --- lists

    @pytest.mark.parametrize(
        ("where", "found"),
        [
            (_ALL, "fedcba"),
            (TaskFilter(context_id="public-2"), "ed"),
            (TaskFilter(context_id="public-9"), ""),
            (TaskFilter(state=TaskState.COMPLETED), "c"),
            (TaskFilter(state=TaskState.SUBMITTED), "fedba"),
            (TaskFilter(status_since=2000), "fedc"),
            (TaskFilter(status_since=2001), "fe"),
            (TaskFilter("public-1", TaskState.SUBMITTED, 2000), "f"),
        ],
    )
    async def test_a_list_holds_what_matches_latest_first(self, ledger: Ledger, where: TaskFilter, found: str) -> None:
        await _many(ledger)
        page = await _page(ledger, where)
        same((_names(page), page.total, page.more), (found, len(found), False))

    @pytest.mark.parametrize("where", [_ALL, TaskFilter(context_id="public-1"), TaskFilter(state=TaskState.SUBMITTED)])
    @pytest.mark.parametrize("size", [1, 2, 3])
    async def test_pages_join_to_the_whole_list(self, ledger: Ledger, where: TaskFilter, size: int) -> None:
        await _many(ledger)
        whole, names, more = await _page(ledger, where), "", True
        while more:
            page = await _page(ledger, where, size)
            names, more = names + _names(page), page.more
            same(page.total, whole.total)
            last = page.tasks[-1].record
            where = replace(where, after=(last.status_at, last.id))
        same(names, _names(whole))

    async def test_a_page_does_not_move_when_tasks_are_added_before_it(self, ledger: Ledger) -> None:
        await _many(ledger)
        await ledger.commit(replace(FOLLOW_UP, new_task=True, task="z", turn="turn-z", now=9000, event=None))
        page = await _page(ledger, TaskFilter(after=(3000, "e")), 2)
        same((_names(page), page.total), ("dc", 7))

    @pytest.mark.parametrize(
        ("size", "found", "more"),
        [
            (1, "d", True),
            (900, "d", True),
            (2000, "d", True),
            (2900, "dc", True),
            (4000, "dcb", True),
            (9000, "dcba", False),
        ],
    )
    async def test_a_page_ends_before_the_task_that_does_not_fit(
        self, ledger: Ledger, size: int, found: str, more: bool
    ) -> None:
        await _sized(ledger, 1000, 1000, 1000, 1000)
        page = await _page(ledger, size=size)
        same((_names(page), page.more, page.total), (found, more, 4))
        same([len(_turns(each)) for each in page.tasks], [1] * len(found))

    @pytest.mark.parametrize("history", [None, 1])
    async def test_a_page_has_a_task_however_large_that_is(self, ledger: Ledger, history: int | None) -> None:
        await _sized(ledger, 10, 3_000_000)
        page = await _page(ledger, size=1000, history=history)
        same((_names(page), page.more), ("b", True))
        [turn] = _turns(page.tasks[0])
        require(turn.message == says("x" * 3_000_000), "the large message came back changed")
        require(page.tasks[0].size > 3_000_000, f"its size is said to be {page.tasks[0].size}")
        require((await ledger.turns(("b",), artifacts=True))["b"] == (turn,), "it is another one by its key")

    @pytest.mark.parametrize("size", [1000, 2_000_000, 3_000_000, 5_000_000])
    async def test_a_task_whose_parts_together_exceed_a_page_is_on_it(self, ledger: Ledger, size: int) -> None:
        """Its message alone fits, and its artifact alone."""
        text = "x" * 1_800_000
        artifact = b'[{"artifact":{"artifactId":"a","parts":[{"text":"%s"}]}}]' % text.encode()
        said = replace(ACCEPT, message=says(text))
        await ledger.commit(said, PREPARE, COMPLETE, APPEND, replace(FINISH, artifacts=artifact))
        page = await _page(ledger, size=size, artifacts=True)
        same((_names(page), page.more), ("task-1", False))
        [turn] = _turns(page.tasks[0])
        require(turn.message == says(text), "its message came back changed")
        require(bool(turn.artifacts), "its artifact is not there")

    @pytest.mark.parametrize(
        ("history", "read"), [(0, ["", "", ""]), (1, ["", "", "3"]), (2, ["", "2", "3"]), (99, ["1", "2", "3"])]
    )
    async def test_the_history_of_the_latest_turns_is_read(self, ledger: Ledger, history: int, read: list[str]) -> None:
        await ledger.commit(replace(ACCEPT, message=says("1"), event=None, last_event=0))
        for number in (2, 3):
            more = replace(FOLLOW_UP, turn=f"t-{number}", message=says(str(number)), event=None, last_event=number)
            await ledger.commit(more)
        found = await ledger.whole_task(ADA, "echo", "task-1", history)
        [listed] = (await _page(ledger, size=1, history=history, artifacts=True)).tasks
        for turns in (found[1] if found else (), _turns(listed)):
            same(["".join(part.text or "" for part in turn.message.parts) for turn in turns], read)

    @pytest.mark.parametrize("history", [None, 0, 5])
    @pytest.mark.parametrize("artifacts", [False, True])
    async def test_a_task_is_the_same_on_a_page_with_others_and_alone(
        self, ledger: Ledger, history: int | None, artifacts: bool
    ) -> None:
        await _sized(ledger, 10, 20, 30)
        odd = Message(message_id="m", role=Role.USER, parts=(Part(text="%s \x00 \u00e9"),))
        await ledger.commit(replace(FOLLOW_UP, task="b", turn="t-2", message=odd, event=None, last_event=7, key=None))
        together = await _page(ledger, history=history, artifacts=artifacts)
        alone = [await _page(ledger, size=1, history=history, artifacts=artifacts)]
        while alone[-1].more:
            last = alone[-1].tasks[-1].record
            where = TaskFilter(after=(last.status_at, last.id))
            alone.append(await _page(ledger, where, size=1, history=history, artifacts=artifacts))
        same([len(page.tasks) for page in alone], [1, 1, 1])
        same(tuple(page.tasks[0] for page in alone), together.tasks)

    async def test_the_latest_events_are_read_where_they_are_asked_for(self, ledger: Ledger) -> None:
        await ledger.commit(ACCEPT, PREPARE, APPEND)
        [plain] = (await _page(ledger)).tasks
        [counted] = (await _page(ledger, numbers=True)).tasks
        same((plain.last_event, counted.last_event), (plain.record.last_event, APPEND.events.last))
        same(counted.record, plain.record)
