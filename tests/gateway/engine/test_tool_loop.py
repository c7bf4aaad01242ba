"""One run of a tool: whatever the tool does, an outcome comes back."""

import asyncio
import dataclasses
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.a2a.tool_calls import CallFacts
from gateway.core.tools import tool_call
from gateway.core.tools.tool_call import Settled, ToolCall
from gateway.core.tools.toolset import OfferedTool
from gateway.engine.tool_loop import invoke
from gateway.ledger.states import ToolCallStatus
from gateway.ports.tools import ConsentNeeded, ConsentPage, SourceTool, ToolError, ToolOutput, ToolRun
from tests.support.core import soon
from tests.support.scripted import Pause
from tests.support.scripted_tools import Answer, ScriptedTools

CALL = ToolCall(CallFacts("call_1", "one", 0, 0, "gateway", "test:box", "now"), "c1", "{}")


async def run(answer: Answer, seconds: float = 60.0, **inputs: Any) -> tuple[Settled, ScriptedTools]:
    box = ScriptedTools({"one": answer}, timeout=seconds)
    made = dataclasses.replace(CALL, inputs=inputs)
    settled = await invoke((await box.offered())["one"], made, "ctx", "ada", lambda _text: None)
    assert isinstance(settled, Settled)
    return settled, box


async def test_a_tool_gets_its_arguments_and_a_key_of_this_call_alone() -> None:
    settled, box = await run("O", a=1)
    assert settled == Settled(ToolCallStatus.COMPLETED, "O")
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
        (ToolOutput("no", error=True), Settled(ToolCallStatus.FAILED, "no")),
        (ToolError("secret"), Settled(ToolCallStatus.FAILED, tool_call.FAILED)),
        (ToolError("secret", may_have_run=True), Settled(ToolCallStatus.FAILED, tool_call.NO_USABLE_ANSWER)),
        (ValueError("secret"), Settled(ToolCallStatus.FAILED, tool_call.FAILED)),
        (TimeoutError("its own"), Settled(ToolCallStatus.FAILED, tool_call.FAILED)),
    ],
)
async def test_every_fault_of_a_tool_is_an_outcome(answer: Answer, settled: Settled) -> None:
    assert (await run(answer))[0] == settled


async def test_a_tool_that_needs_a_consent_has_no_outcome_yet() -> None:
    needed = ConsentNeeded("no token", (ConsentPage("https://login.example/"),))
    box = ScriptedTools({"one": needed})
    assert await invoke((await box.offered())["one"], CALL, "ctx", "ada", lambda _text: None) is needed


@pytest.mark.parametrize("pages", [(), (ConsentPage("https://a.example/"), ConsentPage("http://b.example/"))])
async def test_a_consent_on_no_page_that_may_be_shown_is_a_failure(pages: tuple[ConsentPage, ...]) -> None:
    assert (await run(ConsentNeeded("secret", pages)))[0] == Settled(ToolCallStatus.FAILED, tool_call.FAILED)


async def test_a_tool_is_stopped_at_its_timeout() -> None:
    assert (await run(Pause(), seconds=0.01))[0] == Settled(ToolCallStatus.CANCELLED, tool_call.TIMED_OUT)


async def test_a_cancelled_run_is_cancelled_and_not_an_outcome() -> None:
    pause = Pause()
    task = asyncio.get_running_loop().create_task(run(pause))
    await soon(pause.reached.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class Stubborn:
    """A tool that goes on when it is cancelled: for good, or until it has this to say."""

    def __init__(self, output: ToolOutput | None = None) -> None:
        self.output = output
        self.go = asyncio.Event()
        self.reached = asyncio.Event()
        self.source = ScriptedTools({"one": None}, timeout=60.0)

    async def offered(self, seconds: float = 60.0) -> OfferedTool:
        return dataclasses.replace((await self.source.offered())["one"], source=self, timeout=seconds)

    async def tools(self) -> tuple[SourceTool, ...]:
        return ()

    async def run(self, run: ToolRun) -> ToolOutput:
        self.reached.set()
        while not self.go.is_set():
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                if self.output is not None:
                    return self.output
        return ToolOutput("late")

    async def aclose(self) -> None:
        return


async def test_a_tool_that_ignores_its_timeout_is_abandoned() -> None:
    stubborn = Stubborn()
    tool = await stubborn.offered(0.01)
    with capture_logs() as logs:
        settled = await soon(invoke(tool, CALL, "ctx", "ada", lambda _text: None))
    stubborn.go.set()
    assert settled == Settled(ToolCallStatus.CANCELLED, tool_call.TIMED_OUT)
    assert [each["event"] for each in logs] == ["tool.abandoned", "tool.timed-out"]


async def test_an_output_at_the_timeout_counts() -> None:
    stubborn = Stubborn(ToolOutput("undone", error=True))
    settled = await soon(invoke(await stubborn.offered(0.01), CALL, "ctx", "ada", lambda _text: None))
    assert settled == Settled(ToolCallStatus.FAILED, "undone")


async def test_a_cancelled_run_does_not_wait_for_a_tool_that_goes_on() -> None:
    stubborn = Stubborn()
    tool = await stubborn.offered()
    task = asyncio.get_running_loop().create_task(invoke(tool, CALL, "ctx", "ada", lambda _text: None))
    await soon(stubborn.reached.wait())
    task.cancel()
    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await soon(task)
    stubborn.go.set()
    assert [each["event"] for each in logs] == ["tool.abandoned"]


@pytest.mark.parametrize("answer", ["x" * 20, ToolOutput("x" * 20, error=True)])
async def test_the_model_gets_the_beginning_of_a_large_result_and_masks_all_of_it(answer: Answer) -> None:
    tool = dataclasses.replace((await ScriptedTools({"one": answer}).offered())["one"], max_result=10)
    settled = await invoke(tool, CALL, "ctx", "ada", lambda _text: None)
    status = ToolCallStatus.FAILED if isinstance(answer, ToolOutput) else ToolCallStatus.COMPLETED
    assert settled == Settled(status, "x" * 10 + "\n[truncated: 10 of 20 bytes]", under_masks="x" * 20)
