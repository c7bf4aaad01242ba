"""What an agent has asked, or given as its reason, is its own words in the conversation. Source: docs/state-model.md,
scenario 94b."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from adapters.python.function import PythonFunction
from gateway.a2a.model import INTERRUPTED, Part
from gateway.agent import AuthRequired, InputRequired, Reject, Turn
from gateway.core.agents import Agent, AgentPolicies
from gateway.ports.adapter import AdapterError, CallCompleted, Ending, ErrorClass, TextDelta
from gateway.ports.conversation import Ownership
from tests.adapters.python.python_agents import agent_of
from tests.invariants import violations
from tests.support.core import CARD, Core, answer, running_core
from tests.support.scripted import BR, BS, G, Script, ScriptedAdapter, says

ENDINGS = pytest.mark.parametrize("ending", [Ending.INPUT_REQUIRED, Ending.AUTH_REQUIRED, Ending.REJECTED])
LOST = AdapterError(ErrorClass.HANDLE_EXPIRED, "gone")


def ends(ending: Ending, text: str = "which?") -> CallCompleted:
    return CallCompleted("r1", ending, (Part(text=text),))


async def goes_on(core: Core, text: str) -> None:
    """The next message of the conversation, to the task that waits for it, if one does."""
    [task] = (await core.list(context_id="c")).tasks
    await core.send(text, context="c", task=task.id if task.status.state in INTERRUPTED else None)


@ENDINGS
async def test_94b_what_an_agent_has_asked_is_its_words_in_the_next_request_and_in_later_ones(
    core: Core, ending: Ending
) -> None:
    adapter = ScriptedAdapter(G, [ends(ending)], says("A2"), says("A3"))
    core.agent(adapter)
    await core.send("1", context="c")
    await goes_on(core, "2")
    await core.send("3", context="c")
    assert adapter.sent[1:] == [
        (None, ["U 1", "A which?", "U 2"]),
        (None, ["U 1", "A which?", "U 2", "A A2", "U 3"]),
    ]


@ENDINGS
async def test_94b_it_is_there_after_a_restart(tmp_path: Path, ending: Ending) -> None:
    path = tmp_path / "ledger.db"
    async with running_core(path, prefix="one") as core:
        core.agent(ScriptedAdapter(G, [TextDelta("A1"), ends(ending)]))
        await core.send("1", context="c")
    async with running_core(path, prefix="two") as core:
        adapter = ScriptedAdapter(G, says("A2"))
        core.agent(adapter)
        await goes_on(core, "2")
        assert adapter.sent == [(None, ["U 1", "A A1", "A which?", "U 2"])]
    assert violations(path) == []


@pytest.mark.parametrize(
    ("window", "sent"),
    [({"history_messages": 3}, ["U 2", "A which 2?", "U 3"]), ({"history_messages": 2}, ["U 3"]), ({}, None)],
)
async def test_94b_a_window_counts_it_as_a_message_of_the_agent(
    core: Core, window: dict[str, Any], sent: list[str] | None
) -> None:
    adapter = ScriptedAdapter(G, *([ends(Ending.INPUT_REQUIRED, f"which {n}?")] for n in (1, 2)), says("A3"))
    core.agent(adapter, **window)
    task = await core.send("1", context="c")
    await core.send("2", task=task.id)
    await core.send("3", task=task.id)
    assert adapter.sent[-1][1] == (sent or ["U 1", "A which 1?", "U 2", "A which 2?", "U 3"])


@pytest.mark.parametrize("persistence", ["per_service_call", "per_turn"])
async def test_94b_it_stays_when_the_turn_that_answers_it_fails(core: Core, persistence: str) -> None:
    cut: Script = [TextDelta("par"), AdapterError(ErrorClass.INTERRUPTED, "cut")]
    adapter = ScriptedAdapter(G, [ends(Ending.INPUT_REQUIRED)], cut, says("A3"))
    core.agent(adapter, persistence=persistence)
    task = await core.send("1", context="c")
    await core.send("2", task=task.id)
    await core.send("3", context="c")
    left = ["U 2"] if persistence == "per_service_call" else []
    assert adapter.sent[-1] == (None, ["U 1", "A which?", *left, "U 3"])


@pytest.mark.parametrize(("ownership", "handle"), [(BR, "r1"), (BS, "r1")], ids=["BR", "BS"])
@ENDINGS
async def test_94b_a_backend_that_keeps_the_conversation_is_not_told_what_it_has_said(
    core: Core, ownership: Ownership, handle: str, ending: Ending
) -> None:
    adapter = ScriptedAdapter(ownership, [ends(ending)], [TextDelta("A2"), CallCompleted("r1")])
    core.agent(adapter)
    await core.send("1", context="c")
    await goes_on(core, "2")
    assert adapter.sent == [(None, ["U 1"]), (handle, ["U 2"])]


async def test_94b_a_backend_that_has_lost_the_conversation_is_told_it_once(core: Core) -> None:
    adapter = ScriptedAdapter(BR, [ends(Ending.INPUT_REQUIRED)], [LOST], says("A2", "q1"), says("A3", "q2"))
    core.agent(adapter, on_lost_handle="rebuild")
    task = await core.send("1", context="c")
    assert answer(await core.send("2", task=task.id)) == "A2"
    await core.send("3", context="c")
    assert adapter.sent[2:] == [(None, ["U 1", "A which?", "U 2"]), ("q1", ["U 3"])]


# --- functions in Python ---


class Asking:
    """A function that asks. `seen`: the history that it got with each message."""

    def __init__(self, ending: type[Exception]) -> None:
        self.ending = ending
        self.seen: list[list[str]] = []

    async def __call__(self, turn: Turn) -> AsyncIterator[str]:
        self.seen.append([f"{entry['role'][5]} {part['text']}" for entry in turn.history for part in entry["parts"]])
        if turn.text == "ask":
            yield "Let me see. "
            raise self.ending("Which city?")
        if turn.text == "repeat":
            yield "Let me see. "
            yield "Which city?"
            raise self.ending("Which city?")
        yield "Oslo it is."


def with_function(core: Core, function: object, **policies: Any) -> PythonFunction:
    adapter = agent_of(function)
    core.default = Agent(name="echo", card=CARD, adapter=adapter, policies=AgentPolicies(**policies))
    core.agents.append(core.default)
    return adapter


@pytest.mark.parametrize("ending", [InputRequired, AuthRequired, Reject])
@pytest.mark.parametrize(
    ("words", "seen"), [("ask", ["A Let me see. ", "A Which city?"]), ("repeat", ["A Let me see. Which city?"])]
)
async def test_94b_a_function_sees_what_it_has_asked_once_also_after_a_restart(
    tmp_path: Path, ending: type[Exception], words: str, seen: list[str]
) -> None:
    path, function = tmp_path / "ledger.db", Asking(ending)
    async with running_core(path, prefix="one") as core:
        adapter = with_function(core, function)
        asked = await core.send(words, context="c")
        await adapter.aclose()
    async with running_core(path, prefix="two") as core:
        adapter = with_function(core, function)
        await (core.send("Oslo", context="c") if ending is Reject else core.send("Oslo", task=asked.id))
        await core.send("And?", context="c")
        await adapter.aclose()
    said = [f"U {words}", *seen]
    assert function.seen == [[], said, [*said, "U Oslo", "A Oslo it is."]]
    assert violations(path) == []
