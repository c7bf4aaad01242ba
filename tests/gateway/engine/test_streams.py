"""Windows on a task: what is there already, then only what is newer."""

import msgspec

from gateway.a2a.model import Message, Part, Role, StreamResponse, Task, TaskState, TaskStatus
from gateway.engine.fanout import Fanout, StreamLimits, TaskStream, message_stream, task_frame
from tests.support.core import frames

TASK = Task(id="t", context_id="c", status=TaskStatus(state=TaskState.WORKING))


async def test_what_is_ready_comes_first_and_nothing_is_given_twice() -> None:
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


async def test_leaving_a_stream_leaves_the_channel() -> None:
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
