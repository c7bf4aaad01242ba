"""A model's arguments, of any size and against a stranger's schema, do not stop the gateway: the model hears that the call was
bad. Source: docs/adr/0023-a-bound-on-checks-by-schemas-and-on-depth.md."""

import json
import time
from typing import Any

import msgspec
import pytest

from gateway.a2a.model import Json, Task, TaskState
from gateway.a2a.redaction import MASK, json_path
from gateway.a2a.tool_calls import Visibility
from gateway.core.tools import tool_call
from gateway.engine.tool_sources import AttachedSource, SourceToolset
from gateway.ports.adapter import AdapterEvent, ApprovalAsked, CallCompleted, ToolCallReady, ToolResultReady
from gateway.ports.conversation import CallItem, OutputItem, Ownership
from tests.gateway.engine.test_tool_sources import Scripted, tool
from tests.scenarios.test_approvals import CAMERA, GATED, settled
from tests.scenarios.test_tool_loop import adapter_of
from tests.support.core import Core, answer, query
from tests.support.scripted import BR, BS, G, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools

SECONDS = 4.0
"""Of the processor, for the whole turn."""

PATTERN: dict[str, Json] = {"properties": {"a": {"pattern": "^(a|aa)+$"}}}
UNIQUE: dict[str, Json] = {"properties": {"a": {"uniqueItems": True}}}
TWICE: dict[str, Json] = {
    "$defs": {f"d{n}": {"oneOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)} | {"d60": {}},
    "$ref": "#/$defs/d0",
}


@pytest.mark.parametrize(
    ("schema", "value", "told"),
    [
        (PATTERN, "a" * 60 + "!", "does not match"),
        (UNIQUE, [{"n": n % 3999} for n in range(4000)], "…"),
        (TWICE, 1, "would take too long"),
    ],
    ids=["pattern", "uniqueItems", "oneOf"],
)
async def test_the_model_hears_of_arguments_that_do_not_fit_and_all_of_it_is_soon_done(
    core: Core, schema: dict[str, Json], value: Json, told: str
) -> None:
    arguments = msgspec.json.encode({"a": value}).decode()
    calls = [ToolCallReady(f"c{n}", "strange", arguments) for n in range(8)]
    adapter = ScriptedAdapter(G, [*calls, CallCompleted("r1")], says("sorry"))
    source = Scripted(tool("strange", schema))
    core.agent(adapter, toolset=SourceToolset([AttachedSource("s", "mcp", source)]))
    began = time.process_time()
    task = await core.send("1")
    assert time.process_time() - began < SECONDS
    assert answer(task) == "sorry"
    outputs = [item for item in adapter.requests[1].items if isinstance(item, OutputItem)]
    assert [output.error for output in outputs] == [True] * 8
    assert told in str(outputs[0].output)


# --- their size

LIMIT = 2000
LARGE = json.dumps({"path": "a.txt", "text": "x" * LIMIT})
TOO_LARGE = tool_call.TOO_LARGE.format(limit=LIMIT)
DENSE = json.dumps({"v": [{f"k{number}": [number] * 10 for number in range(50)}] * 3000})
"""Seven MB."""


def shown_arguments(task: Task) -> list[Any]:
    parts = [part for message in task.history or () for part in message.parts]
    return [part.data["args"] for part in parts if isinstance(part.data, dict) and "args" in part.data]


def told(adapter: ScriptedAdapter, request: int = 1) -> list[OutputItem]:
    return [item for item in adapter.requests[request].items if isinstance(item, OutputItem)]


@pytest.mark.parametrize("ownership", [G, BR, BS], ids=["G", "BR", "BS"])
@pytest.mark.parametrize("name", ["add", "camera", "unknown"])
async def test_84_a_call_with_too_large_arguments_is_a_bad_one_whoever_would_run_it(
    core: Core, ownership: Ownership, name: str
) -> None:
    box = ScriptedTools({"add": 1})
    adapter = adapter_of(ownership, [ToolCallReady("c1", name, LARGE), CallCompleted("r1")], says("sorry", "r2"))
    core.agent(adapter, toolset=box, client_tools=(CAMERA,), approvals=GATED, tool_arguments=LIMIT)
    task = await core.send("1")
    assert (task.status.state, answer(task), box.ran) == (TaskState.COMPLETED, "sorry", [])
    assert told(adapter) == [OutputItem("c1", TOO_LARGE, error=True)]
    settled(core)


async def test_84_of_too_large_arguments_the_beginning_is_kept_shown_and_told(core: Core) -> None:
    adapter = ScriptedAdapter(G, [ToolCallReady("c1", "add", LARGE), CallCompleted("r1")], says("sorry", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"add": 1}), tool_arguments=LIMIT)
    task = await core.send("1")
    beginning = f"{LARGE[:1000]}\n[truncated: {len(LARGE)} bytes]"
    assert shown_arguments(task) == [{"raw": beginning}]
    assert CallItem("c1", "add", beginning) in adapter.requests[1].items
    assert query(core.path, "SELECT arguments FROM tool_call") == [(beginning,)]


@pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
async def test_84_the_calls_of_one_answer_share_the_limit_and_the_next_answer_has_its_own(
    core: Core, ownership: Ownership
) -> None:
    box = ScriptedTools({"add": 1})
    most = json.dumps({"text": "x" * (LIMIT // 2 - 20)})
    calls: Script = [
        ToolCallReady("c0", "add", LARGE),
        *(ToolCallReady(f"c{number}", "add", most) for number in (1, 2, 3)),
        ToolCallReady("c4", "add", "{}"),
    ]
    again: Script = [ToolCallReady("d1", "add", most), ToolCallReady("d2", "add", most), CallCompleted("r2")]
    adapter = ScriptedAdapter(ownership, [*calls, CallCompleted("r1")], again, says("done", "r3"))
    core.agent(adapter, toolset=box, tool_arguments=LIMIT)
    assert answer(await core.send("1")) == "done"
    assert {item.call_id: item.error for item in told(adapter)} == {
        "c0": True,
        "c1": False,
        "c2": False,
        "c3": True,
        "c4": False,
    }
    assert [item.error for item in told(adapter, 2)][-2:] == [False, False]
    assert box.ran == ["add"] * 5


async def test_84_each_call_that_the_backend_runs_itself_has_the_limit_for_itself(core: Core) -> None:
    small = json.dumps({"text": "x" * (LIMIT - 20)})
    events: Script = [
        event
        for number, arguments in enumerate((small, small, LARGE, small))
        for event in (
            ToolCallReady(f"c{number}", "search", arguments, handled=True),
            ToolResultReady(f"c{number}", "found"),
        )
    ]
    core.agent(ScriptedAdapter(BR, [*events, *says("done", "r1")]), tool_arguments=LIMIT)
    task = await core.send("1")
    assert answer(task) == "done"
    assert [list(args) for args in shown_arguments(task)] == [["text"], ["text"], ["raw"], ["text"]]


@pytest.mark.parametrize("ownership", [BR, BS], ids=["BR", "BS"])
async def test_84_nobody_is_asked_about_a_call_that_cannot_be_shown_whole(core: Core, ownership: Ownership) -> None:
    asking: Script = [ApprovalAsked("q1", "buy", LARGE, "shop"), CallCompleted("r1")]
    adapter = adapter_of(ownership, asking, says("sorry", "r2"))
    core.agent(adapter, tool_arguments=LIMIT)
    task = await core.send("1")
    assert (task.status.state, answer(task)) == (TaskState.COMPLETED, "sorry")
    assert told(adapter) == [OutputItem("q1", TOO_LARGE, error=True, approved=False)]
    settled(core)


async def test_84_too_large_arguments_are_masked_as_a_whole(core: Core) -> None:
    adapter = ScriptedAdapter(G, [ToolCallReady("c1", "add", LARGE), CallCompleted("r1")], says("sorry", "r2"))
    hides = Visibility(redact=(json_path("$.args.token"),))
    core.agent(adapter, toolset=ScriptedTools({"add": 1}), tool_arguments=LIMIT, tool_calls=hides)
    assert shown_arguments(await core.send("1")) == [{"raw": MASK}]


@pytest.mark.parametrize("masks", ["", "$..token"])
@pytest.mark.parametrize("call", ["add", "search", "question"])
async def test_84_seven_megabytes_of_arguments_cost_little(core: Core, masks: str, call: str) -> None:
    made: dict[str, AdapterEvent] = {
        "add": ToolCallReady("c1", "add", DENSE),
        "search": ToolCallReady("c1", "search", DENSE, handled=True),
        "question": ApprovalAsked("c1", "buy", DENSE, "shop"),
    }
    adapter = ScriptedAdapter(BR, [made[call], CallCompleted("r1")], says("sorry", "r2"))
    hides = Visibility(redact=(json_path(masks),) if masks else ())
    core.agent(adapter, toolset=ScriptedTools({"add": 1}), tool_calls=hides, approvals=GATED)
    began = time.process_time()
    task = await core.send("1")
    assert time.process_time() - began < SECONDS / 4
    assert task.status.state is TaskState.COMPLETED
    assert len(msgspec.json.encode(task)) < 10_000
