"""Delivery to many streams: one order for all, each event once, and a stream that does not read is dropped."""

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from gateway.a2a.errors import Busy
from gateway.a2a.model import Message, Part, Role, StreamResponse, Task, TaskState, TaskStatus
from gateway.engine.fanout import Channel, Fanout, StreamLimits, Subscription, TaskStream, message_stream, task_frame
from gateway.ledger.events import Frame
from tests.support.core import frames, soon


def fanout(**limits: int) -> Fanout:
    return Fanout(StreamLimits(**limits))


async def rest(subscription: Subscription) -> list[list[Frame]]:
    return await soon(_collected(subscription))


async def _collected(subscription: Subscription) -> list[list[Frame]]:
    return [batch async for batch in subscription]


async def following_of(batches: AsyncIterator[list[Frame]]) -> list[Frame]:
    return await anext(batches)


async def _collected_from(batches: AsyncIterator[list[Frame]]) -> list[list[Frame]]:
    return [batch async for batch in batches]


def publish(channel: Channel, first: int, *payloads: bytes) -> None:
    channel.publish(first, payloads)


async def test_events_published_together_are_read_together_and_in_order() -> None:
    channel = fanout().open("t")
    subscription = channel.subscribe()
    publish(channel, 1, b"a", b"b")
    publish(channel, 3, b"c")
    channel.close()
    assert await rest(subscription) == [[(1, b"a"), (2, b"b"), (3, b"c")]]


async def test_a_reader_that_waits_is_woken() -> None:
    channel = fanout().open("t")
    batches = aiter(channel.subscribe())
    async with asyncio.TaskGroup() as group:
        first = group.create_task(following_of(batches))
        await asyncio.sleep(0)
        publish(channel, 1, b"a")
        assert await soon(first) == [(1, b"a")]
        second = group.create_task(_collected_from(batches))
        await asyncio.sleep(0)
        channel.close()
        assert await soon(second) == []


async def test_a_reader_that_gives_up_waiting_can_be_published_to() -> None:
    channel = fanout().open("t")
    subscription = channel.subscribe()
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(following_of(aiter(subscription)))
        await asyncio.sleep(0)
        waiting.cancel()
    publish(channel, 1, b"a")
    channel.close()
    assert await rest(subscription) == [[(1, b"a")]]


async def test_every_reader_sees_the_same_from_where_it_came_in() -> None:
    channel = fanout().open("t")
    early = channel.subscribe()
    publish(channel, 1, b"a")
    late = channel.subscribe()
    publish(channel, 2, b"b")
    channel.close()
    assert await rest(early) == [[(1, b"a"), (2, b"b")]]
    assert await rest(late) == [[(2, b"b")]]


@pytest.mark.parametrize(("limits", "payload"), [({"events": 2}, b"x"), ({"bytes": 20}, b"x" * 10)])
async def test_a_reader_that_leaves_too_much_unread_is_dropped_and_the_others_are_not(
    limits: dict[str, int], payload: bytes
) -> None:
    channel = fanout(**limits).open("t")
    slow, quick = channel.subscribe(), channel.subscribe()
    read = aiter(quick)
    for number in (1, 2, 3):
        publish(channel, number, payload)
        assert await soon(anext(read)) == [(number, payload)]
    channel.close()
    assert slow.dropped
    with pytest.raises(Busy, match="has fallen behind; resume it"):
        await rest(slow)
    assert not quick.dropped
    assert await anext(read, None) is None


async def test_a_reader_that_has_read_all_takes_a_batch_of_any_size() -> None:
    channel = fanout(events=1, bytes=1).open("t")
    subscription = channel.subscribe()
    publish(channel, 1, b"long", b"longer")
    channel.close()
    assert not subscription.dropped
    assert await rest(subscription) == [[(1, b"long"), (2, b"longer")]]


async def test_a_batch_beyond_the_limit_reaches_a_reader_with_little_unread() -> None:
    channel = fanout(bytes=20).open("t")
    subscription = channel.subscribe()
    publish(channel, 1, b"x")
    publish(channel, 2, b"x" * 30)
    channel.close()
    assert await rest(subscription) == [[(1, b"x"), (2, b"x" * 30)]]


async def test_a_reader_that_waits_for_events_takes_all_groups_of_one_step_of_the_event_loop() -> None:
    channel = fanout(bytes=20).open("t")
    subscription = channel.subscribe()
    async with asyncio.TaskGroup() as group:
        read = group.create_task(rest(subscription))
        await asyncio.sleep(0)
        publish(channel, 1, b"x" * 30)
        publish(channel, 2, b"y")
        channel.close()
    assert read.result() == [[(1, b"x" * 30), (2, b"y")]]


