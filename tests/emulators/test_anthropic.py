"""The emulator of the Messages API, judged by the vendor's client, and what it refuses."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import anthropic
import httpx2
import pytest
from anthropic import AsyncAnthropic

from gateway.testing.serving import serve
from tests.anthropic_types import violations
from tests.emulators.anthropic import DIALECTS, EXPIRES, MessagesServer
from tests.emulators.scripts import (
    Call,
    Cite,
    Conversation,
    Cut,
    ErrorEvent,
    Fail,
    Incomplete,
    Item,
    NoTerminal,
    Refuse,
    Restarted,
    Say,
    ServerTool,
    Step,
    Stop,
    Think,
)

HI: Any = [{"role": "user", "content": "hi"}]
WEATHER = Call("get_weather", {"city": "Oslo"}, "toolu_1")
TIME = Call("get_time", {}, "toolu_2")
TOOLS: Any = [{"name": "get_weather", "input_schema": {"type": "object"}}]

Connect: TypeAlias = Callable[[MessagesServer], Awaitable[AsyncAnthropic]]


@pytest.fixture
async def connect() -> AsyncGenerator[Connect]:
    """Serves an emulator until the test ends and gives a client of it."""
    async with AsyncExitStack() as stack:

        async def connected(server: MessagesServer) -> AsyncAnthropic:
            url = await stack.enter_async_context(serve(server.app))
            client = AsyncAnthropic(base_url=url, api_key="sk-ant-0123456789", max_retries=0)
            return await stack.enter_async_context(client)

        yield connected


async def streamed(client: AsyncAnthropic, messages: Any = HI, **options: Any) -> Any:
    """The message that the client adds up from its stream."""
    async with client.messages.stream(model="m", max_tokens=2000, messages=messages, **options) as stream:
        return await stream.get_final_message()


async def created(client: AsyncAnthropic, messages: Any = HI, **options: Any) -> Any:
    return await client.messages.create(model="m", max_tokens=2000, messages=messages, **options)


async def refusal(client: AsyncAnthropic, messages: Any, **options: Any) -> str:
    with pytest.raises(anthropic.BadRequestError) as caught:
        await created(client, messages, **options)
    body: Any = caught.value.body
    assert body["error"]["type"] == "invalid_request_error"
    return str(body["error"]["message"])


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", sorted(DIALECTS.keys() - {"llmock"}))
async def test_the_client_adds_up_thinking_text_and_parallel_calls(connect: Connect, dialect: str) -> None:
    steps: list[Step] = [Think("Let me see", "sig_1", chunks=2), Say("Well.", chunks=2), WEATHER, TIME]
    client = await connect(MessagesServer(lambda _: steps, dialect=DIALECTS[dialect]))
    message = await streamed(client, tools=TOOLS)
    assert message.stop_reason == "tool_use"
    assert [block.to_dict() for block in message.content] == [
        {"type": "thinking", "thinking": "Let me see", "signature": "sig_1"},
        {"type": "text", "text": "Well."},
        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Oslo"}},
        {"type": "tool_use", "id": "toolu_2", "name": "get_time", "input": {}},
    ]


async def test_an_answer_in_one_piece_is_the_same_as_its_stream(connect: Connect) -> None:
    client = await connect(MessagesServer(lambda _: [Think("hm", "sig_1"), Say("Hello", chunks=3), WEATHER]))
    whole, stream = (await created(client, tools=TOOLS), await streamed(client, tools=TOOLS))
    assert [block.to_dict() for block in whole.content] == [block.to_dict() for block in stream.content]
    assert whole.usage.output_tokens == stream.usage.output_tokens


async def test_the_client_reads_tools_of_the_service_citations_and_the_container(connect: Connect) -> None:
    place = {"type": "web_search_result_location", "url": "u", "title": "t", "cited_text": "c", "encrypted_index": "x"}
    search = ServerTool("web_search", "web_search", {"query": "x"}, "Found")
    server = MessagesServer(lambda _: [search, Say("It is."), Cite(place), Stop("end_turn", container="container_1")])
    message = await streamed(await connect(server))
    use, found, text = message.content
    assert (use.type, use.name, use.input) == ("server_tool_use", "web_search", {"query": "x"})
    assert (found.type, found.tool_use_id, found.content[0].title) == ("web_search_tool_result", use.id, "Found")
    assert text.citations[0].url == "u"


async def test_a_tool_turn_is_answered_from_the_messages(connect: Connect) -> None:
    def script(conversation: Conversation) -> list[Step]:
        return [Say(text) for text in conversation.tool_outputs.values()] or [WEATHER]

    server = MessagesServer(script)
    client = await connect(server)
    first = await streamed(client, tools=TOOLS)
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "3C"}
    messages = [*HI, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    assert (await streamed(client, messages, tools=TOOLS)).content[0].text == "3C"
    assert [violations("", body) for body in server.requests] == [[], []]


async def test_a_paused_message_goes_on_from_its_content(connect: Connect) -> None:
    def script(conversation: Conversation) -> list[Step]:
        paused = conversation.request["messages"][-1]["role"] == "assistant"
        return [Say("Done.")] if paused else [Say("Wait. "), Stop("pause_turn", container="container_1")]

    client = await connect(MessagesServer(script))
    first = await streamed(client)
    assert first.stop_reason == "pause_turn"
    second = await streamed(client, [*HI, {"role": "assistant", "content": first.content}])
    assert second.content[0].text == "Done."


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (Incomplete(), "max_tokens"),
        (Incomplete("content_filter"), "refusal"),
        (Refuse("no"), "refusal"),
        (Stop("model_context_window_exceeded"), "model_context_window_exceeded"),
    ],
)
async def test_an_answer_has_the_reason_of_its_end(connect: Connect, step: Step, reason: str) -> None:
    client = await connect(MessagesServer(lambda _: [Say("Hel"), step]))
    assert (await streamed(client)).stop_reason == reason


@pytest.mark.parametrize("step", [Fail(message="broken"), ErrorEvent("overloaded_error", "broken")])
async def test_a_failure_in_mid_stream_is_an_error_event_under_200(connect: Connect, step: Step) -> None:
    client = await connect(MessagesServer(lambda _: [Say("Hel"), step, Say("never")]))
    with pytest.raises(anthropic.APIStatusError, match="broken"):
        await streamed(client)
    with pytest.raises(anthropic.InternalServerError, match="broken"):
        await created(client)


async def test_a_stream_can_be_cut_or_end_without_its_last_event(connect: Connect) -> None:
    client = await connect(MessagesServer(lambda _: [Say("Hel"), Cut()]))
    with pytest.raises((anthropic.APIError, httpx2.HTTPError)):
        await streamed(client)
    client = await connect(MessagesServer(lambda _: [Say("Hel"), NoTerminal()]))
    events = [event.type async for event in await created(client, stream=True)]
    assert "message_stop" not in events


async def test_models_are_listed_and_found_and_others_refused(connect: Connect) -> None:
    client = await connect(MessagesServer(models=("claude-x",)))
    assert [model.id async for model in client.models.list()] == ["claude-x"]
    assert (await client.models.retrieve("claude-x")).id == "claude-x"
    for unknown in (client.models.retrieve("m"), created(client)):
        with pytest.raises(anthropic.NotFoundError, match="model: m"):
            await unknown


async def test_files_are_described_and_given(connect: Connect) -> None:
    server = MessagesServer()
    server.files["file_1"] = b"a,b"
    client = await connect(server)
    about = await client.files.retrieve_metadata("file_1")
    assert (about.filename, about.size_bytes) == ("file_1.csv", 3)
    assert await (await client.files.download("file_1")).read() == b"a,b"
    with pytest.raises(anthropic.NotFoundError):
        await client.files.retrieve_metadata("file_2")


async def test_a_step_of_another_wire_is_a_mistake_of_the_script(connect: Connect) -> None:
    with pytest.raises(anthropic.InternalServerError):
        await created(await connect(MessagesServer(lambda _: [Restarted()])))


# --- refusals ---------------------------------------------------------------------------------------------------------


def asked(*ids: str) -> dict[str, Any]:
    calls = [{"type": "tool_use", "id": call_id, "name": "get_weather", "input": {}} for call_id in ids]
    return {"role": "assistant", "content": calls}


def answered(*ids: str, first: str = "") -> dict[str, Any]:
    results = [{"type": "tool_result", "tool_use_id": call_id, "content": "3C"} for call_id in ids]
    return {"role": "user", "content": [*([{"type": "text", "text": first}] if first else ()), *results]}


PNG = {"type": "base64", "media_type": "image/tiff", "data": "aGk="}
USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "sig_1"}


def says(*blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


REFUSED: dict[str, tuple[Any, str]] = {
    "nothing": ([], "at least one message"),
    "a role": ([{"role": "tool", "content": "x"}], "Unexpected role"),
    "a prefill": ([*HI, says({"type": "text", "text": "Well"})], "must end with a user message"),
    "an empty text": ([{"role": "user", "content": " "}], "non-whitespace"),
    "no content": ([{"role": "user", "content": []}], "non-empty content"),
    "a call without its result": ([*HI, asked("toolu_1"), *HI], "toolu_1"),
    "one result of two": ([*HI, asked("toolu_1", "toolu_2"), answered("toolu_1")], "without `tool_result` blocks"),
    "a result without its call": ([*HI, answered("toolu_1")], "unexpected `tool_use_id`"),
    "a result behind a text": ([*HI, asked("toolu_1"), answered("toolu_1", first="so")], "before all other content"),
    "two results of a call": ([*HI, asked("toolu_1"), answered("toolu_1", "toolu_1")], "a single result"),
    "an id of two calls": (
        [*HI, asked("toolu_1"), answered("toolu_1"), asked("toolu_1"), answered("toolu_1")],
        "must be unique",
    ),
    "an id of another form": ([*HI, asked("a.b"), answered("a.b")], "should match pattern"),
    "a picture": ([{"role": "user", "content": [{"type": "image", "source": PNG}]}], "media_type"),
    "a document": ([{"role": "user", "content": [{"type": "document", "source": PNG}]}], "application/pdf"),
    "another signature": ([*HI, says({**SIGNED, "signature": "x"}, {"type": "text", "text": "a"}), *HI], "Invalid"),
    "other thinking": ([*HI, says({**SIGNED, "thinking": "x"}, {"type": "text", "text": "a"}), *HI], "Invalid"),
    "hidden thinking": (
        [*HI, says({"type": "redacted_thinking", "data": "x"}, {"type": "text", "text": "a"}), *HI],
        "Invalid `data`",
    ),
    "thinking at the end": ([*HI, says({"type": "text", "text": "a"}, SIGNED), *HI], "final block"),
    "a changed use": ([*HI, says({**USE, "input": {"a": 1}}, FOUND), *HI], "cannot be modified"),
    "a result of the service alone": ([*HI, says(FOUND), *HI], "unexpected `tool_use_id`"),
    "a use of the service alone": ([*HI, says(USE, {"type": "text", "text": "a"}), *HI], "without a corresponding"),
}


@pytest.mark.parametrize("blocks", [(USE,), (USE, FOUND)], ids=["a use that waits", "a use and its result"])
async def test_a_tool_of_the_service_that_waits_runs_with_the_results_of_the_other_tools(
    strict: AsyncAnthropic, blocks: tuple[dict[str, Any], ...]
) -> None:
    thread = [*HI, says(*blocks, *asked("toolu_1")["content"]), answered("toolu_1")]
    assert (await created(strict, thread, tools=TOOLS)).content[0].text == "Hello."


async def test_a_tool_of_the_service_that_waits_comes_back_in_its_place_and_not_behind_words(connect: Connect) -> None:
    def script(conversation: Conversation) -> list[Step]:
        return [Item(FOUND), Say("Done.")] if conversation.tool_outputs else [Item(USE), WEATHER]

    client = await connect(MessagesServer(script))
    content = [block.to_dict() for block in (await streamed(client, tools=TOOLS)).content]
    back = answered("toolu_1")
    words = {**back, "content": [*back["content"], {"type": "text", "text": "and now?"}]}
    assert "the calls of the answer were" in await refusal(client, [*HI, says(content[1]), back], tools=TOOLS)
    assert "the calls of the answer were" in await refusal(client, [*HI, says(*content[::-1]), back], tools=TOOLS)
    assert "without a corresponding" in await refusal(client, [*HI, says(*content), words], tools=TOOLS)
    first = [*HI, says(*content), back]
    rest = [block.to_dict() for block in (await streamed(client, first, tools=TOOLS)).content]
    assert [block["type"] for block in rest] == ["web_search_tool_result", "text"]
    assert (await created(client, [*first, says(*rest), *HI], tools=TOOLS)).content[0].type == "server_tool_use"


@pytest.fixture
async def strict(connect: Connect) -> AsyncAnthropic:
    server = MessagesServer()
    server.given.blocks += [("m", SIGNED), ("m", USE), ("m", FOUND)]
    return await connect(server)


@pytest.mark.parametrize(("messages", "why"), REFUSED.values(), ids=REFUSED)
async def test_a_conversation_that_the_service_does_not_take_is_refused(
    strict: AsyncAnthropic, messages: Any, why: str
) -> None:
    assert why in await refusal(strict, messages, tools=TOOLS)


BUDGET: Any = {"type": "enabled", "budget_tokens": 1024}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"container": "container_1"}, "not found or expired"),
        ({"tool_choice": {"type": "any"}}, "while providing tools"),
        ({"thinking": {**BUDGET, "budget_tokens": 2000}}, "must be greater than"),
        ({"thinking": BUDGET, "extra_body": {"temperature": 0}}, "may only be set to 1"),
        (
            {"system": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}] * 5},
            "A maximum of 4 blocks",
        ),
    ],
)
async def test_a_field_that_the_service_does_not_take_is_refused(
    strict: AsyncAnthropic, options: dict[str, Any], why: str
) -> None:
    assert why in await refusal(strict, HI, **options)


async def test_calls_need_tools_and_thinking_within_a_budget_needs_thinking_before_them(
    strict: AsyncAnthropic,
) -> None:
    called = [*HI, asked("toolu_1"), answered("toolu_1")]
    assert "must define tools" in await refusal(strict, called)
    assert "Expected `thinking`" in await refusal(strict, called, tools=TOOLS, thinking=BUDGET)
    thought = [*HI, says(SIGNED, *asked("toolu_1")["content"]), answered("toolu_1")]
    assert (await created(strict, thought, tools=TOOLS, thinking=BUDGET)).content[0].text == "Hello."


@pytest.mark.parametrize("missing", ["model", "max_tokens", "messages"])
async def test_a_body_without_a_field_is_refused(strict: AsyncAnthropic, missing: str) -> None:
    body: dict[str, Any] = {"model": "m", "max_tokens": 10, "messages": HI}
    del body[missing]
    with pytest.raises(anthropic.BadRequestError, match=f"{missing}: Field required"):
        await strict.post("/v1/messages", body=body, cast_to=object)


async def test_a_key_and_a_version_are_needed(connect: Connect) -> None:
    client = await connect(MessagesServer(api_key="sk-ant-another"))
    with pytest.raises(anthropic.AuthenticationError, match="invalid x-api-key"):
        await created(client)
    client = await connect(MessagesServer())
    with pytest.raises(anthropic.BadRequestError, match="anthropic-version: header is required"):
        await created(client, extra_headers={"anthropic-version": anthropic.Omit()})


async def test_the_time_at_which_a_container_ends_comes_with_it(connect: Connect) -> None:
    server = MessagesServer(lambda _: [Item({"type": "text", "text": "a"}), Stop("end_turn", container="container_1")])
    client = await connect(server)
    events = [event async for event in await created(client, stream=True)]
    [delta] = [event.delta for event in events if event.type == "message_delta"]
    assert delta.container.id == "container_1"
    assert delta.container.expires_at.isoformat() == EXPIRES.replace("Z", "+00:00")
