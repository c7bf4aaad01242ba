"""A model's arguments against a stranger's schema do not stop the gateway: the model hears that the call was bad. Source:
docs/adr/0023-a-bound-on-checks-by-schemas-and-on-depth.md."""

import time

import msgspec
import pytest

from gateway.a2a.model import Json
from gateway.engine.tool_sources import AttachedSource, SourceToolset
from gateway.ports.adapter import CallCompleted, ToolCallReady
from gateway.ports.conversation import OutputItem
from tests.gateway.engine.test_tool_sources import Scripted, tool
from tests.support.core import Core, answer
from tests.support.scripted import G, ScriptedAdapter, says

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