async def test_a_dropped_reader_frees_its_place() -> None:
    streams = fanout(events=1, streams=1)
    channel = streams.open("t")
    channel.subscribe()
    with pytest.raises(Busy, match="Too many streams"):
        streams.check_room()
    publish(channel, 1, b"a")
    publish(channel, 2, b"b")
    streams.check_room()


async def test_a_reader_that_leaves_frees_its_place_once() -> None:
    streams = fanout(streams=2)
    channel = streams.open("t")
    one, _other = channel.subscribe(), channel.subscribe()
    with pytest.raises(Busy):
        streams.check_room()
    one.close()
    one.close()
    streams.check_room()
    channel.subscribe()
    with pytest.raises(Busy):
        streams.check_room()


async def test_nothing_comes_after_the_end() -> None:
    channel = fanout().open("t")
    subscription = channel.subscribe()
    subscription.end()
    publish(channel, 1, b"a")
    assert await rest(subscription) == []


async def test_a_channel_without_streams_takes_events() -> None:
    publish(fanout().open("t"), 1, b"a")


async def test_a_reader_that_reads_the_log_is_sent_nothing_and_told_behind_it_that_there_was_more() -> None:
    channel = fanout(events=1).open("t")
    subscription = channel.subscribe()
    publish(channel, 1, b"a")
    subscription.fall_behind()
    publish(channel, 2, b"b")
    publish(channel, 3, b"c")
    subscription.catch_up()
    assert await soon(anext(subscription)) == []
    publish(channel, 4, b"d")
    assert await soon(anext(subscription)) == [(4, b"d")]


async def test_a_task_has_one_channel_as_long_as_it_is_held_or_watched() -> None:
    streams = fanout()
    held = streams.hold("t")
    assert streams.hold("t") is held
    subscription = streams.open("t").subscribe()
    streams.release("t")
    streams.release("t")
    assert streams.open("t") is held
    subscription.close()
    assert streams.open("t") is not held


async def test_a_channel_is_forgotten_with_its_last_hold() -> None:
    streams = fanout()
    held = streams.hold("t")
    streams.release("t")
    assert streams.open("t") is not held


async def test_the_end_of_a_task_ends_its_streams_and_a_new_one_begins_afresh() -> None:
    streams = fanout()
    ended = streams.hold("t")
    subscription = ended.subscribe()
    streams.close("t")
    assert await rest(subscription) == []
    fresh = streams.open("t")
    assert fresh is not ended
    watching = fresh.subscribe()
    subscription.close()
    streams.release("t")
    assert streams.open("t") is fresh
    watching.close()


async def test_a_task_without_streams_may_end() -> None:
    streams = fanout()
    streams.close("t")
    streams.release("t")


TASK = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING))


async def test_ready_frames_come_first_and_none_is_given_twice() -> None:
    channel = Fanout(StreamLimits()).open("t")
    stream = TaskStream([(1, b"a"), (2, b"b")], 2, channel.subscribe())
    channel.publish(1, [b"a", b"b", b"c"])
    channel.publish(4, [b"d"])
    channel.close()
    assert await frames(stream) == [(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")]


async def test_a_batch_of_known_events_is_skipped() -> None:
    channel = Fanout(StreamLimits()).open("t")
    stream = TaskStream([(None, b"task")], 9, channel.subscribe())
    channel.publish(8, [b"a", b"b"])
    channel.close()
    assert await frames(stream) == [(None, b"task")]


async def test_a_stream_without_more_to_come_ends() -> None:
    stream = TaskStream([(0, b"task")], 0, None)
    assert await frames(stream) == [(0, b"task")]


async def test_closing_a_stream_frees_the_channel() -> None:
    channel = Fanout(StreamLimits()).open("t")
    stream = TaskStream([], 0, channel.subscribe())
    assert channel.watched
    await stream.aclose()
    assert not channel.watched


async def test_a_task_is_the_frame_of_its_latest_event() -> None:
    number, payload = task_frame(TASK, 7)
    assert number == 7
    assert msgspec.json.decode(payload, type=StreamResponse) == StreamResponse(task=TASK)


async def test_a_bare_message_is_a_stream_of_one_event_without_a_number() -> None:
    reply = Message(message_id="m", role=Role.AGENT, parts=(Part(text="pong"),))
    [(number, payload)] = await frames(message_stream(reply))
    assert number is None
    assert msgspec.json.decode(payload, type=StreamResponse) == StreamResponse(message=reply)
