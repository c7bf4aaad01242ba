"""The gateway in front of a foreign Chat Completions server: aimock."""

from typing import Any

from gateway.ports.adapter import ErrorClass
from tests.a2a_client import A2A, a2a_http, failed, streamed_text, text_of, why
from tests.interop.peer_processes import Aimock
from tests.running import StartLocal

_HELLO = "Hello from aimock, a longer reply so that several chunks are streamed."


def _agent(aimock: Aimock, more: str = "unknown_tool: error_result") -> str:
    return f"chat: {{type: openai-chat, model: gpt-4, base_url: '{aimock.url}', instructions: Be brief., {more}}}"


def _messages(aimock: Aimock, count: int) -> list[list[dict[str, Any]]]:
    """The messages of the latest requests, oldest first."""
    return [entry["body"]["messages"] for entry in aimock.journal()[-count:]]


_BRIEF = {"role": "system", "content": "Be brief."}


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def _assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


async def test_each_request_brings_the_whole_conversation(aimock_peer: Aimock, start_local: StartLocal) -> None:
    gateway = await start_local(_agent(aimock_peer))
    async with a2a_http(gateway.url) as http:
        chat = A2A(http, "chat")
        first = await chat.send("one")
        async with chat.stream("two", first["contextId"]) as stream:
            frames = await stream.rest()
        third = await chat.send("three", first["contextId"])

    assert (text_of(first), streamed_text(frames), text_of(third)) == (_HELLO, _HELLO, _HELLO)
    assert _messages(aimock_peer, 3) == [
        [_BRIEF, _user("one")],
        [_BRIEF, _user("one"), _assistant(_HELLO), _user("two")],
        [_BRIEF, _user("one"), _assistant(_HELLO), _user("two"), _assistant(_HELLO), _user("three")],
    ]


async def test_reasoning_is_shown_apart_from_the_answer_and_not_sent_back(
    aimock_peer: Aimock, start_local: StartLocal
) -> None:
    gateway = await start_local(_agent(aimock_peer))
    async with a2a_http(gateway.url) as http:
        chat = A2A(http, "chat")
        async with chat.stream("think") as stream:
            frames = await stream.rest()
        context = frames[0].event["task"]["contextId"]
        await chat.send("two", context)

    thoughts = [
        part["text"]
        for frame in frames
        for part in frame.event.get("statusUpdate", {}).get("status", {}).get("message", {}).get("parts", ())
        if "metadata" not in part
    ]
    assert thoughts == ["Let me think step by step about it."]
    assert streamed_text(frames) == "Thought answer."
    assert _messages(aimock_peer, 1) == [[_BRIEF, _user("think"), _assistant("Thought answer."), _user("two")]]


async def test_a_rate_limit_fails_the_task_and_the_next_message_knows_what_was_asked(
    aimock_peer: Aimock, start_local: StartLocal
) -> None:
    gateway = await start_local(_agent(aimock_peer))
    async with a2a_http(gateway.url) as http:
        chat = A2A(http, "chat")
        limited = await chat.send("limit")
        second = await chat.send("two", limited["contextId"])

    assert why(limited) == failed(ErrorClass.RATE_LIMITED, 1)
    assert text_of(second) == _HELLO
    # The backend said that it did nothing, so it is asked three times.
    assert _messages(aimock_peer, 4) == [*[[_BRIEF, _user("limit")]] * 3, [_BRIEF, _user("limit"), _user("two")]]


async def test_text_arrives_while_the_model_is_still_writing(aimock_peer: Aimock, start_local: StartLocal) -> None:
    gateway = await start_local(_agent(aimock_peer))
    async with a2a_http(gateway.url) as http:
        chat = A2A(http, "chat")
        async with chat.stream("slow") as stream:
            early = list(await stream.read(3))
            task = early[0].event["task"]
            running = await chat.get(task["id"])
            frames = await stream.rest()

    assert running["status"]["state"] == "TASK_STATE_WORKING"
    assert streamed_text(early) == streamed_text(frames)[: len(streamed_text(early))]
    assert streamed_text(frames) == " ".join(f"tick{number}" for number in range(40))


async def test_a_tool_that_is_not_attached_fails_the_task_and_its_calls_are_answered(
    aimock_peer: Aimock, start_local: StartLocal
) -> None:
    gateway = await start_local(_agent(aimock_peer, "unknown_tool: fail"))
    async with a2a_http(gateway.url) as http:
        chat = A2A(http, "chat")
        asked = await chat.send("weather")
        second = await chat.send("two", asked["contextId"])

    assert why(asked)[0] == "TASK_STATE_FAILED"
    assert text_of(second) == _HELLO
    calls = [
        {"id": f"call_w{number}", "type": "function", "function": {"name": "get_weather", "arguments": arguments}}
        for number, arguments in ((1, '{"city":"Oslo"}'), (2, '{"city":"Rome"}'))
    ]
    answers = [
        {"role": "tool", "tool_call_id": call["id"], "content": "Error: This tool is not available."} for call in calls
    ]
    assert _messages(aimock_peer, 1) == [
        [_BRIEF, _user("weather"), {"role": "assistant", "content": None, "tool_calls": calls}, *answers, _user("two")]
    ]
