"""Stored responses of the emulator, their continuation, and refusals, checked by the vendor's client and API description."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import openai
import pytest

from tests.emulators.conftest import Connect, error_of, events_of, response_wire
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Cut, ErrorEvent, Fail, NoTerminal, Pause, Say, Step, Think
from tests.openapi import openai_validator

WEATHER = Call("get_weather", {"city": "Oslo"}, "call_1")


def greet(conversation: Conversation) -> list[Step]:
    return [Say(f"Hello {len(conversation.user_texts)} {conversation.user_texts[0]}", chunks=2)]


# The chain


async def test_a_chain_knows_its_beginning_and_every_id_is_new(connect: Connect) -> None:
    server = ResponsesServer(greet)
    client = await connect(server)
    first = await client.responses.create(model="m", input="one", instructions="Be brief")
    second = (await events_of(client, "two", previous_response_id=first.id))[-1].response
    third = await client.responses.create(model="m", input="three", previous_response_id=second.id)
    assert [response.output_text for response in (first, second, third)] == [
        "Hello 1 one",
        "Hello 2 one",
        "Hello 3 one",
    ]
    assert (third.previous_response_id, third.instructions) == (second.id, None)
    assert len({first.id, second.id, third.id}) == 3
    assert [request.get("previous_response_id") for request in server.requests] == [None, first.id, second.id]
    assert server.headers[0]["authorization"] == "Bearer sk-0123456789abcdef"


async def test_two_responses_may_continue_the_same_one(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    root = await client.responses.create(model="m", input="root")
    forks = [await client.responses.create(model="m", input=t, previous_response_id=root.id) for t in ("a", "b")]
    assert [fork.output_text for fork in forks] == ["Hello 2 root", "Hello 2 root"]


async def test_an_unknown_previous_response_is_refused(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    with pytest.raises(openai.BadRequestError) as failure:
        await client.responses.create(model="m", input="hi", previous_response_id="resp_x")
    assert error_of(failure) == {
        "message": "Previous response with id 'resp_x' not found.",
        "type": "invalid_request_error",
        "param": "previous_response_id",
        "code": "previous_response_not_found",
    }


@pytest.mark.parametrize("ending", [Cut(), NoTerminal(), Fail(), ErrorEvent()])
async def test_a_response_that_did_not_complete_cannot_be_continued(connect: Connect, ending: Step) -> None:
    server = ResponsesServer(lambda _: [Say("Hel"), ending])
    client = await connect(server)
    with suppress(openai.APIError):
        await events_of(client)
    (name,) = server.stored
    with pytest.raises(openai.BadRequestError, match="cannot be continued"):
        await client.responses.create(model="m", input="hi", previous_response_id=name)


async def test_a_client_that_leaves_ends_the_generation(connect: Connect) -> None:
    ended = asyncio.Event()

    async def script(_: Conversation) -> AsyncIterator[Step]:
        try:
            yield Say("Hel")
            yield Pause(asyncio.Event())
        finally:
            ended.set()

    server = ResponsesServer(script)
    client = await connect(server)
    stream = await client.responses.create(model="m", input="hi", stream=True)
    async for event in stream:
        if event.type == "response.output_text.delta":
            break
    await stream.close()
    async with asyncio.timeout(30):
        await ended.wait()
    (name,) = server.stored
    assert (await client.responses.retrieve(name)).status == "in_progress"


async def test_previous_response_and_conversation_exclude_each_other(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    with pytest.raises(openai.BadRequestError, match="Mutually exclusive"):
        await client.responses.create(model="m", input="hi", previous_response_id="resp_x", conversation="conv_x")
    with pytest.raises(openai.NotFoundError, match="Conversation with id 'conv_x' not found"):
        await client.responses.create(model="m", input="hi", conversation="conv_x")


# Function calls


def weather(conversation: Conversation) -> list[Step]:
    if not conversation.tool_outputs:
        return [WEATHER, Call("get_time", {}, "call_2")]
    return [Say(" ".join(sorted(conversation.tool_outputs.values())))]


def output_of(call_id: str, output: str) -> Any:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


async def test_a_tool_turn_continues_with_the_outputs_of_all_calls(connect: Connect) -> None:
    server = ResponsesServer(weather, validator=openai_validator())
    client = await connect(server)
    asked = await client.responses.create(model="m", input="hi")
    assert [item.type for item in asked.output] == ["function_call", "function_call"]
    outputs = [output_of("call_1", "3 degrees"), output_of("call_2", "noon")]
    answer = await client.responses.create(model="m", input=outputs, previous_response_id=asked.id)
    assert answer.output_text == "3 degrees noon"
    assert server.violations == []


@pytest.mark.parametrize(
    "items", [[output_of("call_1", "3 degrees")], [output_of("call_1", "x"), {"role": "user", "content": "hi"}]]
)
async def test_a_call_without_an_output_is_refused(connect: Connect, items: Any) -> None:
    client = await connect(ResponsesServer(weather))
    asked = await client.responses.create(model="m", input="hi")
    with pytest.raises(openai.BadRequestError) as failure:
        await client.responses.create(model="m", input=items, previous_response_id=asked.id)
    assert error_of(failure) == {
        "message": "No tool output found for function call call_2.",
        "type": "invalid_request_error",
        "param": "input",
        "code": None,
    }


async def test_an_output_without_a_call_is_refused(connect: Connect) -> None:
    client = await connect(ResponsesServer(weather))
    with pytest.raises(openai.BadRequestError, match="No tool call found for function call output with call_id call_9"):
        await client.responses.create(model="m", input=[output_of("call_9", "x")])


# Stored responses


async def test_a_stored_response_can_be_read_and_deleted(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    response = await client.responses.create(model="m", input=[{"role": "user", "content": "a"}])
    assert (await client.responses.retrieve(response.id)) == response
    await client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError, match=f"Response with id '{response.id}' not found"):
        await client.responses.retrieve(response.id)


async def test_input_items_come_in_pages(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    given: Any = [{"role": "user", "content": [{"type": "input_text", "text": text}]} for text in "abc"]
    response = await client.responses.create(model="m", input=given)
    texts = [
        item.to_dict()["content"] async for item in client.responses.input_items.list(response.id, limit=2, order="asc")
    ]
    assert texts == [item["content"] for item in given]
    newest = await client.responses.input_items.list(response.id, limit=1)
    assert [item.to_dict()["content"] for item in newest.data] == [given[2]["content"]]


async def test_a_foreground_response_cannot_be_streamed_again_or_cancelled(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    response = await client.responses.create(model="m", input="hi")
    with pytest.raises(openai.BadRequestError, match="not created with background=true"):
        await client.responses.retrieve(response.id, stream=True)
    with pytest.raises(openai.BadRequestError, match="Cannot cancel a synchronous response"):
        await client.responses.cancel(response.id)


async def test_a_background_response_can_be_cancelled(connect: Connect) -> None:
    release = asyncio.Event()
    client = await connect(ResponsesServer(lambda _: [Say("Hel"), Pause(release), Say("never")]))
    stream = await client.responses.create(model="m", input="hi", stream=True, background=True)
    kinds = []
    async for event in stream:
        kinds.append(event.type)
        if event.type == "response.created":
            assert (await client.responses.cancel(event.response.id)).status == "cancelled"
            release.set()
    assert "response.completed" not in kinds


# Without storage


async def test_an_unstored_response_can_be_neither_read_nor_continued(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    response = await client.responses.create(model="m", input="hi", store=False)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(response.id)
    with pytest.raises(openai.BadRequestError, match="Previous response with id"):
        await client.responses.create(model="m", input="hi", previous_response_id=response.id)


async def test_encrypted_reasoning_may_be_replayed_but_not_its_first_copy(connect: Connect) -> None:
    server = ResponsesServer(lambda _: [Think("Hm"), Say("Hello")], validator=openai_validator())
    client = await connect(server)
    events = await events_of(client, store=False, include=["reasoning.encrypted_content"])
    added, done = (
        next(event.item.to_dict() for event in events if event.type == f"response.output_item.{when}")
        for when in ("added", "done")
    )
    user: Any = {"role": "user", "content": "go on"}
    assert (await client.responses.create(model="m", input=[user, done, user], store=False)).output_text == "Hello"
    with pytest.raises(openai.BadRequestError) as failure:
        await client.responses.create(model="m", input=[user, added, user], store=False)
    assert error_of(failure)["code"] == "invalid_encrypted_content"
    assert server.violations == []


async def test_reasoning_is_not_encrypted_unless_asked_for(connect: Connect) -> None:
    client = await connect(ResponsesServer(lambda _: [Think("Hm")]))
    assert "encrypted_content" not in await response_wire(client)


async def test_ids_that_were_not_stored_are_refused(connect: Connect) -> None:
    client = await connect(ResponsesServer(lambda _: [Think("Hm"), Say("Hello")]))
    response = await client.responses.create(model="m", input="hi", store=False)
    for item in response.output:
        with pytest.raises(openai.NotFoundError) as failure:
            await client.responses.create(model="m", input=[item.to_dict()], store=False)  # type: ignore[list-item]
        assert error_of(failure)["message"] == (
            f"Item with id '{item.id}' not found. Items are not persisted when `store` is set to false. "
            "Try again with `store` set to true, or remove this item from your input."
        )


async def test_a_stored_item_may_be_referred_to(connect: Connect) -> None:
    seen: list[Conversation] = []

    def script(conversation: Conversation) -> list[Step]:
        seen.append(conversation)
        return [Say("Hello")]

    client = await connect(ResponsesServer(script))
    response = await client.responses.create(model="m", input="hi")
    await client.responses.create(model="m", input=[{"type": "item_reference", "id": response.output[0].id or ""}])
    assert seen[1].items[0]["content"][0]["text"] == "Hello"


# Refusals before any script


async def test_keys_are_checked_and_a_wrong_one_is_quoted_in_part(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet, api_key="sk-right"))
    with pytest.raises(openai.AuthenticationError) as failure:
        await client.models.list()
    assert error_of(failure) == {
        "message": "Incorrect API key provided: sk-01234*******cdef. You can find your API key at "
        "https://platform.openai.com/account/api-keys.",
        "type": "invalid_request_error",
        "param": None,
        "code": "invalid_api_key",
    }
    with pytest.raises(openai.AuthenticationError, match="You didn't provide an API key"):
        await client.models.list(extra_headers={"Authorization": openai.Omit()})
    await client.with_options(api_key="sk-right").models.list()


async def test_models_are_listed_and_others_refused(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet, models=("gpt-5.5",)))
    assert [model.id async for model in client.models.list()] == ["gpt-5.5"]
    with pytest.raises(openai.BadRequestError, match="The requested model 'm' does not exist"):
        await client.responses.create(model="m", input="hi")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"{", "We could not parse the JSON body"),
        (b"[]", "We could not parse the JSON body"),
        (b'{"input": "hi"}', "Missing required parameter: 'model'"),
        (b'{"model": "m"}', "Missing required parameter: 'input'"),
        (b'{"model": "m", "input": 5}', "Invalid type for 'input'"),
    ],
)
async def test_bodies_without_sense_are_refused(connect: Connect, body: bytes, message: str) -> None:
    client = await connect(ResponsesServer(greet))
    with pytest.raises(openai.BadRequestError, match=message):
        await client.post("/responses", content=body, cast_to=object)


async def test_a_body_that_violates_the_description_is_refused_and_recorded(connect: Connect) -> None:
    server = ResponsesServer(greet, validator=openai_validator())
    client = await connect(server)
    bad: Any = [{"type": "function_call_output", "call_id": "call_1"}]
    with pytest.raises(openai.BadRequestError, match="The body violates CreateResponse"):
        await client.responses.create(model="m", input=bad)
    assert len(server.violations) == 1


async def test_an_unknown_url_is_refused_in_the_vendors_form(connect: Connect) -> None:
    client = await connect(ResponsesServer(greet))
    with pytest.raises(openai.NotFoundError, match=r"Invalid URL \(POST /v1/embeddings\)"):
        await client.embeddings.create(model="m", input="hi")


async def test_files_and_pictures_are_accepted_as_input(connect: Connect) -> None:
    server = ResponsesServer(greet, validator=openai_validator())
    client = await connect(server)
    content: Any = [
        {"type": "input_text", "text": "look"},
        {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"},
        {"type": "input_file", "filename": "a.txt", "file_data": "data:text/plain;base64,AA=="},
    ]
    response = await client.responses.create(model="m", input=[{"role": "user", "content": content}])
    assert response.output_text == "Hello 1 look"
    assert server.violations == []
