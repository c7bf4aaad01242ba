"""One run of a tool: whatever it does, an outcome comes back."""

import asyncio
from typing import Any

import pytest

from gateway import tools
from gateway.invoking import invoke
from gateway.tool_calls import CallFacts
from gateway.tool_port import ToolError, ToolOutput
from gateway.tools import Settled, ToolCall
from tests.gateway.core import soon
from tests.gateway.scripted import Pause
from tests.gateway.scripted_tools import Answer, ScriptedTools


async def run(answer: Answer, seconds: float = 60.0, **inputs: Any) -> tuple[Settled, ScriptedTools]:
    box = ScriptedTools({"one": answer}, timeout=seconds)
    made = ToolCall(CallFacts("call_1", "one", 0, 0, "gateway", "test:box", "now"), "c1", "{}", inputs=inputs)
    settled = await invoke((await box.offered())["one"], made, "ctx", "ada", lambda _text: None)
    return settled, box


async def test_a_tool_gets_its_arguments_and_a_key_that_is_only_this_calls() -> None:
    settled, box = await run("O", a=1)
    assert settled == Settled("completed", "O")
    (seen,) = box.runs
    assert (seen.name, seen.arguments, seen.key, seen.context_id, seen.principal) == (
        "one",
        {"a": 1},
        "call_1",
        "ctx",
        "ada",
    )


@pytest.mark.parametrize(
    ("answer", "settled"),
    [
        (ToolOutput("no", error=True), Settled("failed", "no")),
        (ToolError("secret"), Settled("failed", tools.FAILED)),
        (ValueError("secret"), Settled("failed", tools.FAILED)),
        (TimeoutError("its own"), Settled("failed", tools.FAILED)),
        (ToolOutput("\ud800"), Settled("failed", tools.FAILED)),
    ],
)
async def test_what_a_tool_does_wrong_is_an_outcome(answer: Answer, settled: Settled) -> None:
    assert (await run(answer))[0] == settled


async def test_a_tool_has_so_much_time_and_no_more() -> None:
    assert (await run(Pause(), seconds=0.01))[0] == Settled("cancelled", tools.TIMED_OUT)


async def test_a_cancelled_run_is_cancelled_and_not_an_outcome() -> None:
    pause = Pause()
    task = asyncio.get_running_loop().create_task(run(pause))
    await soon(pause.reached.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
