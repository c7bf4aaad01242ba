"""Runs the tool calls that a service call asked for, up to a limit at the same time.

Law: whatever a tool does, an outcome comes back in time, and is stored at once; what an exception says goes to the log. A call
that ran before does not run again, unless its tool is declared as idempotent.
"""

import asyncio
from collections.abc import Callable

import msgspec
import structlog
from msgspec import UNSET
from msgspec.structs import replace

from gateway.core.citations import number_sources
from gateway.core.failures import TOOL_OUTCOME_UNKNOWN, TOOLS_FAILING
from gateway.core.tools import prompts, tool_call
from gateway.core.tools.tool_call import Settled, ToolCall
from gateway.core.tools.toolset import OfferedTool, beginning_of, bounded
from gateway.core.turn.commands import Publish
from gateway.engine.executor import CommandExecutor
from gateway.engine.masking import masked
from gateway.engine.turn_context import TurnContext, TurnFailed
from gateway.foundation.tasks import stop
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ledger.states import ToolCallStatus
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.tools import ConsentNeeded, ResultTooDeep, ToolError, ToolOutput, ToolRun

log = structlog.get_logger("gateway.engine.tool_loop")

_FAILING_ROUNDS = 3
"""So many rounds in a row with nothing but failures end the turn."""


async def invoke(
    tool: OfferedTool, call: tool_call.ToolCall, context_id: str, principal: str, progress: Callable[[str], None]
) -> Settled | ConsentNeeded:
    """Cancelling it cancels the tool. A tool that ignores its cancellation is abandoned."""
    tool_run = ToolRun(tool.own_name, call.inputs, call.facts.id, context_id, principal, progress)
    # The task is in no task group, because a group would wait for it.
    task = asyncio.get_running_loop().create_task(_tried(tool, tool_run))
    try:
        await asyncio.wait({task}, timeout=tool.timeout)
        in_time = task.done()
    finally:
        if not await stop(task):
            log.error("tool.abandoned", tool=tool.identity, call=call.facts.id)
    given = task.result() if task.done() and not task.cancelled() else None
    if isinstance(given, ToolOutput):
        kept = bounded(given, tool.max_result)
        status = ToolCallStatus.FAILED if given.error else ToolCallStatus.COMPLETED
        return Settled(status, kept.output, UNSET if kept is given else given.output)
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
    return Settled(ToolCallStatus.FAILED, _why(given))


def _why(given: object) -> str:
    """Why a run failed, as the model is told: it may repeat what was not done."""
    match given:
        case ResultTooDeep():
            return tool_call.RESULT_TOO_DEEP
        case ToolError(may_have_run=True):
            return tool_call.NO_USABLE_ANSWER
        case _:
            return tool_call.FAILED


def _may_be_shown(needed: ConsentNeeded, tool: OfferedTool, call: tool_call.ToolCall) -> bool:
    try:
        prompts.check_all([page.url for page in needed.pages])
    except ValueError as error:
        log.warning("tool.no-page", tool=tool.identity, call=call.facts.id, detail=str(error))
        return False
    return bool(needed.pages)


async def _tried(tool: OfferedTool, tool_run: ToolRun) -> ToolOutput | BaseException:
    """The output or the exception: a tool that cancels itself, or exits the process, must not stop the gateway."""
    try:
        given = await tool.run(tool_run)
        msgspec.json.encode(given.output)
    except BaseException as error:  # noqa: BLE001  # the caller logs it
        return error
    return given


