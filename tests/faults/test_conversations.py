"""A conversation at the service that is locked, lost or waiting for outputs, end to end."""

from typing import Any

import pytest

from gateway.core.failures import UNKNOWN_TOOL
from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, text_of, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Fail, Say, Step
from tests.running import StartLocal


def _agent(url: str, more: str = "unknown_tool: error_result") -> str:
    return f"talking: {{type: openai-responses, model: m, base_url: '{url}/v1', conversation: true, {more}}}"


def _repeats(conversation: Conversation) -> list[Step]:
    return [Say(" ".join(conversation.user_texts))]


def _texts(server: ResponsesServer) -> list[list[str]]:
    """What each request for a response brought."""
    bodies: list[dict[str, Any]] = [body for body in server.requests if "input" in body]
    return [[item["content"][0]["text"] for item in body["input"] if "content" in item] for body in bodies]


@pytest.mark.fault("B14")
async def test_38_what_the_conversation_waits_for_is_brought_with_the_next_message(start_local: StartLocal) -> None:
    def calls(conversation: Conversation) -> list[Step]:
        if conversation.text == "call":
            return [Call("get_weather", {}, "call_1"), Call("get_weather", {}, "call_2")]
        return _repeats(conversation)

    server = ResponsesServer(calls)
    async with serve(server.app) as url:
        gateway = await start_local(_agent(url, "unknown_tool: fail"))
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "talking")
            first = await caller.send("one")
            called = await caller.send("call", first["contextId"])
            third = await caller.send("three", first["contextId"])

    assert why(called) == failed(UNKNOWN_TOOL)
    # The emulator, as the real service, refuses a request that leaves a call without an output.
    assert text_of(third) == "one call three"
    assert [item.get("call_id") for item in server.requests[-1]["input"]] == ["call_1", "call_2", None]
    assert len(server.conversations) == 1


@pytest.mark.fault("B12")
async def test_a_conversation_that_somebody_else_holds_fails_the_turn_and_goes_on_later(
    start_local: StartLocal,
) -> None:
    server = ResponsesServer(_repeats)
    async with serve(server.app) as url:
        gateway = await start_local(_agent(url))
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "talking")
            first = await caller.send("one")
            [conversation] = server.conversations.values()
            conversation.running = "resp_of_somebody_else"
            locked = await caller.send("two", first["contextId"])
            conversation.running = None
            third = await caller.send("three", first["contextId"])

    assert (why(locked), why(third)) == (failed(ErrorClass.LOCKED), COMPLETED)
    assert text_of(third) == "one two three"
    assert _texts(server)[-1] == ["two", "three"]


@pytest.mark.fault("B11", "B12")
async def test_a_conversation_that_was_deleted_is_told_as_lost_and_never_begun_again(start_local: StartLocal) -> None:
    server = ResponsesServer(_repeats)
    async with serve(server.app) as url:
        gateway = await start_local(_agent(url))
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "talking")
            first = await caller.send("one")
            server.conversations.clear()
            second = await caller.send("two", first["contextId"])

    assert why(second) == failed(ErrorClass.HANDLE_NOT_FOUND)
    assert server.conversations == {}
    assert b"conv_" not in caller.seen


async def test_a_first_turn_that_fails_leaves_its_message_to_the_next_in_the_same_conversation(
    start_local: StartLocal,
) -> None:
    def fails_once(conversation: Conversation) -> list[Step]:
        return [Say("Hel"), Fail()] if list(conversation.user_texts) == ["one"] else _repeats(conversation)

    server = ResponsesServer(fails_once)
    async with serve(server.app) as url:
        gateway = await start_local(_agent(url))
        async with a2a_http(gateway.url) as http:
            caller = A2A(http, "talking")
            first = await caller.send("one")
            second = await caller.send("two", first["contextId"])

    assert (why(first), why(second)) == (failed(ErrorClass.BACKEND_FAILED), COMPLETED)
    assert text_of(second) == "one two"
    landed = [len(conversation.items) for conversation in server.conversations.values()]
    assert landed == [3]
