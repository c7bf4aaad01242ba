"""What comes from a conversation, whatever happens to the connection."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from gateway.ports.adapter import AdapterError, CallStarted, ErrorClass, MessageReady, TextDelta
from gateway.ports.capabilities import Ongoing
from gateway.testing.adapter_scripts import collect, completed, of_type, request, text
from gateway.testing.checks import bounded
from tests.adapters.copilot.direct_line.conftest import Adapt
from tests.emulators.direct_line import DirectLine, LineConversation
from tests.emulators.direct_line_bots import scripted
from tests.emulators.scripts import Conversation, Cut, Item, Pause, Say, Step
from tests.support.polling import until

LIST, JOIN = "GET /conversations/{id}/activities", "GET /conversations/{id}"


def plays(line: DirectLine, *steps: Step) -> None:
    line.bot = scripted(lambda: lambda _: steps)


def message(words: str, **more: Any) -> Item:
    return Item({"type": "message", "text": words, **more})


async def test_a_socket_that_is_cut_is_opened_again_and_nothing_is_lost_or_told_twice(
    line: DirectLine, adapt: Adapt
) -> None:
    plays(line, message("one"), Cut(), message("two"), message("three"))
    events = await collect(adapt(), request("Hi"))
    assert [event.text for event in of_type(events, MessageReady)] == ["one", "two", "three"]


async def test_a_message_in_pieces_goes_on_behind_a_cut(line: DirectLine, adapt: Adapt) -> None:
    again = asyncio.Event()

    async def script(_: Conversation) -> AsyncGenerator[Step]:
        yield Say("Hel")
        yield Cut()
        line.only.listened.clear()
        again.set()
        await line.only.listened.wait()
        yield Say("lo")

    line.bot = scripted(lambda: script)
    events = await collect(adapt(), request("Hi"))
    assert (text(events), again.is_set()) == ("Hello", True)


async def test_a_service_that_closes_the_socket_is_joined_again(line: DirectLine, adapt: Adapt) -> None:
    async def script(_: Conversation) -> AsyncGenerator[Step]:
        yield message("one")
        await line.only.disconnect()
        yield message("two")

    line.bot = scripted(lambda: script)
    events = await collect(adapt(), request("Hi"))
    assert [event.text for event in of_type(events, MessageReady)] == ["one", "two"]
    assert line.calls.count(JOIN) >= 1


async def test_without_sockets_messages_are_looked_for(line: DirectLine, adapt: Adapt) -> None:
    line.sockets = False
    plays(line, Say("Hello", 3))
    events = await collect(adapt(), request("Hi"))
    assert of_type(events, TextDelta) == [TextDelta("Hello")]
    assert LIST in line.calls


async def test_a_conversation_without_a_stream_is_looked_at(line: DirectLine, adapt: Adapt) -> None:
    line.streams = False
    assert text(await collect(adapt(), request("Hi"))) == "you said Hi"


async def test_a_socket_that_is_cut_again_and_again_is_given_up(line: DirectLine, adapt: Adapt) -> None:
    async def script(_: Conversation) -> AsyncGenerator[Step]:
        for word in ("one", "two", "three", "four"):
            line.only.listened.clear()
            yield message(word)
            yield Cut()
            if word != "three":
                await asyncio.wait_for(line.only.listened.wait(), 20)
            else:
                break
        yield message("four")

    line.bot = scripted(lambda: script)
    events = await collect(adapt(), request("Hi"))
    assert [event.text for event in of_type(events, MessageReady)] == ["one", "two", "three", "four"]


async def test_a_passing_fault_of_a_look_is_no_fault_of_the_turn(line: DirectLine, adapt: Adapt) -> None:
    line.sockets = False
    for _ in range(2):
        line.refuse(LIST, 429)
    assert text(await collect(adapt(), request("Hi"))) == "you said Hi"


@pytest.mark.parametrize("status", [401, 404, 409, 429, 500, 502, 503, 504])
@pytest.mark.parametrize("request_again", [JOIN, LIST])
async def test_a_passing_fault_behind_a_cut_loses_nothing(
    line: DirectLine, adapt: Adapt, status: int, request_again: str
) -> None:
    async def script(_: Conversation) -> AsyncGenerator[Step]:
        yield message("one")
        line.refuse(request_again, status, "ServiceError")
        yield Cut()
        yield message("two")

    line.bot = scripted(lambda: script)
    adapter, asked = adapt(), request("Hi")
    if status == 401:
        # It may have to be mended by somebody: the call can be listened to again.
        with pytest.raises(AdapterError) as caught:
            await collect(adapter, asked)
        assert caught.value.kind is ErrorClass.INTERRUPTED
    else:
        events = await collect(adapter, asked)
        assert [event.text for event in of_type(events, MessageReady)] == ["one", "two"]


async def test_a_lost_connection_is_no_silence_of_the_bot(line: DirectLine, adapt: Adapt) -> None:
    line.answers_at_once = True

    async def script(_: Conversation) -> AsyncGenerator[Step]:
        yield message("one")
        for _number in range(2):
            line.refuse(JOIN, 503, "ServiceError")
        yield Cut()
        await until(lambda: line.calls.count(JOIN) == 2)
        yield message("two")

    line.bot = scripted(lambda: script)
    events = await collect(adapt(poll="400ms"), request("Hi"))
    assert [event.text for event in of_type(events, MessageReady)] == ["one", "two"]


async def test_who_listens_again_in_vain_may_try_once_more(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    for _ in range(3):
        line.refuse(LIST, 500, "ServiceError")
    with pytest.raises(AdapterError) as caught:
        async for _event in adapter.resume(request("Hi"), Ongoing(done.handle, line.only.log[0]["id"])):
            pass
    assert caught.value.kind is ErrorClass.INTERRUPTED


async def test_the_name_of_a_message_comes_before_the_fault_of_its_answer(line: DirectLine, adapt: Adapt) -> None:
    """By it the message is known to have arrived."""
    go = asyncio.Event()

    async def bot(_: DirectLine, conversation: LineConversation, activity: Any) -> Any:
        await conversation.send_raw("{no")
        await go.wait()
        return answering

    async def answering(_: str) -> None:
        return None

    line.bot = bot
    told: list[Any] = []

    async def listen() -> None:
        async for event in adapt().call(request("Hi")):
            told.append(event)
            go.set()

    with pytest.raises(AdapterError) as caught:
        await listen()
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN
    assert told[-1] == CallStarted(line.only.id, line.only.log[0]["id"])


async def test_a_lasting_fault_of_the_looks_ends_the_turn(line: DirectLine, adapt: Adapt) -> None:
    line.sockets, line.answers_at_once = False, True

    async def script(_: Conversation) -> AsyncGenerator[Step]:
        for _number in range(20):
            line.refuse(LIST, 429)
        yield Pause(asyncio.Event())

    line.bot = scripted(lambda: script)
    with pytest.raises(AdapterError) as caught:
        await collect(adapt(), request("Hi"))
    # The message itself was taken, so that it must not be sent again.
    assert caught.value.kind is ErrorClass.INTERRUPTED


async def test_a_conversation_that_cannot_be_heard_is_not_spoken_in(line: DirectLine, adapt: Adapt) -> None:
    done = completed(await collect(adapt(), request("Hi")))
    line.refuse(JOIN, 503, "ServiceError")
    asked = request("And now?", handle=done.handle, state=done.state)
    with pytest.raises(AdapterError) as caught:
        await collect(adapt(), asked)
    # Nothing was sent, so that the same can be tried again.
    assert (caught.value.kind, caught.value.backend_down) == (ErrorClass.UNREACHABLE, True)
    assert len(line.requests) == 1


async def test_a_conversation_that_is_lost_in_the_middle_ends_the_turn(line: DirectLine, adapt: Adapt) -> None:
    async def script(_: Conversation) -> AsyncGenerator[Step]:
        yield Say("Hel")
        conversation = line.only
        line.conversations.clear()
        await conversation.disconnect()

    line.bot = scripted(lambda: script)
    with pytest.raises(AdapterError) as caught:
        await collect(adapt(), request("Hi"))
    assert caught.value.kind is ErrorClass.HANDLE_NOT_FOUND


async def test_a_frame_that_is_no_json_breaks_the_contract(line: DirectLine, adapt: Adapt) -> None:
    async def script(_: Conversation) -> AsyncGenerator[Step]:
        yield Say("Hel")
        await line.only.send_raw("{no")

    line.bot = scripted(lambda: script)
    with pytest.raises(AdapterError) as caught:
        await collect(adapt(), request("Hi"))
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN


async def test_the_watermark_moves_only_where_there_is_one(line: DirectLine, adapt: Adapt) -> None:
    plays(line, message("one"), Item({"type": "typing"}))
    done = completed(await collect(adapt(), request("Hi")))
    assert done.state["watermark"] == "1"


async def test_the_next_turn_hears_from_the_watermark_on(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    again = completed(await collect(adapter, request("And now?", handle=done.handle, state=done.state)))
    assert [done.state["watermark"], again.state["watermark"]] == ["1", "3"]
    assert of_type(await collect(adapter, request("3", handle=done.handle, state=again.state)), TextDelta) == [
        TextDelta("you said 3")
    ]


async def test_a_message_is_named_before_its_answer(line: DirectLine, adapt: Adapt) -> None:
    events = await collect(adapt(), request("Hi"))
    started = of_type(events, CallStarted)
    assert started == [CallStarted(line.only.id), CallStarted(line.only.id, line.only.log[0]["id"])]
    assert events.index(started[-1]) < events.index(TextDelta("you said Hi"))


async def test_no_task_and_no_socket_outlives_a_call_that_is_closed(line: DirectLine, adapt: Adapt) -> None:
    plays(line, Say("Hel"), Pause(asyncio.Event()))
    before = asyncio.all_tasks()
    events = adapt().call(request("Hi"))
    async for event in events:
        if isinstance(event, TextDelta):
            break
    await bounded(events.aclose(), "closing the call")
    await bounded(line.only.left.wait(), "the socket is closed")
    mine = {task for task in asyncio.all_tasks() - before if "Reception" in repr(task.get_coro())}
    assert mine == set()
