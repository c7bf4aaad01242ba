"""Runs one tool call. Law: whatever a tool does, what comes back is an outcome, and in time; what an exception says goes to the
log.

Runs the tools that a service call asked for. Law: beside each other, up to a limit; each outcome is stored when it is
there; a call that ran before does not run again, unless it is declared that it may.
"""

import asyncio
from collections.abc import Callable

import msgspec
import structlog

from gateway.core.citations import number_sources
from gateway.core.failures import TOOL_OUTCOME_UNKNOWN, TOOLS_FAILING
from gateway.core.tools import consent, tool_call
from gateway.core.tools.tool_call import Settled, ToolCall
from gateway.core.tools.toolset import OfferedTool
from gateway.core.turn.commands import Publish
from gateway.engine.executor import CommandExecutor
from gateway.engine.turn_context import TurnContext, TurnFailed, load_history
from gateway.foundation.tasks import stop
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ledger.states import ToolCallStatus
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.tools import ConsentNeeded, ToolError, ToolOutput, ToolRun

log = structlog.get_logger("gateway.engine.tool_loop")


async def invoke(
    tool: OfferedTool, call: tool_call.ToolCall, context_id: str, principal: str, progress: Callable[[str], None]
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
        return Settled(ToolCallStatus.FAILED if given.error else ToolCallStatus.COMPLETED, given.output)
    if not in_time:
        log.warning("tool.timed-out", tool=tool.identity, call=call.facts.id, timeout=tool.timeout)
        return Settled(ToolCallStatus.CANCELLED, tool_call.TIMED_OUT)
    if isinstance(given, ConsentNeeded) and _may_be_shown(given, tool, call):
        log.info("tool.needs-consent", tool=tool.identity, call=call.facts.id, detail=given.detail)
        return given
    if isinstance(given, ToolError):
        log.warning("tool.failed", tool=tool.identity, call=call.facts.id, detail=given.detail)
    else:
        log.error("tool.failed", tool=tool.identity, call=call.facts.id, exc_info=given)
    drop_tracebacks(given)
    return Settled(ToolCallStatus.FAILED, tool_call.FAILED)


def _may_be_shown(needed: ConsentNeeded, tool: OfferedTool, call: tool_call.ToolCall) -> bool:
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


_FAILING_ROUNDS = 3
"""So many rounds in a row with nothing but failures end the turn."""


class ToolRounds:
    """Those of one turn."""

    __slots__ = ("_course", "_failing", "_last_source", "_performer")

    def __init__(self, course: TurnContext, performer: CommandExecutor) -> None:
        self._course = course
        self._performer = performer
        self._failing = 0
        self._last_source: int | None = None

    async def run(self) -> None:
        """The calls that may run. What the backend may run has only to be told to it.

        Raises: AdapterError, Conflict; TurnFailed for one that ran before and cannot run again.
        """
        machine, policies = self._course.machine, self._course.work.agent.policies
        for call in machine.calls.values():
            if call.question and call.status is ToolCallStatus.APPROVED:
                await self._settle(call, Settled(ToolCallStatus.COMPLETED, tool_call.ALLOWED))
        due = [call for call in machine.calls.values() if call.to_run]
        if not due or machine.ended:
            return
        if machine.waiting and policies.mixed_batch == "hold":
            return
        for call in due:
            if not call.can_run_with(self._course.tools.offered.get(call.facts.name)):
                detail = f"{call.facts.name} ran when its process died, and is no idempotent tool any more"
                raise TurnFailed(TOOL_OUTCOME_UNKNOWN, detail)
        limit = asyncio.Semaphore(policies.parallel_tools)
        try:
            async with asyncio.TaskGroup() as group:
                for call in due:
                    group.create_task(self._run(call, limit))
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None

    def count_failures(self) -> None:
        """Behind a round. Raises: TurnFailed for a model that goes on calling what does not work."""
        calls = self._course.machine.calls.values()
        only_failures = bool(calls) and all(
            call.status in (ToolCallStatus.FAILED, ToolCallStatus.NOT_FOUND) for call in calls
        )
        self._failing = self._failing + 1 if only_failures else 0
        if self._failing >= _FAILING_ROUNDS:
            raise TurnFailed(TOOLS_FAILING, f"{self._failing} rounds of tools in a row failed")

    async def _run(self, call: ToolCall, limit: asyncio.Semaphore) -> None:
        async with limit:
            work, machine = self._course.work, self._course.machine
            tool = self._course.tools.offered.get(call.facts.name)
            refused = tool_call.refusal(call, tool)
            if refused is not None or tool is None:
                return await self._settle(call, refused or Settled(ToolCallStatus.NOT_FOUND, tool_call.NO_SUCH_TOOL))
            known = await self._known(call)
            if known is not None:
                return await self._settle(call, known)
            await self._performer.perform(machine.start_tool(call))

            def progress(text: str) -> None:
                if call.status is ToolCallStatus.RUNNING:
                    for command in machine.progress(call, text):
                        if isinstance(command, Publish):
                            self._performer.publish(command.update)

            settled = await invoke(tool, call, work.live.context_id, work.caller.principal, progress)
            if isinstance(settled, ConsentNeeded):
                return await self._performer.perform(machine.pause_tool(call, settled.pages))
            if work.agent.policies.uncited_sources == "drop" and settled.status is ToolCallStatus.COMPLETED:
                settled = await self._with_numbers(settled)
            return await self._settle(call, settled)

    async def _with_numbers(self, settled: Settled) -> Settled:
        """Its sources go on from the highest number that the conversation has. Source: state-model, scenario 98."""
        course = self._course
        view = course.view
        if self._last_source is None and not view.items:
            # The turn waited, and has read nothing yet.
            view = await load_history(course.means.ledger, course.work.agent, course.lane.thread, course.work.turn)
        last = view.last_source if self._last_source is None else self._last_source
        output, self._last_source = number_sources(settled.output, last)
        return Settled(settled.status, output)

    async def _settle(self, call: ToolCall, settled: Settled) -> None:
        await self._performer.perform(self._course.machine.settle_tool(call, settled))

    async def _known(self, call: ToolCall) -> Settled | None:
        """What came of this very call before, from a backend whose ids stay the same in the whole thread.

        Source: state-model, scenario 82. Raises: AdapterError when the id meant another call.
        """
        course = self._course
        if course.work.agent.adapter.ownership.call_ids == "response":
            return None
        thread = course.lane.thread.id
        earlier = await course.means.ledger.earlier_tool_call(thread, call.external_id, call.facts.id)
        if earlier is None or earlier.outcome in (tool_call.NOT_RUN, tool_call.LIMIT_REACHED):
            return None
        if (earlier.name, earlier.arguments) != (call.facts.name, call.arguments):
            raise AdapterError(
                ErrorClass.CONTRACT_BROKEN, f"the id of tool call {call.external_id!r} meant another one"
            )
        return Settled(earlier.status, earlier.outcome)
