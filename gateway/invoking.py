"""Runs one tool call. Law: whatever a tool does, what comes back is an outcome, and in time; what an exception says goes to the
log."""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from gateway import consent, tools
from gateway.stopping import stop
from gateway.tool_port import ConsentNeeded, ToolError, ToolOutput, ToolRun
from gateway.tools import Settled
from gateway.toolset import OfferedTool
from gateway.tracebacks import forget

log = structlog.get_logger("gateway.invoking")


async def invoke(
    tool: OfferedTool, call: tools.ToolCall, context_id: str, principal: str, progress: Callable[[str], None]
) -> Settled | ConsentNeeded:
    """Cancelling it cancels the tool. One that goes on all the same is left to itself."""
    run = ToolRun(tool.own_name, call.inputs, call.facts.id, context_id, principal, progress)
    # In no group, which would wait for it.
    task = asyncio.get_running_loop().create_task(_tried(tool, run))
    try:
        await asyncio.wait({task}, timeout=tool.timeout)
        in_time = task.done()
    finally:
        if not await stop(task):
            log.error("tool.abandoned", tool=tool.identity, call=call.facts.id)
    given = task.result() if task.done() and not task.cancelled() else None
    if isinstance(given, ToolOutput):
        return Settled("failed" if given.error else "completed", given.output)
    if not in_time:
        log.warning("tool.timed-out", tool=tool.identity, call=call.facts.id, timeout=tool.timeout)
        return Settled("cancelled", tools.TIMED_OUT)
    if isinstance(given, ConsentNeeded) and _may_be_shown(given, tool, call):
        log.info("tool.needs-consent", tool=tool.identity, call=call.facts.id, detail=given.detail)
        return given
    if isinstance(given, ToolError):
        log.warning("tool.failed", tool=tool.identity, call=call.facts.id, detail=given.detail)
    else:
        log.error("tool.failed", tool=tool.identity, call=call.facts.id, exc_info=given)
    forget(given)
    return Settled("failed", tools.FAILED)


def _may_be_shown(needed: ConsentNeeded, tool: OfferedTool, call: tools.ToolCall) -> bool:
    try:
        consent.check_all([page.url for page in needed.pages])
    except ValueError as error:
        log.warning("tool.no-page", tool=tool.identity, call=call.facts.id, detail=str(error))
        return False
    return bool(needed.pages)


async def _tried(tool: OfferedTool, run: ToolRun) -> ToolOutput | BaseException:
    """What it gave or raised: a tool that cancels itself, or wants to end the process, must not take the gateway with it."""
    try:
        given = await tool.run(run)
        msgspec.json.encode(given.output)
    except BaseException as error:  # noqa: BLE001  # logged by whoever waits for it
        return error
    return given


def is_cancelled() -> bool:
    """Is it this task that is cancelled, and not one that it waits for?"""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
