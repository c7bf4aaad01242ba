"""The end of a thread that fits a window: whole turns, as many as needed, and nothing before them."""

import sqlite3
from contextlib import closing
from random import Random

import pytest
from msgspec.structs import replace

from gateway.a2a.model import Json, Part, TaskState
from gateway.core.history import Window, project
from gateway.ledger.calls import Complete, Fail, MeasuredCall, NewItem
from gateway.ledger.points import CommitPoint
from gateway.ledger.states import ServiceCallStatus
from gateway.ledger.threads import Displace
from gateway.ports.conversation import (
    AssistantItem,
    HandleKind,
    HistoryRecord,
    Item,
    Ownership,
    ReasoningItem,
    StorageOwner,
)
from storage import compiled
from tests.storage.conversation import ACCEPT, COMPLETE, FINISH, FOLLOW_UP, PREPARE, THREAD, Recorded, says

G = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)
KEPT = replace(THREAD, owner=StorageOwner.GATEWAY, handle_kind=HandleKind.NONE)


def answer(text: str) -> Item:
    return AssistantItem((Part(text=text),))


class Talk:
    """Commit points of one thread whose turns run one after another."""

    def __init__(self) -> None:
        self.points: list[CommitPoint] = []
        self._accepted = 0
        self._ran = 0
        self._generation = 0

    def accept(self, text: str) -> None:
        self._accepted += 1
        number = self._accepted
        first = replace(ACCEPT, thread=KEPT, key=None) if number == 1 else replace(FOLLOW_UP, thread=KEPT)
        turn, task = f"turn-{number}", f"task-{number}"
        point = replace(first, turn=turn, task=task, new_task=True, message=says(text), event=None)
        self.points.append(point)

    def run(self, *items: Item, usage: Json = None, weight: int | None = None, fails: bool = False) -> None:
        self._ran += 1
        turn, call = f"turn-{self._ran}", f"call-{self._ran}"
        self.points.append(
            replace(
                PREPARE,
                turn=turn,
                task=f"task-{self._ran}",
                service_call=call,
                generation=self._generation,
                event=None,
            )
        )
        self._generation += 1
        said = tuple(NewItem(item, replayable=not fails) for item in items)
        ends = replace(FINISH, turn=turn, task=f"task-{self._ran}", events=None, state=TaskState.COMPLETED)
        if fails:
            self.points.append(Fail("thread-1", self._generation, turn, call, ServiceCallStatus.FAILED, "cut", said, 1))
            self.points.append(ends)
            return
        done: Complete = replace(
            COMPLETE, turn=turn, service_call=call, generation=self._generation, handle_out=None, items=said, sent=()
        )
        self.points += [replace(done, tool_calls=(), usage=usage, weight=weight), ends]
        self._generation += 1

    def turn(self, text: str, *items: Item) -> None:
        self.accept(text)
        self.run(*items)


async def recent(
    database: Recorded,
    turn: int,
    messages: int | None = None,
    weight: int | None = None,
    *,
    opaque: bool = False,
) -> tuple[HistoryRecord, ...]:
    return await database.ledger.recent_history(
        "thread-1", f"turn-{turn}", messages=messages, weight=weight, opaque=opaque
    )


def turns(records: tuple[HistoryRecord, ...]) -> list[int]:
    return sorted({record.turn for record in records})


async def test_as_many_whole_turns_come_as_the_window_needs(database: Recorded) -> None:
    talk = Talk()
    for number in range(1, 6):
        talk.turn(f"q{number}", answer(f"a{number}"))
    await database.ledger.commit(*talk.points)
    whole = await database.ledger.history("thread-1", unsent_only=False)
    assert await recent(database, 5) == await recent(database, 5, 100, 10_000) == whole
    assert await recent(database, 5, messages=2) == whole[-2:]
    assert await recent(database, 5, messages=3) == whole[-4:]
    assert await recent(database, 5, weight=1) == whole[-2:]
    assert await recent(database, 5, weight=36) == whole[-2:]
    assert await recent(database, 5, weight=37) == whole[-4:]


async def test_of_a_thread_that_is_not_there_nothing_comes(database: Recorded) -> None:
    assert await recent(database, 1, messages=1) == ()
    assert await database.ledger.measured_calls("thread-1") == ()


