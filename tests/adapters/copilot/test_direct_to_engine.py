"""The engine without a channel: conversations, streams and their ends."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeAlias

import pytest

from gateway.a2a.model import Message, Part, Role
from gateway.ports.adapter import (
    AdapterError,
    CallCompleted,
    CallStarted,
    Ending,
    ErrorClass,
    MessageReady,
    Progress,
    TextDelta,
    ToolResultReady,
)
from gateway.ports.capabilities import Fate, Ongoing
from gateway.ports.conversation import UserItem
from gateway.testing.adapter_scripts import collect, completed, of_type, request, text
from gateway.testing.serving import serve
from tests.adapters.copilot.copilot_support import build
from tests.adapters.emulator_support import KEY, plays
from tests.emulators.copilot_engine import CONVERSATIONS, GREETING, CopilotEngine
from tests.emulators.scripts import Conversation, Item, Raw, Say, ServerTool, Status, Step, Think

Adapt: TypeAlias = Callable[..., Any]


def echo(conversation: Conversation) -> Sequence[Step]:
    return [Say(f"you said {conversation.text}", 3)]


@pytest.fixture
def engine() -> CopilotEngine:
    return CopilotEngine(echo, api_key=KEY)


@pytest.fixture
async def adapt(engine: CopilotEngine) -> AsyncGenerator[Adapt]:
    async with AsyncExitStack() as stack:
        origin = await stack.enter_async_context(serve(engine.app))
        url = f"{origin}{CONVERSATIONS.format(schema='agent')}"

        def adapted(common: dict[str, Any] | None = None, **settings: Any) -> Any:
            credentials = {} if "auth" in settings else {"token": KEY}
            adapter = build(direct_to_engine={"url": url, **credentials, **settings}, **(common or {}))
            stack.push_async_callback(adapter.aclose)
            return adapter

        yield adapted


async def failure(adapter: Any, asked: Any) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, asked)
    return caught.value


def event(name: str, data: str) -> Raw:
    return Raw(f"event: {name}\ndata: {data}\n\n".encode())


async def test_the_first_call_makes_the_conversation_and_the_next_goes_on_in_it(
    engine: CopilotEngine, adapt: Adapt
) -> None:
    adapter = adapt({"locale": "de-DE"})
    events = await collect(adapter, request("Hi"))
    done = completed(events)
    assert [event.handle for event in of_type(events, CallStarted)] == [done.handle, done.handle]
    await collect(adapter, request("And now?", handle=done.handle, state=done.state))
    assert engine.turns == {done.handle: ["Hi", "And now?"]}
    start, first, second = engine.requests
    assert start == {"emitStartConversationEvent": False, "locale": "de-DE"}
    wanted = {"type": "message", "text": "Hi", "locale": "de-DE", "conversation": {"id": done.handle}}
    assert first == {"activity": wanted}
    assert second["activity"]["text"] == "And now?"


async def test_the_topic_of_the_start_begins_the_first_answer_where_that_is_wanted(adapt: Adapt) -> None:
    adapter = adapt(start_event=True)
    events = await collect(adapter, request("Hi"))
    assert [each.text for each in of_type(events, MessageReady)] == [GREETING, "you said Hi"]


async def test_pieces_are_told_as_they_come(engine: CopilotEngine, adapt: Adapt) -> None:
    engine.script = plays(Think("thinking"), Say("Hello there", 3), ServerTool("mcp", "find", {}, "found"), Say("Done"))
    events = await collect(adapt(), request("Hi"))
    assert of_type(events, Progress) == [Progress("thinking")]
    assert [each.text for each in of_type(events, TextDelta)] == ["Hell", "o th", "ere", "Done"]
    assert [each.output for each in of_type(events, ToolResultReady)] == ["found"]


async def test_pieces_that_are_the_whole_text_so_far_are_told_by_what_is_new(
    engine: CopilotEngine, adapt: Adapt
) -> None:
    pieces = [
        {
            "type": "typing",
            "text": words,
            "channelData": {"streamType": "streaming", "streamId": "s", "streamSequence": n},
        }
        for n, words in enumerate(("Hel", "Hello"), 1)
    ]
    final = {"type": "message", "text": "Hello", "channelData": {"streamType": "final", "streamId": "s"}}
    engine.script = plays(*map(Item, (*pieces, final)))
    events = await collect(adapt(), request("Hi"))
    assert of_type(events, TextDelta) == [TextDelta("Hel"), TextDelta("lo")]


async def test_a_question_is_what_the_task_waits_with(engine: CopilotEngine, adapt: Adapt) -> None:
    engine.script = plays(Item({"type": "message", "text": "Your name?", "inputHint": "expectingInput"}))
    done = completed(await collect(adapt(), request("Hi")))
    assert (done.ending, done.message) == (Ending.INPUT_REQUIRED, (Part(text="Your name?"),))


async def test_a_file_goes_within_the_message(engine: CopilotEngine, adapt: Adapt) -> None:
    parts = (Part(raw="aGVsbG8=", media_type="text/plain", filename="a.txt"), Part(url="https://files.example/b"))
    given = Message(message_id="m", role=Role.USER, parts=parts)
    await collect(adapt(), request("", items=(UserItem(given),)))
    octets = "application/octet-stream"
    assert engine.requests[-1]["activity"]["attachments"] == [
        {"contentType": octets, "contentUrl": "https://files.example/b"},
        {"contentType": "text/plain", "name": "a.txt", "contentUrl": "data:text/plain;base64,aGVsbG8="},
    ]


async def test_events_of_other_names_are_read_over(engine: CopilotEngine, adapt: Adapt) -> None:
    engine.script = plays(event("ping", "{}"), Say("Hello"), event("message", "no json"))
    assert text(await collect(adapt(), request("Hi"))) == "Hello"


@pytest.mark.parametrize("data", ["{no", '{"type":"message","text":[]}'])
async def test_an_activity_that_cannot_be_read_breaks_the_contract(
    engine: CopilotEngine, adapt: Adapt, data: str
) -> None:
    engine.script = plays(event("activity", data))
    assert (await failure(adapt(), request("Hi"))).kind is ErrorClass.CONTRACT_BROKEN


async def test_a_conversation_that_the_agent_ends_is_expired(engine: CopilotEngine, adapt: Adapt) -> None:
    engine.script = plays(Say("Bye."), Item({"type": "endOfConversation", "code": "completedSuccessfully"}))
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    before = len(engine.requests)
    again = request("And now?", handle=done.handle, state=done.state)
    assert (await failure(adapter, again)).kind is ErrorClass.HANDLE_EXPIRED
    assert len(engine.requests) == before


async def test_a_conversation_that_ends_in_a_failure_without_a_word_has_failed(
    engine: CopilotEngine, adapt: Adapt
) -> None:
    ended = '{"type":"endOfConversation","code":"agentTimedOut"}'
    engine.script = plays(event("activity", ended), event("end", "end"))
    assert (await failure(adapt(), request("Hi"))).kind is ErrorClass.BACKEND_FAILED


async def test_a_conversation_that_the_engine_does_not_know_is_not_found(adapt: Adapt) -> None:
    error = await failure(adapt(), request("Hi", handle="unknown"))
    assert error.kind is ErrorClass.HANDLE_NOT_FOUND


async def test_a_limit_of_requests_names_its_time(engine: CopilotEngine, adapt: Adapt) -> None:
    engine.script = plays(Status(429, {"error": {"code": "TooManyRequests", "message": "No."}}, {"Retry-After": "7"}))
    error = await failure(adapt(), request("Hi"))
    assert (error.kind, error.retry_after) == (ErrorClass.RATE_LIMITED, 7.0)


async def test_a_file_that_is_no_base64_is_refused_before_anything_is_sent(engine: CopilotEngine, adapt: Adapt) -> None:
    given = Message(message_id="m", role=Role.USER, parts=(Part(raw="no!"),))
    assert (await failure(adapt(), request("", items=(UserItem(given),)))).kind is ErrorClass.UNSENDABLE
    assert engine.requests == []


async def test_any_credential_opens_the_engine(adapt: Adapt) -> None:
    adapter = adapt(auth={"type": "api_key", "key": KEY})
    assert text(await collect(adapter, request("Hi"))) == "you said Hi"


async def test_a_turn_that_was_begun_is_in_the_conversation(adapt: Adapt) -> None:
    adapter = adapt()
    started = of_type(await collect(adapter, request("Hi")), CallStarted)[-1]
    found = await adapter.fetch(Ongoing(started.handle, started.run))
    assert (found.fate, found.events) == (Fate.COMPLETED, (CallCompleted(started.handle),))


@pytest.mark.parametrize("handle", ["", "a/b", "a?b", "a\nb", ".", ".."])
def test_what_cannot_be_a_conversation_is_not_adopted(adapt: Adapt, handle: str) -> None:
    with pytest.raises(ValueError, match="id of a conversation"):
        adapt().check_handle(handle)


def test_any_other_text_may_be_a_conversation(adapt: Adapt) -> None:
    adapt().check_handle("5e3b2a1c-0000-4000-8000-000000000000")
