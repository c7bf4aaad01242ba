"""Questions for approval of a Responses service: asked, answered in its own form on the chain, and in a whole view."""

from collections.abc import Iterable
from typing import Any

import pytest

from adapters.openai.responses.adapter import factory
from gateway.a2a.model import Json, Part
from gateway.ports.adapter import (
    Adapter,
    AdapterError,
    AdapterEvent,
    ApprovalAsked,
    CallCompleted,
    ErrorClass,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import AssistantItem, CallItem, Item, OutputItem, UserItem
from gateway.testing.adapter_scripts import collect, completed, message, of_type, request, text
from tests.adapters.emulator_support import KEY, Build, Start
from tests.adapters.openai.openai_support import judge
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Ask, Call, Conversation, Say, ServerTool, Step, in_rounds

SERVICE_TOOL = {"type": "mcp", "server_label": "emulator", "server_url": "https://x.example/mcp"}
ASKED = ApprovalAsked("mcpr_1", "pay", '{"to": "a"}', "emulator", "mcpr_1")
PROMPT = CallItem("mcpr_1", "pay", '{"to": "a"}', asking="emulator")
PAY: UserItem = UserItem(message("Pay a"))


def outcome(conversation: Conversation) -> Iterable[Step]:
    for question, approved in conversation.decisions.items():
        if approved:
            yield ServerTool("mcp", "pay", {"to": "a"}, "paid", question=question)
    yield Say(f"{conversation.decisions} {conversation.tool_outputs}")


@pytest.fixture
def server() -> ResponsesServer:
    script = in_rounds([Ask("pay", {"to": "a"}, "mcpr_1"), Call("look", "{}", "call_1")], outcome)
    return ResponsesServer(script, api_key=KEY, validator=judge())


@pytest.fixture(params=["backend", "gateway"])
async def adapter(server: ResponsesServer, start: Start, build: Build, request: pytest.FixtureRequest) -> Adapter:
    return build(factory, await start(server), history={"owner": request.param}, tools=[SERVICE_TOOL])


def go_on(adapter: Adapter, done: CallCompleted, *answers: Item, words: str = "") -> Any:
    """The request after the question, in a chain or with the whole conversation."""
    whole = (PAY, PROMPT, CallItem("call_1", "look", "{}")) if done.handle is None else ()
    user = (UserItem(message(words)),) if words else ()
    return request("Pay a", handle=done.handle, items=(*whole, *answers, *user))


def yes(reason: Json = "") -> OutputItem:
    return OutputItem("mcpr_1", reason, approved=True)


NO = OutputItem("mcpr_1", "too much", approved=False)
SEEN = OutputItem("call_1", "seen")


def sent_of(server: ResponsesServer, kind: str) -> list[Json]:
    """The decisions in the last request."""
    return [item for item in server.requests[-1]["input"] if item.get("type") == kind]


async def ask(adapter: Adapter) -> CallCompleted:
    events = await collect(adapter, request("Pay a"))
    assert of_type(events, ApprovalAsked) == [ASKED]
    assert [call.call_id for call in of_type(events, ToolCallReady)] == ["call_1"]
    return completed(events)


async def test_a_yes_lets_the_tool_run_and_its_call_names_the_question(
    adapter: Adapter, server: ResponsesServer
) -> None:
    done = await ask(adapter)
    events: list[AdapterEvent] = await collect(adapter, go_on(adapter, done, yes(), SEEN))
    assert sent_of(server, "mcp_approval_response") == [
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    ]
    [call] = of_type(events, ToolCallReady)
    assert (call.handled, call.server, call.question) == (True, "mcp:emulator", "mcpr_1")
    assert call.call_id != "mcpr_1"
    assert of_type(events, ToolResultReady) == [ToolResultReady(call.call_id, "paid")]
    assert text(events) == "{'mcpr_1': True} {'call_1': 'seen'}"
    assert server.requests[-1]["tools"] == [SERVICE_TOOL]


async def test_a_no_goes_with_its_reason_and_nothing_runs(adapter: Adapter, server: ResponsesServer) -> None:
    done = await ask(adapter)
    events = await collect(adapter, go_on(adapter, done, NO, SEEN))
    assert sent_of(server, "mcp_approval_response") == [
        {
            "type": "mcp_approval_response",
            "approval_request_id": "mcpr_1",
            "approve": False,
            "reason": "too much",
        }
    ]
    assert of_type(events, ToolCallReady) == []
    assert text(events) == "{'mcpr_1': False} {'call_1': 'seen'}"


async def test_a_question_that_is_not_wanted_any_more_is_answered_with_the_next_message(
    adapter: Adapter, server: ResponsesServer
) -> None:
    done = await ask(adapter)
    await collect(adapter, go_on(adapter, done, NO, SEEN, words="Never mind"))
    kinds = [item["type"] for item in server.requests[-1]["input"]]
    assert kinds[-3:] == ["mcp_approval_response", "function_call_output", "message"]


async def test_on_a_chain_a_question_without_an_answer_is_refused_before_anything_is_done(
    server: ResponsesServer, start: Start, build: Build
) -> None:
    adapter = build(factory, await start(server))
    done = await ask(adapter)
    with pytest.raises(AdapterError, match="do not have an approval: mcpr_1") as caught:
        await collect(adapter, request("Never mind", handle=done.handle, earlier=(SEEN,)))
    assert caught.value.kind is ErrorClass.REJECTED


@pytest.mark.parametrize("later", [AssistantItem((Part(text="Paid."),)), CallItem("c", "pay", "{}")])
async def test_a_yes_that_had_its_effect_is_not_sent_again_as_it_might_count_for_another_call(
    server: ResponsesServer, start: Start, build: Build, later: Item
) -> None:
    adapter = build(factory, await start(server), history={"owner": "gateway"})
    closed = (OutputItem("c", "paid"),) if isinstance(later, CallItem) else ()
    await collect(adapter, request("And now?", earlier=(PAY, PROMPT, yes("fine"), later, *closed)))
    assert {item["type"] for item in server.requests[-1]["input"]} <= {
        "message",
        "function_call",
        "function_call_output",
    }


async def test_a_question_in_a_whole_conversation_is_sent_with_its_id(
    server: ResponsesServer, start: Start, build: Build
) -> None:
    adapter = build(factory, await start(server), history={"owner": "gateway"})
    await collect(adapter, request("Pay a", items=(PAY, PROMPT, NO)))
    assert sent_of(server, "mcp_approval_request") == [
        {
            "type": "mcp_approval_request",
            "id": "mcpr_1",
            "server_label": "emulator",
            "name": "pay",
            "arguments": '{"to": "a"}',
        }
    ]


@pytest.mark.parametrize("wanted", ["always", {"always": {"tool_names": ["pay"]}}, None])
def test_the_settings_may_make_a_service_ask(wanted: Json) -> None:
    tool = {**SERVICE_TOOL, **({} if wanted is None else {"require_approval": wanted})}
    assert factory.settings.model_validate({"model": "m", "tools": [tool]}).tools == (tool,)