async def test_the_running_turn_comes_whole_although_queued_turns_have_later_items(database: Recorded) -> None:
    talk = Talk()
    talk.turn("q1", answer("a1"))
    for number in (2, 3, 4, 5):
        talk.accept(f"q{number}")
    talk.run(*[answer("x" * 100)] * 20)
    await database.ledger.commit(*talk.points)
    assert turns(await recent(database, 3, messages=1)) == [2, 3, 4, 5]
    assert turns(await recent(database, 2, messages=1)) == [2, 3, 4, 5]
    assert turns(await recent(database, 5, messages=1)) == [2, 3, 4, 5]
    assert turns(await recent(database, 3, messages=23)) == [1, 2, 3, 4, 5]


async def test_what_is_not_sent_takes_no_room(database: Recorded) -> None:
    talk = Talk()
    talk.turn("q1", answer("a1"))
    talk.turn("q2", ReasoningItem("h" * 1000), answer("a2"))
    talk.accept("q3")
    talk.run(answer("c" * 1000), fails=True)
    talk.accept("q4")
    await database.ledger.commit(*talk.points)
    assert turns(await recent(database, 4, weight=100)) == [1, 2, 3, 4]
    assert turns(await recent(database, 4, weight=100, opaque=True)) == [2, 3, 4]


async def test_a_turn_that_was_displaced_takes_no_room(database: Recorded) -> None:
    talk = Talk()
    talk.turn("q1", answer("a1"))
    talk.accept("q2" * 1000)
    talk.accept("q3")
    cancelled = replace(FINISH, turn="turn-2", task="task-2", status="cancelled", state=TaskState.CANCELED, events=None)
    await database.ledger.commit(*talk.points, Displace("thread-1", "turn-3"))
    assert turns(await recent(database, 3, weight=100)) == [2, 3]  # It has not ended, and may be complete yet.
    await database.ledger.commit(cancelled)
    assert turns(await recent(database, 3, weight=100)) == [1, 2, 3]
    assert turns(await recent(database, 3, messages=2)) == [1, 2, 3]


@pytest.mark.parametrize("seed", range(8))
async def test_a_view_of_the_end_is_the_view_of_the_whole(database: Recorded, seed: int) -> None:
    random = Random(seed)
    talk, waiting, last = Talk(), 0, 0
    for _ in range(60):
        if waiting and random.random() < 0.6:
            waiting -= 1
            said = [answer("a" * random.choice((0, 1, 50, 400))) for _ in range(random.randrange(4))]
            talk.run(*said, ReasoningItem("r" * random.randrange(300)), fails=random.random() < 0.2)
        else:
            waiting += 1
            last += 1
            talk.accept("q" * random.choice((1, 30, 300)))
    await database.ledger.commit(*talk.points)
    whole = await database.ledger.history("thread-1", unsent_only=False)
    shorter = 0
    for turn in range(max(1, last - 8), last + 1):
        for messages, weight in ((1, None), (5, None), (17, None), (None, 50), (None, 500), (9, 1500), (None, None)):
            read = await recent(database, turn, messages, weight)
            window = Window(messages, weight)
            assert project(G, read, f"turn-{turn}", window) == project(G, whole, f"turn-{turn}", window)
            shorter += len(read) < len(whole)
    assert shorter


def instructions(database: Recorded, sql: str, turn: int) -> int:
    """The number of instructions that the database executes for it."""
    values = {"thread": "thread-1", "turn": f"turn-{turn}", "messages": 10, "weight": 2**62, "opaque": 0}
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    with closing(sqlite3.connect(database.path)) as connection:
        connection.set_progress_handler(count, 1)
        connection.execute(sql, values).fetchall()
    return counted


async def test_the_work_does_not_grow_with_the_thread(database: Recorded) -> None:
    talk, work = Talk(), []
    for number in range(1, 801):
        talk.turn(f"q{number}", answer(f"a{number}"))
        if number in {20, 800}:
            await database.ledger.commit(*talk.points)
            talk.points.clear()
            work.append(
                [instructions(database, sql, number) for sql in (compiled.RECENT_HISTORY, compiled.MEASURED_CALLS)]
            )
    short, long = work
    assert short == long


async def test_the_latest_calls_have_their_weight_and_usage(database: Recorded) -> None:
    talk = Talk()
    for number in range(1, 11):
        talk.accept("q")
        talk.run(usage={"input_tokens": number}, weight=number * 4, fails=number == 9)
    await database.ledger.commit(*talk.points)
    expected = [MeasuredCall(number * 4, {"input_tokens": number}) for number in (10, *range(8, 1, -1))]
    assert await database.ledger.measured_calls("thread-1") == tuple(expected)


async def test_a_call_without_usage_has_none(database: Recorded) -> None:
    talk = Talk()
    talk.turn("q")
    await database.ledger.commit(*talk.points)
    assert await database.ledger.measured_calls("thread-1") == (MeasuredCall(None, None),)
