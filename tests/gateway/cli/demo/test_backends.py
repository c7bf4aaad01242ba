"""The services behind the demo, read by the vendor's own client and judged by its API description."""

from collections.abc import AsyncGenerator
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI

from gateway.cli.demo.backends import backends
from tests.openapi import openai_event_schemas, openai_validator

WEATHER = "The weather station says: Oslo: 3 degrees, light rain."
ADA: Any = [{"role": "user", "content": "I am Ada"}, {"role": "assistant", "content": "Hello"}]
WHO: Any = {"role": "user", "content": [{"type": "input_text", "text": "Who?"}]}
ADA_QUOTED = 'This is message 2 of our conversation. You first said: "I am Ada".'


@pytest.fixture
async def client(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[AsyncOpenAI]:
    monkeypatch.setattr("gateway.cli.demo.backends._PACE", 0.0)
    async with backends() as url, AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
        yield client


async def test_a_response_continues_the_one_before_it(client: AsyncOpenAI) -> None:
    first = await client.responses.create(model="m", input="I am Ada")
    second = await client.responses.create(model="m", input="Who?", previous_response_id=first.id)
    assert (first.output_text, second.output_text) == ('You said: "I am Ada".', ADA_QUOTED)
    assert first.id != second.id


async def test_what_is_not_stored_or_deleted_cannot_be_continued(client: AsyncOpenAI) -> None:
    unstored = await client.responses.create(model="m", input=[*ADA, WHO], store=False)
    assert unstored.output_text == ADA_QUOTED
    deleted = await client.responses.create(model="m", input="Hi")
    await client.responses.delete(deleted.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.delete(deleted.id)
    for response in (unstored, deleted):
        with pytest.raises(openai.BadRequestError) as refused:
            await client.responses.create(model="m", input="Who?", previous_response_id=response.id)
        assert refused.value.code == "previous_response_not_found"


async def test_a_question_for_the_weather_runs_a_tool_of_the_service(client: AsyncOpenAI) -> None:
    stream = await client.responses.create(model="m", input="What is the weather in Oslo?", stream=True)
    events: list[Any] = [event async for event in stream]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    response = events[-1].response
    assert [item.type for item in response.output] == ["mcp_call", "message"]
    call = response.output[0]
    assert (call.name, call.arguments, call.output) == ("get_weather", '{"city": "Oslo"}', WEATHER[26:-1])
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(deltas) == response.output_text == f'{WEATHER} You said: "What is the weather in Oslo?".'


async def test_every_event_satisfies_the_api_description(client: AsyncOpenAI) -> None:
    validate, schemas = openai_validator(), openai_event_schemas()
    stream = await client.responses.create(model="m", input="weather", stream=True)
    async for event in stream:
        assert validate(schemas[event.type], event.to_dict()) == []


@pytest.mark.parametrize("stream", [False, True])
async def test_a_completion_knows_the_history_in_its_messages(client: AsyncOpenAI, stream: bool) -> None:
    messages: Any = [*ADA, {"role": "user", "content": "The weather, please"}]
    if stream:
        chunks = await client.chat.completions.create(model="m", messages=messages, stream=True)
        answer = "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])
    else:
        completion = await client.chat.completions.create(model="m", messages=messages)
        answer = completion.choices[0].message.content or ""
    assert answer == f"{WEATHER} {ADA_QUOTED}"
