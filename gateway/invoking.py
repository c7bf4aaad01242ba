"""Runs one tool call. Law: whatever a tool does, what comes back is an outcome; what an exception says goes to the log."""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from gateway import tools
from gateway.tool_port import ToolError, ToolRun
from gateway.tools import Settled
from gateway.toolset import OfferedTool

log = structlog.get_logger("gateway.invoking")


async def invoke(
    tool: OfferedTool, call: tools.ToolCall, context_id: str, principal: str, progress: Callable[[str], None]
) -> Settled:
    """Cancelling it cancels the tool."""
    run = ToolRun(tool.own_name, call.inputs, call.facts.id, context_id, principal, progress)
    scope = asyncio.timeout(tool.timeout)
    try:
        async with scope:
            given = await tool.run(run)
        msgspec.json.encode(given.output)
    except ToolError as error:
        log.warning("tool.failed", tool=tool.identity, call=call.facts.id, detail=error.detail)
        return Settled("failed", tools.FAILED)
    except BaseException as error:
        # A tool that cancels itself, or wants to end the process, would take its siblings or the gateway with it.
        if isinstance(error, asyncio.CancelledError) and is_cancelled():
            raise
        if isinstance(error, TimeoutError) and scope.expired():
            log.warning("tool.timed-out", tool=tool.identity, call=call.facts.id, timeout=tool.timeout)
            return Settled("cancelled", tools.TIMED_OUT)
        log.exception("tool.failed", tool=tool.identity, call=call.facts.id)
        return Settled("failed", tools.FAILED)
    return Settled("failed" if given.error else "completed", given.output)


def is_cancelled() -> bool:
    """Is it this task that is cancelled, and not one that it waits for?"""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
