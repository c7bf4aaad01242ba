"""Conversations of the Responses emulator, judged by the vendor's client and API description."""

import asyncio
from contextlib import suppress
from typing import Any

import openai
import pytest

from tests.emulators.conftest import Connect, error_of, events_of
from tests.emulators.responses_dialects import RESPONSES_DIALECTS
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Cut, ErrorEvent, Fail, Incomplete, NoTerminal, Pause, Say, Step
from tests.openapi import openai_validator


def greet(conversation: Conversation) -> list[Step]:
    return [Say(f"Hello {len(conversation.user_texts)} {conversation.user_texts[0]}", chunks=2)]


async def _landed(client: openai.AsyncOpenAI, conversation: str) -> list[str]:
    return [item.type async for item in client.conversations.items.list(conversation, order="asc")]


async def test_responses_on_a_conversation_know_its_beginning_and_leave_their_items_there(connect: Connect) -> None:
    server = ResponsesServer(greet, validator=openai_validator())
    client = await connect(server)
    made = await client.conversations.create()
    first = await client.responses.create(model="m", input="one", conversation=made.id, instructions="Be brief")
    second = await client.responses.create(model="m", input="two", conversation={"id": made.id})
    assert [first.output_text, second.output_text] == ["Hello 1 one", "Hello 2 one"]
    assert second.conversation is not None
    assert (second.conversation.id, second.previous_response_id, second.instructions) == (made.id, None, None)
    listed: list[Any] = [item async for item in client.conversations.items.list(made.id, order="asc", limit=3)]
    assert [item.content[0].text for item in listed] == ["one", "Hello 1 one", "two", "Hello 2 one"]
    assert [listed[1].id, listed[3].id] == [first.output[0].id, second.output[0].id]
    newest = await client.conversations.items.list(made.id, limit=1)
    assert [item.id for item in newest.data] == [listed[3].id]
    assert server.violations == []


