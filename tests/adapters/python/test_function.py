"""The `python` adapter passes the conformance suite; the turn and the values of a function follow its contract."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from adapters.python.function import PythonFunction, factory
from gateway.a2a.model import Artifact as ModelArtifact
from gateway.a2a.model import Part
from gateway.agent import Artifact, AuthRequired, InputRequired, Reject, Status, ToolCall, ToolResult, Turn
from gateway.foundation.clock import Clock
from gateway.ports.adapter import (
    AdapterError,
    ArtifactReady,
    CallCompleted,
    CallStarted,
    Ending,
    ErrorClass,
    PartReady,
    Progress,
    TextDelta,
    ToolCallAnnounced,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import AssistantItem, CallItem, OutputItem, ReasoningItem, UserItem
from gateway.testing.adapter_scripts import collect, completed, message, request
from gateway.testing.adapter_suite import AdapterSuite
from tests.adapters.python.python_agents import agent_of, broken, events_of


def plain(text: str) -> str:
    return f"heard {text}"


class TestConformance(AdapterSuite):
    """The function is the backend: it follows its settings, and records its turns."""

    factory = factory
    script: Callable[[Turn], AsyncGenerator[Any, None]]

    @pytest.fixture
    def adapter(self) -> PythonFunction:
        self.received: list[list[tuple[str, str]]] = []
        self.released = threading.Event()
        return agent_of(self._agent)

    async def _agent(self, turn: Turn) -> AsyncGenerator[Any, None]:
        roles = {"ROLE_USER": "user", "ROLE_AGENT": "agent"}
        earlier = [(roles[entry["role"]], entry["parts"][0]["text"]) for entry in turn.history]
        self.received.append([*earlier, ("user", turn.text)])
        async with aclosing(self.script(turn)) as values:
            async for value in values:
                yield value

    async def backend_answers(self, *pieces: str) -> None:
        async def script(_: Turn) -> AsyncGenerator[str, None]:
            for piece in pieces:
                yield piece

        self.script = script

    async def backend_echoes(self) -> None:
        async def script(turn: Turn) -> AsyncGenerator[str, None]:
            await asyncio.sleep(0)
            yield turn.text

        self.script = script

    async def backend_fails(self) -> None:
        async def script(_: Turn) -> AsyncGenerator[str, None]:
            yield "so far"
            raise RuntimeError("out of ink")

        self.script = script

    async def backend_stalls(self, *pieces: str) -> None:
        async def script(_: Turn) -> AsyncGenerator[str, None]:
            try:
                for piece in pieces:
                    yield piece
                await asyncio.Event().wait()
            finally:
                self.released.set()

        self.script = script

    async def backend_is_released(self) -> None:
        await asyncio.to_thread(self.released.wait)

    async def backend_runs_tool(self, name: str, arguments: dict[str, Any], output: str) -> None:
        async def script(_: Turn) -> AsyncGenerator[Any, None]:
            yield ToolCall("call_1", name, arguments)
            yield ToolResult("call_1", output)
            yield "done"

        self.script = script

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        return self.received


# --- the turn of the function ------------------------------------------------------------


async def test_a_turn_holds_the_principal_the_message_and_the_history() -> None:
    seen: list[Turn] = []
    earlier = (
        UserItem(message("First")),
        ReasoningItem("hm"),
        CallItem("c", "lookup", "{}"),
        OutputItem("c", 1),
        AssistantItem((Part(text="Well"), Part(data={"a": None}))),
    )
    await collect(
        agent_of(seen.append),
        request("Second", earlier=earlier, first_message=message("Began"), state={"n": 1}),
    )
    turn = seen[0]
    assert (turn.text, turn.context_id, turn.task_id, turn.principal) == ("Second", "context-1", "task-1", "somebody")
    assert turn.message == {"messageId": "message-Second", "role": "ROLE_USER", "parts": [{"text": "Second"}]}
    assert turn.first_message["parts"] == [{"text": "Began"}]
    assert turn.history == [
        {"role": "ROLE_USER", "parts": [{"text": "First"}]},
        {"role": "ROLE_AGENT", "parts": [{"text": "Well"}, {"data": {"a": None}}]},
    ]
    assert turn.state == {"n": 1}


async def test_the_state_of_a_turn_is_that_which_the_last_one_left() -> None:
    def count(turn: Turn) -> str:
        turn.state["seen"] = turn.state.get("seen", 0) + 1
        return str(turn.state["seen"])

    adapter = agent_of(count)
    first = completed(await collect(adapter, request("Hi")))
    assert first.state == {"seen": 1}
    assert completed(await collect(adapter, request("Hi", state=first.state))).state == {"seen": 2}
    assert first.state == {"seen": 1}


async def test_a_function_that_never_had_state_leaves_none() -> None:
    assert completed(await collect(agent_of(plain), request("Hi"))).state is None


async def test_a_function_may_replace_or_empty_its_state() -> None:
    def replace(turn: Turn) -> None:
        turn.state = {}

    assert completed(await collect(agent_of(replace), request("Hi", state={"n": 1}))).state == {}


async def test_what_a_function_does_to_its_state_later_changes_nothing() -> None:
    turns: list[Turn] = []

    def remember(turn: Turn) -> None:
        turn.state["list"] = [1]
        turns.append(turn)

    state = completed(await collect(agent_of(remember), request("Hi"))).state
    turns[0].state["list"].append(2)
    assert state == {"list": [1]}


async def test_a_state_that_another_adapter_wrote_is_refused() -> None:
    with pytest.raises(AdapterError, match="another adapter wrote it") as caught:
        await collect(agent_of(plain), request("Hi", state=["cursor"]))
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN


@pytest.mark.parametrize(
    ("state", "wrong"),
    [
        ([], "turn.state must be a dict, not list"),
        ({"when": object()}, "turn.state['when'] is of type object"),
        ({"ratio": float("nan")}, "turn.state['ratio'] is nan"),
        ({1: "one"}, "turn.state has the key 1"),
    ],
)
async def test_a_state_that_is_no_json_fails_the_turn(state: Any, wrong: str) -> None:
    def agent(turn: Turn) -> None:
        turn.state = state

    assert wrong in await broken(agent_of(agent))


# --- its values ------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "events"),
    [
        ("Hi", [TextDelta("Hi")]),
        ("", []),
        (None, []),
        ([], []),
        ({"data": {"a": 1}}, [PartReady(Part(data={"a": 1}))]),
        (["see", {"url": "https://example.com"}], [TextDelta("see"), PartReady(Part(url="https://example.com"))]),
        (("a", "b"), [TextDelta("a"), TextDelta("b")]),
    ],
)
async def test_what_a_function_returns_is_the_whole_answer(value: Any, events: list[Any]) -> None:
    assert await events_of(agent_of(lambda turn: value)) == events


async def test_everything_that_may_be_yielded_becomes_its_event() -> None:
    def agent(turn: Turn) -> Iterator[Any]:
        yield Status("looking it up")
        yield ToolCall("call_1", "lookup", {"q": "é"})
        yield ToolResult("call_1", {"found": 3})
        yield ToolCall("call_2", "lookup")
        yield ToolResult("call_2", "no such thing", error=True)
        yield "text"
        yield {"data": {"a": 1}}
        yield Artifact(["one"], artifact_id="report", name="Report", description="All of it", metadata={"k": 1})
        yield Artifact([{"text": "two"}], artifact_id="report", append=True, last_chunk=True)
        yield Artifact(parts=["three"])

    clock = Clock(new_id=lambda: "new-id")
    assert await events_of(agent_of(agent, clock)) == [
        Progress("looking it up"),
        ToolCallAnnounced("call_1", "lookup", handled=True),
        ToolCallReady("call_1", "lookup", '{"q":"é"}', handled=True),
        ToolResultReady("call_1", {"found": 3}),
        ToolCallAnnounced("call_2", "lookup", handled=True),
        ToolCallReady("call_2", "lookup", "{}", handled=True),
        ToolResultReady("call_2", "no such thing", error=True),
        TextDelta("text"),
        PartReady(Part(data={"a": 1})),
        ArtifactReady(
            ModelArtifact(
                artifact_id="report",
                name="Report",
                description="All of it",
                parts=(Part(text="one"),),
                metadata={"k": 1},
            )
        ),
        ArtifactReady(ModelArtifact(artifact_id="report", parts=(Part(text="two"),)), append=True, last_chunk=True),
        ArtifactReady(ModelArtifact(artifact_id="new-id", parts=(Part(text="three"),))),
    ]


class InputOfMine(InputRequired):
    pass


@pytest.mark.parametrize(
    ("raised", "ending"),
    [
        (InputRequired("Which city?"), Ending.INPUT_REQUIRED),
        (InputOfMine("Which city?"), Ending.INPUT_REQUIRED),
        (AuthRequired("Which city?"), Ending.AUTH_REQUIRED),
        (Reject("Which city?"), Ending.REJECTED),
    ],
)
@pytest.mark.parametrize("kind", ["plain", "coroutine", "generator", "async generator"])
async def test_an_ending_other_than_an_answer_is_raised(raised: Exception, ending: Ending, kind: str) -> None:
    def plain(turn: Turn) -> None:
        turn.state["asked"] = True
        raise raised

    async def coroutine(turn: Turn) -> None:
        plain(turn)

    def generator(turn: Turn) -> Iterator[str]:
        yield "Hm."
        plain(turn)

    async def async_generator(turn: Turn) -> AsyncIterator[str]:
        yield "Hm."
        plain(turn)

    functions = {"plain": plain, "coroutine": coroutine, "generator": generator, "async generator": async_generator}
    events = await collect(agent_of(functions[kind]), request("Hi"))
    wanted = CallCompleted(ending=ending, message=(Part(text="Which city?"),), state={"asked": True})
    assert events == [CallStarted(), *([TextDelta("Hm.")] if "generator" in kind else []), wanted]


async def test_an_ending_may_have_several_parts() -> None:
    def ask(turn: Turn) -> None:
        raise InputRequired(["Choose", {"data": ["a", "b"]}])

    end = completed(await collect(agent_of(ask), request("Hi")))
    assert end.message == (Part(text="Choose"), Part(data=["a", "b"]))
