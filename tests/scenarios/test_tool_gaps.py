"""Edge cases of tool calls: declared and echoed calls of clients, repeated questions, and tools that are missing or do not
stop."""

from typing import Any

import pytest

from gateway.a2a.errors import InvalidParams, UnsupportedOperation
from gateway.a2a.model import Json, StreamResponse, TaskState
from gateway.a2a.redaction import MASK, json_path
from gateway.a2a.tool_calls import URI, Visibility
from tests.scenarios.test_approvals import GATED, PAY, SAFE, asked, expiry, no, one, reply, setup, start, yes
from tests.scenarios.test_tool_loop import adapter_of, asks, call
from tests.support.core import Core, events, logged, query, soon, until
from tests.support.scripted import G, Pause, says
from tests.support.scripted_tools import ScriptedTools

# --- what a client declares


async def test_72_a_tool_whose_schema_is_none_is_refused_before_anything_is_written(core: Core) -> None:
    adapter, _ = setup(core, G, says("done"))
    schema: Json = {"type": "object", "properties": {"zoom": {"type": "numbr"}}}
    declared: dict[str, Any] = {URI: {"tools": [{"name": "clock"}, {"name": "camera", "parameters": schema}]}}
    with pytest.raises(InvalidParams) as refused:
        await start(core, metadata=declared)
    [violation] = refused.value.violations
    assert violation.field == f"message.metadata[{URI!r}].tools[1].parameters.properties.zoom.type"
    assert (query(core.path, "SELECT count(*) FROM input"), adapter.requests) == ([(0,)], [])


# --- what a client echoes

MASKED = Visibility(redact=(json_path("$.args.to"),))


def echoed(call_id: str, **arguments: Json) -> Json:
    return {"approvals": [{"id": call_id, "approved": True, "args": arguments}]}


async def test_115_arguments_that_are_echoed_as_they_were_shown_are_those_that_were_asked_about(core: Core) -> None:
    adapter, tools = setup(core, G, asks("r1", PAY), says("done", "r2"), tool_calls=MASKED)
    task = await start(core)
    [tool] = asked(task)
    assert tool["args"] == {"to": MASK, "sum": 3}
    done = await reply(core, task.id, echoed(tool["id"], **tool["args"]))
    assert done.status.state is TaskState.COMPLETED
    assert tools.runs[0].arguments == {"to": "ada", "sum": 3}
    assert await reply(core, task.id, echoed(tool["id"], **tool["args"])) == done
    assert adapter.sent[1][1][-1] == "O c2 paid"


async def test_115_arguments_that_nobody_was_shown_are_refused_where_some_are_masked(core: Core) -> None:
    _, tools = setup(core, G, asks("r1", PAY), tool_calls=MASKED)
    task = await start(core)
    for other in ({"to": MASK, "sum": 4}, {"sum": 3}, {"to": "eve", "sum": 3}):
        with pytest.raises(InvalidParams, match=r"\.args: .* was asked about with other arguments"):
            await reply(core, task.id, echoed(one(task), **other))
    assert (tools.ran, await core.get(task.id)) == ([], task)


async def test_115_a_mask_is_no_echo_of_arguments_that_were_shown(core: Core) -> None:
    setup(core, G, asks("r1", PAY))
    task = await start(core)
    with pytest.raises(InvalidParams, match=r"\.args: .* was asked about with other arguments"):
        await reply(core, task.id, echoed(one(task), to=MASK, sum=3))


# --- what comes too late


@pytest.mark.parametrize("approved", [True, False])
async def test_119_a_decision_that_comes_too_late_is_refused_by_its_field_or_by_the_state_of_the_task(
    core: Core, approved: bool
) -> None:
    _, tools = setup(core, G, asks("r1", PAY), says("done", "r2"), approval_timeout=60.0)
    task = await start(core)
    decision: Json = {"approvals": [{"id": one(task), "approved": approved}]}
    core.time.now += 61_000
    with pytest.raises(InvalidParams, match=r"the time to decide .* is over"):
        await reply(core, task.id, decision)
    await expiry(core).sweep()
    await soon(core.runner.idle())
    done = await core.get(task.id)
    assert done.status.state is TaskState.COMPLETED
    if approved:
        with pytest.raises(UnsupportedOperation, match="has ended"):
            await reply(core, task.id, decision)
    else:
        assert await reply(core, task.id, decision) == done
    assert (tools.ran, await core.get(task.id)) == ([], done)


# --- what is asked once more


async def test_119_the_question_for_the_rest_names_its_tools_as_a_rule_does_and_as_the_first_one_did(
    core: Core,
) -> None:
    setup(core, G, asks("r1", PAY, call("c3", "pay_more")), says("done", "r2"))
    task = await start(core)
    first, second = (tool["id"] for tool in asked(task))
    rest = await reply(core, task.id, yes(first))
    assert one(rest) == second
    assert rest.status.message is not None
    assert rest.status.message.parts[0].text == "May the tool box.pay_more with {} be used?"


async def test_103_every_moment_of_a_call_names_its_server_also_behind_a_wait(core: Core) -> None:
    setup(core, G, asks("r1", PAY, call("c3", "pay_more")), says("done", "r2"))
    task = await start(core)
    first, second = (tool["id"] for tool in asked(task))
    await reply(core, task.id, no(first))
    await reply(core, task.id, yes(second))
    told = [facts.get("server") for event in events(logged(core.path, task.id)) for facts in facts_of(event)]
    assert told == ["test:box"] * 7


def facts_of(event: StreamResponse) -> list[dict[str, Any]]:
    update = event.status_update
    if update is None:
        return []
    parts: Any = update.status.message.parts if update.status.message is not None else ()
    found: list[Any] = [update.metadata, *(part.metadata for part in parts)]
    return [metadata[URI] for metadata in found if metadata and "phase" in metadata.get(URI, {})]


# --- what is asked about, while siblings run


async def test_111_that_a_call_needs_a_yes_is_shown_at_once_and_the_question_comes_when_its_siblings_have_ended(
    core: Core,
) -> None:
    look = Pause()
    core.agent(
        adapter_of(G, asks("r1", SAFE, PAY), says("done", "r2")),
        toolset=ScriptedTools({"look": look, "pay": "paid"}),
        approvals=GATED,
    )
    task = await start(core, at_once=True)
    await soon(look.reached.wait())
    await until(lambda: ("pay", "awaiting-approval") in moments(core, task.id))
    assert (await core.get(task.id)).status.state is TaskState.WORKING
    with pytest.raises(UnsupportedOperation, match="still at work"):
        await reply(core, task.id, "yes")
    look.go.set()
    await soon(core.runner.idle())
    asking = await core.get(task.id)
    assert [tool["name"] for tool in asked(asking)] == ["pay"]
    assert [phase for name, phase in moments(core, task.id) if name == "pay"] == ["requested", "awaiting-approval"]


def moments(core: Core, task: str) -> list[tuple[str, str]]:
    return [(facts["name"], facts["phase"]) for event in events(logged(core.path, task)) for facts in facts_of(event)]