def is_cancelled() -> bool:
    """Whether the current task itself is cancelled, and not only a task that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class ToolRounds(msgspec.Struct):
    """The rounds of tool calls of one turn."""

    context: TurnContext
    executor: CommandExecutor
    _failing: int = 0
    _last_source: int | None = None

    async def run(self) -> None:
        """Runs the calls that may run; the backend only needs to hear which of its own calls it may run.

        Raises: AdapterError, Conflict; TurnFailed for a call that ran before and cannot run again.
        """
        machine, policies = self.context.machine, self.context.run.agent.policies
        for call in machine.calls.values():
            if call.question and call.status is ToolCallStatus.APPROVED:
                await self._settle(call, Settled(ToolCallStatus.COMPLETED, tool_call.ALLOWED))
        due = [call for call in machine.calls.values() if call.to_run]
        if not due or machine.ended:
            return
        if machine.waiting and policies.mixed_batch == "hold":
            return
        for call in due:
            if not call.can_run_with(self.context.tools.offered.get(call.facts.name)):
                detail = f"{call.facts.name} ran when its process died, and is no idempotent tool any more"
                raise TurnFailed(TOOL_OUTCOME_UNKNOWN, detail)
        limit = asyncio.Semaphore(policies.parallel_tools)
        try:
            async with asyncio.TaskGroup() as group:
                for call in due:
                    group.create_task(self._run_call(call, limit))
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None

    def count_failures(self) -> None:
        """Counts the failures of a round. Raises: TurnFailed when the model repeats calls that fail."""
        calls = self.context.machine.calls.values()
        failures = (ToolCallStatus.FAILED, ToolCallStatus.NOT_FOUND)
        only_failures = bool(calls) and all(call.status in failures for call in calls)
        self._failing = self._failing + 1 if only_failures else 0
        if self._failing >= _FAILING_ROUNDS:
            raise TurnFailed(TOOLS_FAILING, f"{self._failing} rounds of tools in a row failed")

    async def _run_call(self, call: ToolCall, limit: asyncio.Semaphore) -> None:
        async with limit:
            run, machine = self.context.run, self.context.machine
            tool = self.context.tools.offered.get(call.facts.name)
            refused = tool_call.refusal(call, tool)
            if refused is not None or tool is None:
                return await self._settle(call, refused or Settled(ToolCallStatus.NOT_FOUND, tool_call.NO_SUCH_TOOL))
            known = await self._known(call)
            if known is not None:
                return await self._settle(call, known)
            await self.executor.perform(machine.start_tool(call))

            def progress(text: str) -> None:
                if call.status is ToolCallStatus.RUNNING:
                    for command in machine.progress(call, text):
                        if isinstance(command, Publish):
                            self.executor.publish(command.update)

            runtime, spans = self.context.runtime, run.spans
            if spans is not None:
                spans.begin_tool(call)
            began, under_way = runtime.clock.monotonic(), runtime.tools.begin(tool.identity)
            try:
                settled = await invoke(tool, call, run.live.context_id, run.caller.principal, progress)
            finally:
                runtime.tools.end(under_way)
            outcome = "consent" if isinstance(settled, ConsentNeeded) else settled.status
            took = runtime.clock.monotonic() - began
            runtime.observer.tool_ended(run.agent.name, tool.identity, outcome, took)
            if isinstance(settled, ConsentNeeded):
                if spans is not None:
                    spans.pause_tool(call)
                return await self.executor.perform(machine.pause_tool(call, settled.pages))
            if run.agent.policies.uncited_sources == "drop" and settled.status is ToolCallStatus.COMPLETED:
                settled = await self._with_numbers(settled)
            await self._settle(call, await masked(settled, machine.facts.rendering, tool.max_result))
            return None if spans is None else await spans.end_tool(call, settled, machine.facts.rendering)

    async def _with_numbers(self, settled: Settled) -> Settled:
        """Numbers its sources, from the highest number of the conversation on. Source: docs/state-model.md, scenario 98."""
        view = self.context.view
        if self._last_source is None and not view.items:
            # The turn was paused, and has read no history yet.
            view = await self.context.history()
        last = view.last_source if self._last_source is None else self._last_source
        output, self._last_source = number_sources(settled.output, last)
        return replace(settled, output=output)

    async def _settle(self, call: ToolCall, settled: Settled) -> None:
        await self.executor.perform(self.context.machine.settle_tool(call, settled))

    async def _known(self, call: ToolCall) -> Settled | None:
        """The outcome that this very call had before, with a backend whose ids stay the same in the whole thread.

        Source: docs/state-model.md, scenario 82. Raises: AdapterError when the id meant another call.
        """
        context = self.context
        if context.run.agent.adapter.ownership.call_ids == "response":
            return None
        earlier = await context.runtime.ledger.earlier_tool_call(context.thread.id, call.external_id, call.facts.id)
        if earlier is None or (isinstance(earlier.outcome, str) and earlier.outcome in tool_call.NEVER_RAN):
            return None
        if (earlier.name, earlier.arguments) != (call.facts.name, call.arguments):
            raise AdapterError(
                ErrorClass.CONTRACT_BROKEN, f"the id of tool call {call.external_id!r} meant another one"
            )
        return Settled(earlier.status, earlier.outcome, beginning_of(earlier.outcome))
