"""Values that a Python function may not give, and direct replies. A broken contract fails the turn."""

from collections.abc import Iterator
from typing import Any

import pytest

from gateway.a2a.model import Part
from gateway.agent import Artifact, DirectMessage, InputRequired, Status, ToolCall, ToolResult, Turn
from gateway.ports.adapter import CallStarted, DirectReply, TextDelta
from gateway.testing.adapter_scripts import collect, request
from tests.adapters.python.python_agents import agent_of, broken, events_of


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ([{"text": "a", "data": 1}], "exactly one of text, raw, url and data"),
        ([{"data": float("inf")}], "the part.data is inf"),
        ([{"data": {1, 2}}], "the part.data is of type set"),
        ([{"raw": "%%%"}], "is not base64"),
        (["a\ud800"], "half of a surrogate pair"),
        (["x" * (8 * 1024 * 1024 + 1)], "more than 8388608"),
        ([b"bytes"], "a value of type bytes; it may give text"),
        ([None], "a value of type NoneType"),
        ([["a", "b"]], "a value of type list"),
        ([InputRequired("Which?")], "InputRequired is to be raised, not yielded or returned"),
        ([ToolCall("c", "t")], "there is no ToolResult for 'c'"),
        ([ToolCall("c", "t"), ToolResult("c", 1), ToolCall("c", "t")], "two ToolCalls with the call_id 'c'"),
        ([ToolCall("c", "t"), ToolResult("c", 1), ToolResult("c", 1)], "two ToolResults with the call_id 'c'"),
        ([ToolResult("c", 1)], "a ToolResult but no ToolCall before it"),
        ([ToolCall("", "t")], "the call_id of a ToolCall must have 1 to 256 characters, not 0"),
        ([ToolCall("c", "t" * 257)], "the name of a ToolCall must have 1 to 256 characters, not 257"),
        ([ToolCall("c", "t", {"x": float("nan")})], "the arguments of 'c'['x'] is nan"),
        ([ToolCall("c", "t"), ToolResult("c", object())], "the output of 'c' is of type object"),
        ([Artifact([])], "the artifact has no part"),
        ([Artifact(["x"], artifact_id="")], "artifact_id must have 1 to 256 characters, not 0"),
        ([Artifact(["x"], name="\ud800")], "the artifact's name holds half of a surrogate pair"),
        ([Status("\ud800")], "the status holds half of a surrogate pair"),
        ([DirectMessage("Hi")], "a DirectMessage needs `direct_replies: true`"),
    ],
)
async def test_a_forbidden_value_fails_the_turn_and_is_named_in_the_log(values: list[Any], wrong: str) -> None:
    assert wrong in await broken(agent_of(lambda turn: (value for value in values)))


async def test_a_result_of_a_foreign_type_is_named() -> None:
    assert "a value of type map; it may give text" in await broken(agent_of(lambda turn: map(str, [1])))


async def test_the_error_of_a_generator_that_returns_its_answer_names_the_remedy() -> None:
    def mixed(turn: Turn) -> Any:
        if turn.text == "never":
            yield ""
        return "the answer"

    assert "there an answer is yielded" in await broken(agent_of(mixed))


async def test_a_bad_ending_fails_the_turn() -> None:
    def ask(turn: Turn) -> None:
        raise InputRequired({"data": float("nan")})

    assert "the content.data is nan" in await broken(agent_of(ask))


async def test_a_tool_call_that_is_open_when_the_agent_asks_fails_the_turn() -> None:
    def ask(turn: Turn) -> Iterator[Any]:
        yield ToolCall("c", "t")
        raise InputRequired("Which?")

    assert "there is no ToolResult for 'c'" in await broken(agent_of(ask))


# --- direct replies ------------------------------------------------------------


async def test_a_direct_message_is_the_only_answer_of_an_agent_that_may_give_one() -> None:
    def greet(turn: Turn) -> Iterator[Any]:
        turn.state["greeted"] = True
        yield DirectMessage(["Hi", {"data": 1}])

    events = await collect(agent_of(greet, direct_replies=True), request("Hi"))
    assert events == [CallStarted(), DirectReply((Part(text="Hi"), Part(data=1)), {"greeted": True})]


async def test_a_direct_message_may_be_returned() -> None:
    events = await collect(agent_of(lambda turn: DirectMessage("Hi"), direct_replies=True), request("Hi"))
    assert events == [CallStarted(), DirectReply((Part(text="Hi"),))]


async def test_an_agent_that_may_reply_directly_need_not() -> None:
    assert await events_of(agent_of(lambda turn: "Hi", direct_replies=True)) == [TextDelta("Hi")]


def speaks_before(turn: Turn) -> Iterator[Any]:
    yield Status("thinking")
    yield DirectMessage("Hi")


def speaks_after(turn: Turn) -> Iterator[Any]:
    yield DirectMessage("Hi")
    yield "more"


def asks_after(turn: Turn) -> Iterator[Any]:
    yield DirectMessage("Hi")
    raise InputRequired("Which?")


@pytest.mark.parametrize(
    ("function", "wrong"),
    [
        (speaks_before, "a DirectMessage must be the first thing"),
        (speaks_after, "nothing may follow a DirectMessage"),
        (asks_after, "InputRequired may not follow a DirectMessage"),
    ],
)
async def test_a_direct_message_stands_alone(function: object, wrong: str) -> None:
    assert wrong in await broken(agent_of(function, direct_replies=True))
