"""When the calls of a connection begin."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.a2a.errors import TooManyRequests
from gateway.grpc import turns
from gateway.grpc.turns import Held, Turns

MIB = 2**20


async def settled() -> None:
    """Waits until all tasks have had their turn."""
    for _ in range(5):
        await asyncio.sleep(0)


class Calls:
    """Calls of one connection, which run until they are told to end."""

    def __init__(self, group: asyncio.TaskGroup, held: Held | None = None) -> None:
        self._group = group
        self.turns = Turns(held or Held())
        self.begun: list[str] = []

    async def call(self, name: str, *, reads: bool = True) -> asyncio.Task[None]:
        """Returns when it runs or waits."""
        task = self._group.create_task(self._run(name, reads))
        await settled()
        return task

    async def _run(self, name: str, reads: bool) -> None:
        async with self.turns.turn(reads=reads):
            self.begun.append(name)
            await asyncio.Event().wait()

    async def end(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        await settled()


@asynccontextmanager
async def calling(held: Held | None = None) -> AsyncIterator[Calls]:
    async with asyncio.TaskGroup() as group:
        calls = Calls(group, held)
        yield calls
        for task in group._tasks.copy():
            task.cancel()


async def test_reads_beyond_those_at_once_wait_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_READS", 2)
    async with calling() as calls:
        first, *_ = [await calls.call(name) for name in "abcd"]
        assert calls.begun == ["a", "b"]
        await calls.end(first)
        assert calls.begun == ["a", "b", "c"]


async def test_what_works_does_not_wait_for_what_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_READS", 1)
    async with calling() as calls:
        await calls.call("a")
        await calls.call("b")
        await calls.call("work", reads=False)
        assert calls.begun == ["a", "work"]


async def test_no_read_begins_while_the_connection_has_much_to_take_and_all_else_does() -> None:
    async with calling() as calls:
        calls.turns.hold(16 * MIB)
        await calls.call("a")
        await calls.call("cancel", reads=False)
        assert calls.begun == ["cancel"]
        calls.turns.release(1)
        await settled()
        assert calls.begun == ["cancel", "a"]


async def test_nothing_begins_between_what_an_answer_takes_to_be_made_and_the_answer() -> None:
    async with calling() as calls, calls.turns.turn(reads=True) as turn:
        calls.turns.hold(12 * MIB)
        with turn.making(4 * MIB):
            await calls.call("a")
        calls.turns.hold(4 * MIB)
        await settled()
        assert not calls.begun
        calls.turns.release(4 * MIB)
        await settled()
        assert calls.begun == ["a"]


@pytest.mark.parametrize("reads", [False, True])
async def test_an_answer_that_was_never_sent_leaves_its_place(reads: bool) -> None:
    async with calling() as calls:
        calls.turns.hold(12 * MIB)
        async with calls.turns.turn(reads=reads) as turn:
            with turn.making(4 * MIB):
                await calls.call("a")
        await settled()
        assert calls.begun == ["a"]


async def test_one_that_waits_may_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_READS", 1)
    async with calling() as calls:
        first = await calls.call("a")
        second = await calls.call("b")
        await calls.call("c")
        await calls.end(second)
        assert calls.begun == ["a"]
        await calls.end(first)
        assert calls.begun == ["a", "c"]


async def test_one_that_leaves_when_its_turn_comes_leaves_it_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_READS", 1)
    async with calling() as calls:
        calls.turns.hold(16 * MIB)
        first = await calls.call("a")
        await calls.call("b")
        calls.turns.release(16 * MIB)
        await calls.end(first)
        assert calls.begun == ["b"]


async def test_a_turn_that_is_over_early_is_over_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_READS", 1)
    async with calling() as calls:
        async with calls.turns.turn(reads=True) as turn:
            turn.end()
            await calls.call("a")
        await calls.call("b")
        assert calls.begun == ["a"]


async def test_what_waits_for_nothing_is_neither_begun_nor_answered_when_there_is_far_too_much_to_take() -> None:
    async with calling() as calls, calls.turns.turn(reads=False) as works, calls.turns.turn(reads=True) as reads:
        calls.turns.hold(56 * MIB)
        works.check()
        with works.making(2**30):
            assert calls.turns.held == 64 * MIB
            assert (works.overfull, reads.overfull) == (True, False)
            with pytest.raises(TooManyRequests):
                works.check()
            reads.check()
        assert calls.turns.held == 56 * MIB
        assert not works.overfull


async def test_no_more_answers_are_made_at_once_than_the_process_bears(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_MADE_AT_ONCE", 1)
    held = Held()
    async with calling(held) as one, calling(held) as other, one.turns.turn(reads=True) as turn:
        waiting = await other.call("left")
        await other.call("a")
        await other.call("work", reads=False)
        assert other.begun == ["work"]
        await other.end(waiting)
        turn.made()
        turn.made()
        await settled()
        assert other.begun == ["work", "a"]
        await other.call("b")
        assert other.begun == ["work", "a"]


async def test_what_has_waited_for_others_looks_once_more_at_what_its_peer_has_to_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "_MADE_AT_ONCE", 1)
    held = Held()
    async with calling(held) as calls:
        async with Turns(held).turn(reads=True):
            await calls.call("a")
            Turns(held).hold(256 * MIB)
            calls.turns.hold(1)
        await settled()
        assert not calls.begun
        calls.turns.release(1)
        await settled()
        assert calls.begun == ["a"]


async def test_in_a_full_process_a_connection_begins_when_it_has_taken_all() -> None:
    held = Held()
    async with calling(held) as calls:
        Turns(held).hold(256 * MIB)
        await calls.call("a")
        await calls.call("b")
        assert calls.begun == ["a"]
        calls.turns.hold(1)
        await calls.call("work", reads=False)
        assert calls.begun == ["a", "work"]


async def test_large_answers_are_written_one_by_one_in_the_whole_process() -> None:
    held = Held()
    async with calling(held) as one, calling(held) as other:
        first, second = one.turns.turn(reads=True), other.turns.turn(reads=False)
        async with first.writing(2 * MIB):
            async with other.turns.turn(reads=True).writing(MIB):
                pass
            waiting = asyncio.ensure_future(second.writing(2 * MIB).__aenter__())  # noqa: TID251
            await settled()
            assert not waiting.done()
        await settled()
        assert waiting.done()
