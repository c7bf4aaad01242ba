"""The names of spans, and what they carry."""

import pytest

from gateway.ports.capabilities import Backend, Model
from gateway.ports.spans import CallSpan, PushSpan, RequestSpan, Span, Tokens, ToolSpan, TrySpan, TurnSpan
from gateway.telemetry.otel.attributes import CONTENT, attributes_of, name_of
from tests.support.spans import CALLER

TURN = TurnSpan(
    place=CALLER, began=1000, ended=3000, agent="support", context="c", task="t", turn="u", state="TASK_STATE_COMPLETED",
    tokens=Tokens(5, 1, 2, 0),
)  # fmt: skip
CALL = CallSpan(
    place=CALLER, began=1000, ended=3000, agent="support", context="c", round=1, attempts=2,
    backend=Backend("https://api.example/v1"), model=Model("openai", "gpt-6"), first=1250, tokens=Tokens(5, None, 2),
)  # fmt: skip
TRY = TrySpan(place=CALLER, began=1, ended=2, failure="rate_limited", agent="support", attempt=0)
TOOL = ToolSpan(place=CALLER, began=1, ended=2, agent="support", context="c", tool="add", call="x", source="box")
PUSH = PushSpan(place=CALLER, began=1, ended=2, failure="503", task="t", config="p", number=7, status=503)
REQUEST = RequestSpan(place=CALLER, began=1, ended=2, operation="SendMessage", agent="support", task="t", message="m")


@pytest.mark.parametrize(
    ("span", "name"),
    [
        (TURN, "invoke_agent support"),
        (CALL, "chat gpt-6"),
        (CallSpan(place=CALLER, began=1, ended=2, agent="a", context="c", round=0, attempts=1), "chat"),
        (TRY, "attempt"),
        (TOOL, "execute_tool add"),
        (PUSH, "push"),
        (REQUEST, "SendMessage"),
    ],
)
def test_a_span_is_named_as_the_conventions_say(span: Span, name: str) -> None:
    assert name_of(span) == name


def test_a_turn_says_whose_it_is_and_what_it_cost() -> None:
    assert attributes_of(TURN) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "support",
        "gen_ai.conversation.id": "c",
        "a2a.task.id": "t",
        "a2a.task.state": "TASK_STATE_COMPLETED",
        "a2a_gateway.turn": "u",
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 2,
        "gen_ai.usage.cache_read.input_tokens": 1,
        "gen_ai.usage.reasoning.output_tokens": 0,
    }


def test_a_service_call_says_where_it_went_and_when_its_answer_began() -> None:
    assert attributes_of(CALL) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-6",
        "gen_ai.agent.name": "support",
        "gen_ai.conversation.id": "c",
        "gen_ai.response.time_to_first_chunk": 0.25,
        "a2a_gateway.round": 1,
        "a2a_gateway.attempts": 2,
        "server.address": "api.example",
        "server.port": 443,
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 2,
    }


def test_what_failed_says_why() -> None:
    assert attributes_of(TRY) == {
        "error.type": "rate_limited",
        "gen_ai.agent.name": "support",
        "a2a_gateway.attempt": 0,
    }
    assert attributes_of(PUSH)["error.type"] == "503"
    assert "error.type" not in attributes_of(TOOL)


@pytest.mark.parametrize(
    ("address", "port"), [("http://[::1]:8000/v1", 8000), ("http://127.0.0.1", 80), ("https://x", 443)]
)
def test_the_port_of_a_backend_is_told(address: str, port: int) -> None:
    span = CallSpan(
        place=CALLER, began=1, ended=2, agent="a", context="c", round=0, attempts=1, backend=Backend(address)
    )
    assert attributes_of(span)["server.port"] == port


def test_what_was_said_is_cut() -> None:
    said = TurnSpan(
        place=CALLER, began=1, ended=2, agent="a", context="c", task="t", turn="u", state="s", said=["ä" * CONTENT]
    )
    text = attributes_of(said)["gen_ai.input.messages"]
    assert isinstance(text, str)
    assert CONTENT - 2 < len(text.encode()) <= CONTENT
    assert "gen_ai.output.messages" not in attributes_of(said)
