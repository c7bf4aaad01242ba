"""What the paths of `redact` point at reaches no caller, whatever runs the tool and however large its result is."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from time import process_time, thread_time
from typing import Any

import msgspec
import pytest

from gateway.a2a.model import Json, Role
from gateway.a2a.redaction import MASK, json_path
from gateway.a2a.tool_calls import Visibility
from gateway.ports.adapter import ToolCallAnnounced, ToolCallArguments, ToolCallReady, ToolResultReady
from gateway.ports.tools import ToolOutput
from tests.scenarios.test_approvals import CAMERA, GATED, asked, open_calls, reply, start, yes
from tests.scenarios.test_approvals import result as of_client
from tests.scenarios.test_tool_loop import adapter_of, asks, call
from tests.support.core import Core, events, frames, query
from tests.support.scripted import BR, G, Script, says
from tests.support.scripted_tools import ScriptedTools

SECRET = "s3cr3tXq"
HIDES = Visibility(redact=(json_path("$..token"), json_path("$.response..pin")))
LARGE = "x" * 70_000
"""More than a tool may tell a model."""

TALLY = {"pin": SECRET, "rows": [[{"Token": {"v": SECRET}}]]}
TEXT = json.dumps(TALLY)
RESULTS: dict[str, Json] = {
    "an object": TALLY,
    "an object that is cut behind the secret": {**TALLY, "more": LARGE},
    "an object that is cut within the secret": {"pin": SECRET * 10_000, "token": SECRET},
    "a text that is cut": json.dumps({**TALLY, "more": LARGE}),
    "a list that is cut": [TALLY, LARGE],
    "a text within a text that is cut": json.dumps(json.dumps({**TALLY, "more": LARGE})),
    "lines": f"{TEXT}\n{TEXT}\n",
    "lines that are cut": f"{TEXT}\n" * 2_000,
    "a mark, then JSON": f"\ufeff{TEXT}",
    "a mark, then JSON that is cut": "\ufeff" + json.dumps({**TALLY, "more": LARGE}),
    "JSON without its end": TEXT[:-1],
    "JSON in a sentence that is cut": f"The result is {TEXT}. {LARGE}",
    "blocks": [{"type": "text", "text": TEXT}, {"type": "text", "text": LARGE}],
}
EVERY = pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)


async def shown(core: Core, task: str) -> str:
    """All that callers can read of the task."""
    read = await frames(await core.subscribe(task, core.call(last=0)))
    listed = await core.list(include_artifacts=True)
    answers: list[Any] = [await core.get(task), listed, *events(read)]
    log = "".join(payload for (payload,) in query(core.path, "SELECT payload FROM event"))
    return log + "".join(msgspec.json.encode(answer).decode() for answer in answers)


async def follow(core: Core, text: str = "hi") -> tuple[str, str]:
    """The task, and all that its stream has shown."""
    read = await frames(await core.stream(text, context="c"))
    task = events(read)[0].task
    assert task is not None
    return task.id, "".join(payload.decode() for _, payload in read)


@EVERY
@pytest.mark.parametrize("error", [False, True], ids=["result", "error"])
async def test_a_result_of_a_tool_of_the_gateway_reaches_callers_masked(core: Core, result: Json, error: bool) -> None:
    adapter = adapter_of(G, asks("r1", call("c1", "look")), says("done", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"look": ToolOutput(result, error)}), tool_calls=HIDES)
    task, streamed = await follow(core)
    seen = streamed + await shown(core, task)
    assert MASK in seen
    assert SECRET not in seen
    assert SECRET in str(adapter.requests[1].items)


@EVERY
@pytest.mark.parametrize("error", [False, True], ids=["result", "error"])
async def test_a_result_of_a_tool_of_the_backend_reaches_callers_masked(core: Core, result: Json, error: bool) -> None:
    script = [ToolCallReady("c1", "look", "{}", True), ToolResultReady("c1", result, error), *says("done", "r1")]
    core.agent(adapter_of(BR, script), tool_calls=HIDES)
    task, streamed = await follow(core)
    seen = streamed + await shown(core, task)
    assert MASK in seen
    assert SECRET not in seen


WRAPPED: dict[str, Json] = {
    "a body": {"status": 404, "answer": TALLY},
    "a body that is text": {"status": 502, "answer": TEXT},
    "a body that is cut": {"status": 500, "answer": json.dumps({**TALLY, "more": LARGE})},
    "blocks": [{"type": "text", "text": TEXT}, {"type": "text", "text": "try again"}],
}


@pytest.mark.parametrize("result", WRAPPED.values(), ids=WRAPPED)
@pytest.mark.parametrize("owner", ["gateway", "backend"])
async def test_a_failure_reaches_callers_masked_at_the_places_of_the_result(
    core: Core, result: Json, owner: str
) -> None:
    hides = Visibility(redact=(json_path("$.response.pin"), json_path("$.response.rows[*].token")))
    if owner == "gateway":
        adapter = adapter_of(G, asks("r1", call("c1", "look")), says("done", "r2"))
        core.agent(adapter, toolset=ScriptedTools({"look": ToolOutput(result, True)}), tool_calls=hides)
    else:
        script = [ToolCallReady("c1", "look", "{}", True), ToolResultReady("c1", result, True), *says("done", "r1")]
        core.agent(adapter_of(BR, script), tool_calls=hides)
    task, streamed = await follow(core)
    seen = streamed + await shown(core, task)
    assert MASK in seen
    assert SECRET not in seen


async def test_a_question_masks_what_stands_in_lists_and_is_answered_as_it_was_shown(core: Core) -> None:
    arguments = json.dumps({"to": [{"name": "ada", "pin": SECRET}, {"name": "eve", "pin": SECRET}]})
    hides = Visibility(redact=(json_path("$.args.to.pin"),))
    tools = ScriptedTools({"pay": "paid"})
    adapter = adapter_of(G, asks("r1", call("c1", "pay", arguments)), says("done", "r2"))
    core.agent(adapter, toolset=tools, tool_calls=hides, approvals=GATED)
    asking = await start(core)
    [tool] = asked(asking)
    assert tool["args"] == {"to": [{"name": "ada", "pin": MASK}, {"name": "eve", "pin": MASK}]}
    await reply(core, asking.id, {"approvals": [{"id": tool["id"], "approved": True, "args": tool["args"]}]})
    assert tools.ran == ["pay"]
    assert SECRET not in await shown(core, asking.id)


@pytest.mark.parametrize(
    "arguments", [TEXT, TEXT[:-1], f"\ufeff{TEXT}", json.dumps(TEXT), json.dumps([TALLY]), json.dumps({"a": TEXT})]
)
async def test_arguments_reach_callers_masked_at_once_and_piece_by_piece(core: Core, arguments: str) -> None:
    script = [
        ToolCallAnnounced("c1", "look"),
        ToolCallArguments("c1", arguments[:20]),
        ToolCallArguments("c1", arguments[20:]),
        ToolCallReady("c1", "look", arguments, True),
        ToolResultReady("c1", "seen"),
        *says("done", "r1"),
    ]
    core.agent(adapter_of(BR, script), tool_calls=Visibility(redact=(json_path("$..token"), json_path("$..pin"))))
    task, streamed = await follow(core)
    assert SECRET not in streamed + await shown(core, task)


async def test_a_complaint_about_arguments_does_not_repeat_them_beside_masks(core: Core) -> None:
    arguments = json.dumps({"bad": 1, "token": SECRET})
    tools = ScriptedTools({"look": "seen"})
    adapter = adapter_of(G, asks("r1", call("c1", "look", arguments)), says("done", "r2"), says("again", "r3"))
    core.agent(adapter, toolset=tools, tool_calls=HIDES)
    task, _ = await follow(core)
    assert "no 'bad' here" in str(adapter.requests[1].items)
    seen = await shown(core, task)
    assert "The arguments do not fit." in seen
    assert "'bad'" not in seen


async def test_a_question_for_approval_masks_what_a_call_masks(core: Core) -> None:
    arguments = json.dumps({"to": "ada", "Token": SECRET, "note": TEXT, "cut": TEXT[:-1]})
    hides = Visibility(redact=(json_path("$..token"), json_path("$.args..pin")))
    adapter = adapter_of(G, asks("r1", call("c1", "pay", arguments)), says("done", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"pay": "paid"}), tool_calls=hides, approvals=GATED)
    asking = await start(core)
    [tool] = asked(asking)
    assert tool["args"]["to"] == "ada"
    listed = await core.list()
    done = await reply(core, asking.id, yes(tool["id"]))
    seen = f"{asking}{listed}{done}{await shown(core, asking.id)}"
    assert SECRET not in seen


async def test_what_a_client_answers_for_its_tool_is_masked_in_the_record_of_the_call(core: Core) -> None:
    adapter = adapter_of(G, asks("r1", call("c1", "camera")), says("done", "r2"))
    core.agent(adapter, client_tools=(CAMERA,), tool_calls=HIDES)
    asking = await start(core)
    picture = json.dumps({**TALLY, "more": LARGE})
    done = await reply(core, asking.id, of_client(open_calls(asking)["camera"], picture))
    calls = [entry for entry in done.history or () if entry.role is Role.AGENT]
    assert MASK in str(calls)
    assert SECRET not in str(calls)


async def test_the_outcome_of_a_call_that_a_backend_repeats_is_masked_although_only_its_beginning_is_known(
    core: Core,
) -> None:
    """The record has what the model was told: a result that was cut."""
    tools = ScriptedTools({"look": {**TALLY, "more": LARGE}})
    script = [asks("r1", call("c1", "look")), says("done", "r2"), asks("r3", call("c1", "look")), says("again", "r4")]
    adapter = adapter_of(replace(G, call_ids="thread"), *script)
    core.agent(adapter, toolset=tools, tool_calls=HIDES)
    await follow(core)
    task, streamed = await follow(core)
    assert SECRET not in streamed + await shown(core, task)


async def test_numbered_sources_are_masked_with_their_numbers(core: Core) -> None:
    sources: Json = [{"source_number": 0, "text": "blue", "token": SECRET}]
    adapter = adapter_of(G, asks("r1", call("c1", "look")), says("blue [source0]", "r2"))
    core.agent(adapter, toolset=ScriptedTools({"look": sources}), tool_calls=HIDES, uncited_sources="drop")
    task, streamed = await follow(core)
    assert f'{{"source_number":0,"text":"blue","token":"{MASK}"}}' in streamed
    assert SECRET not in streamed + await shown(core, task)


LARGE_RESULT = json.dumps([{**TALLY, "n": [[number]] * 20} for number in range(5_000)])


@asynccontextmanager
async def responsive_loop() -> AsyncIterator[None]:
    """Fails where one step of the event loop does most of the block's work.

    Processor time, without garbage collection: a busy machine, and the objects of other tests, count for nothing.
    """
    gc.disable()
    began, last, longest = process_time(), thread_time(), 0.0

    async def watch() -> None:
        nonlocal last, longest
        while True:
            await asyncio.sleep(0)
            longest, last = max(longest, thread_time() - last), thread_time()

    watching = asyncio.get_running_loop().create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
        gc.enable()
    assert longest < (process_time() - began) / 2


async def test_a_large_result_of_a_client_is_masked_while_the_event_loop_goes_on(core: Core) -> None:
    adapter = adapter_of(G, asks("r1", call("c1", "camera")), says("done", "r2"))
    core.agent(adapter, client_tools=(CAMERA,), tool_calls=HIDES)
    asking = await start(core)
    answered = of_client(open_calls(asking)["camera"], LARGE_RESULT)
    async with responsive_loop():
        done = await reply(core, asking.id, answered)
    assert SECRET not in str([entry for entry in done.history or () if entry.role is Role.AGENT])


@pytest.mark.parametrize("early", [False, True], ids=["behind its call", "before its call"])
async def test_a_large_result_of_the_backend_is_masked_while_the_event_loop_goes_on(core: Core, early: bool) -> None:
    made: Script = [ToolCallReady("c1", "look", "{}", True), ToolResultReady("c1", LARGE_RESULT)]
    core.agent(adapter_of(BR, [*(reversed(made) if early else made), *says("done", "r1")]), tool_calls=HIDES)
    async with responsive_loop():
        task = await core.send("1")
    seen = await shown(core, task.id)
    assert MASK in seen
    assert SECRET not in seen
