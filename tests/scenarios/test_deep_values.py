"""A value that is nested too deep costs at most its own turn, since what is stored can be read. Source: docs/state-model.md,
scenario 131."""

import pytest

from gateway.a2a.model import Artifact, Part, TaskState
from gateway.core.tools import tool_call
from gateway.ports.adapter import (
    AdapterEvent,
    ApprovalAsked,
    ArtifactReady,
    CallCompleted,
    DirectReply,
    ErrorClass,
    ItemReady,
    PartReady,
    TextDelta,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import OpaqueItem, OutputItem, Ownership, ReasoningItem
from gateway.ports.tools import ToolOutput
from tests.gateway.a2a.test_nesting import nested
from tests.support.core import Core, answer, error_class
from tests.support.scripted import BR, G, ScriptedAdapter, says
from tests.support.scripted_tools import Answer, ScriptedTools

OWNERS = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
DEPTHS = pytest.mark.parametrize("depth", [100, 101, 400, 940, 950, 960, 980, 1000, 5000])


def deep_text(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


async def everything_can_be_read(core: Core, task: str) -> None:
    shown = await core.get(task)
    [listed] = [one for one in (await core.list(include_artifacts=True)).tasks if one.id == task]
    assert listed == shown
    assert shown.metadata is None


@OWNERS
@DEPTHS
async def test_131_the_output_and_the_arguments_of_a_tool_of_the_backend_may_be_deep(
    core: Core, ownership: Ownership, depth: int
) -> None:
    call = ToolCallReady("c1", "search", deep_text(depth), handled=True)
    core.agent(
        ScriptedAdapter(ownership, [call, ToolResultReady("c1", deep_text(depth)), *says("found")], says("again", "r2"))
    )
    task = await core.send("1", context="c")
    assert (task.status.state, answer(task)) == (TaskState.COMPLETED, "found")
    await everything_can_be_read(core, task.id)
    assert answer(await core.send("2", context="c")) == "again"


@OWNERS
async def test_131_an_output_that_is_deep_json_becomes_its_text(core: Core, ownership: Ownership) -> None:
    output = nested(300)
    adapter = ScriptedAdapter(
        ownership,
        [ToolCallReady("c1", "search", "{}", handled=True), ToolResultReady("c1", output), *says("found")],
        says("again", "r2"),
    )
    core.agent(adapter)
    task = await core.send("1", context="c")
    await everything_can_be_read(core, task.id)
    await core.send("2", context="c")
    if ownership is G:
        [told] = [item for item in adapter.requests[1].items if isinstance(item, OutputItem)]
        assert isinstance(told.output, str)
        assert told.output.startswith('[{"a":[')


BROKEN: dict[str, list[AdapterEvent]] = {
    "data": [PartReady(Part(data=nested(101))), CallCompleted("r")],
    "metadata of a part": [PartReady(Part(text="x", metadata={"a": nested(100)})), CallCompleted("r")],
    "artifact": [ArtifactReady(Artifact(artifact_id="a", parts=(Part(data=nested(101)),))), CallCompleted("r")],
    "metadata of an artifact": [
        ArtifactReady(Artifact(artifact_id="a", parts=(Part(text="x"),), metadata={"a": nested(100)})),
        CallCompleted("r"),
    ],
    "item": [ItemReady(OpaqueItem("strange", nested(101))), CallCompleted("r")],
    "reasoning": [ItemReady(ReasoningItem("hm", nested(101))), CallCompleted("r")],
    "state": [TextDelta("x"), CallCompleted("r", state=nested(101))],
    "message": [CallCompleted("r", message=(Part(data=nested(101)),))],
    "reply": [DirectReply((Part(data=nested(101)),))],
    "state of a reply": [DirectReply((Part(text="x"),), nested(101))],
}


@pytest.mark.parametrize("what", BROKEN)
async def test_131_any_other_deep_value_breaks_the_contract_and_costs_one_turn(core: Core, what: str) -> None:
    core.agent(ScriptedAdapter(G, BROKEN[what], says("again")), direct_replies="reply" in what)
    task = await core.send("1", context="c")
    assert error_class(task) == ErrorClass.CONTRACT_BROKEN
    await everything_can_be_read(core, task.id)
    assert answer(await core.send("2", context="c")) == "again"


@OWNERS
@pytest.mark.parametrize("depth", [101, 105, 5000])
async def test_131_a_report_of_tokens_that_is_too_deep_counts_as_none(
    core: Core, ownership: Ownership, depth: int
) -> None:
    report = {"prompt_tokens": 1, "completion_tokens": 2, "details": nested(depth)}
    core.agent(ScriptedAdapter(ownership, [TextDelta("found"), CallCompleted("r1", usage=report)], says("again", "r2")))
    task = await core.send("1", context="c")
    assert (task.status.state, answer(task)) == (TaskState.COMPLETED, "found")
    await everything_can_be_read(core, task.id)
    assert answer(await core.send("2", context="c")) == "again"


@OWNERS
@pytest.mark.parametrize(
    "output", [nested(101), ToolOutput(nested(950)), ToolOutput({"status": 500, "answer": nested(100)}, error=True)]
)
async def test_131_a_result_that_is_too_deep_is_a_failed_call_of_which_the_model_hears_why(
    core: Core, ownership: Ownership, output: Answer
) -> None:
    box = ScriptedTools({"find": output})
    adapter = ScriptedAdapter(ownership, [ToolCallReady("c1", "find", "{}"), CallCompleted("r1")], says("sorry", "r2"))
    core.agent(adapter, toolset=box)
    task = await core.send("1")
    assert (answer(task), box.ran) == ("sorry", ["find"])
    [told] = [item for item in adapter.requests[1].items if isinstance(item, OutputItem)]
    assert told == OutputItem("c1", "The tool ran, but its result is nested more than 100 deep.", error=True)
    await everything_can_be_read(core, task.id)


@OWNERS
@pytest.mark.parametrize("depth", [101, 950, 1000, 40_000])
async def test_131_arguments_that_are_too_deep_are_a_bad_call_of_which_the_model_hears(
    core: Core, ownership: Ownership, depth: int
) -> None:
    box = ScriptedTools({"add": 1})
    adapter = ScriptedAdapter(
        ownership, [ToolCallReady("c1", "add", deep_text(depth)), CallCompleted("r1")], says("sorry", "r2")
    )
    core.agent(adapter, toolset=box)
    task = await core.send("1")
    assert (answer(task), box.ran) == ("sorry", [])
    [told] = [item for item in adapter.requests[1].items if isinstance(item, OutputItem)]
    assert told == OutputItem("c1", tool_call.TOO_DEEP, error=True)
    await everything_can_be_read(core, task.id)


@pytest.mark.parametrize("depth", [950, 5000])
async def test_131_a_question_about_a_call_with_deep_arguments_can_be_shown(core: Core, depth: int) -> None:
    core.agent(ScriptedAdapter(BR, [ApprovalAsked("q1", "buy", deep_text(depth), "shop"), CallCompleted("r1")]))
    task = await core.send("1")
    assert task.status.state is TaskState.INPUT_REQUIRED
    await everything_can_be_read(core, task.id)