async def test_a_conversation_can_be_read_and_deleted_and_is_unknown_then(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    made = await client.conversations.create()
    assert (await client.conversations.retrieve(made.id)) == made
    assert (await client.conversations.delete(made.id)).deleted
    for ask in (client.conversations.retrieve, client.conversations.delete):
        with pytest.raises(openai.NotFoundError, match=f"Conversation with id '{made.id}' not found"):
            await ask(made.id)
    with pytest.raises(openai.NotFoundError, match=f"Conversation with id '{made.id}' not found"):
        await client.responses.create(model="m", input="hi", conversation=made.id)


async def test_an_item_of_a_conversation_can_be_deleted(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    made = await client.conversations.create(items=[{"role": "user", "content": text} for text in ("a", "b")])
    first, second = [item.id async for item in client.conversations.items.list(made.id, order="asc")]
    assert first is not None
    assert (await client.conversations.items.delete(first, conversation_id=made.id)) == made
    assert [item.id async for item in client.conversations.items.list(made.id)] == [second]
    with pytest.raises(openai.NotFoundError, match=f"Item with id '{first}' not found"):
        await client.conversations.items.delete(first, conversation_id=made.id)


async def test_a_conversation_may_begin_with_items(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    made = await client.conversations.create(items=[{"role": "user", "content": "zero"}])
    answer = await client.responses.create(model="m", input="one", conversation=made.id)
    assert answer.output_text == "Hello 2 zero"


@pytest.mark.parametrize("ending", [Cut(), NoTerminal(), Fail(), ErrorEvent()])
async def test_a_response_that_does_not_complete_leaves_nothing_and_frees_the_conversation(
    connect: Connect, ending: Step
) -> None:
    server = ResponsesServer(lambda _: [Say("Hel"), ending])
    client = await connect(server)
    made = await client.conversations.create()
    with suppress(openai.APIError):
        await events_of(client, conversation=made.id)
    assert await _landed(client, made.id) == []
    server.script = greet
    assert (await client.responses.create(model="m", input="hi", conversation=made.id)).output_text == "Hello 1 hi"


async def test_an_incomplete_response_leaves_what_it_has(connect: Connect) -> None:
    client = await connect(ResponsesServer(lambda _: [Say("Hel"), Incomplete()]))
    made = await client.conversations.create()
    await events_of(client, conversation=made.id)
    assert await _landed(client, made.id) == ["message", "message"]


async def test_while_a_response_is_made_the_conversation_is_locked_and_nothing_has_landed(connect: Connect) -> None:
    release = asyncio.Event()
    client = await connect(ResponsesServer(lambda _: [Say("Hel"), Pause(release), Say("lo")]))
    made = await client.conversations.create()
    stream = await client.responses.create(model="m", input="one", conversation=made.id, stream=True)
    with pytest.raises(openai.BadRequestError) as failure:
        await client.responses.create(model="m", input="two", conversation=made.id)
    assert error_of(failure) == {
        "message": "Another process is currently operating on this conversation. Please retry in a few seconds.",
        "type": "invalid_request_error",
        "param": "conversation",
        "code": "conversation_locked",
    }
    assert await _landed(client, made.id) == []
    release.set()
    assert [event async for event in stream][-1].type == "response.completed"
    assert await _landed(client, made.id) == ["message", "message"]
    await client.responses.create(model="m", input="two", conversation=made.id)


async def test_a_client_that_leaves_frees_the_conversation(connect: Connect) -> None:
    server = ResponsesServer(lambda _: [Say("Hel"), Pause(asyncio.Event())])
    client = await connect(server)
    made = await client.conversations.create()
    stream = await client.responses.create(model="m", input="one", conversation=made.id, stream=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    server.script = greet
    async with asyncio.timeout(30):
        while server.conversations[made.id].running is not None:  # noqa: ASYNC110  # there is no event for it
            await asyncio.sleep(0)
    assert (await client.responses.create(model="m", input="two", conversation=made.id)).output_text == "Hello 1 two"


async def test_open_calls_of_a_conversation_want_their_outputs(connect: Connect) -> None:
    server = ResponsesServer(lambda _: [Call("get_weather", {}, "call_1")])
    client = await connect(server)
    made = await client.conversations.create()
    await client.responses.create(model="m", input="hi", conversation=made.id)
    server.script = greet
    with pytest.raises(openai.BadRequestError, match="No tool output found for function call call_1"):
        await client.responses.create(model="m", input="never mind", conversation=made.id)
    given: Any = [
        {"type": "function_call_output", "call_id": "call_1", "output": "x"},
        {"role": "user", "content": "ok"},
    ]
    answer = await client.responses.create(model="m", input=given, conversation=made.id)
    assert answer.output_text == "Hello 2 hi"


async def test_a_server_may_take_two_at_once_not_echo_the_conversation_and_notice_a_missing_one_late(
    connect: Connect,
) -> None:
    server = ResponsesServer(greet, dialect=RESPONSES_DIALECTS["ogx"])
    client = await connect(server)
    made = await client.conversations.create()
    release = asyncio.Event()
    server.script = lambda _: [Say("Hel"), Pause(release)]
    stream = await client.responses.create(model="m", input="one", conversation=made.id, stream=True)
    server.script = greet
    answer = await client.responses.create(model="m", input="two", conversation=made.id)
    assert "conversation" not in answer.to_dict()
    release.set()
    await stream.close()
    await client.conversations.delete(made.id)
    [error] = await events_of(client, conversation=made.id)
    assert (error.type, error.code, error.message) == ("error", "404", f"Conversation '{made.id}' not found.")


async def test_a_server_may_ignore_a_conversation(connect: Connect) -> None:
    server = ResponsesServer(greet, dialect=RESPONSES_DIALECTS["litellm"])
    client = await connect(server)
    answer = await client.responses.create(model="m", input="one", conversation="conv_x")
    assert (answer.output_text, answer.conversation) == ("Hello 1 one", None)
