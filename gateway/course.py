"""One turn on its way, as everybody who has a part in it knows it. Law: it does nothing of its own accord; what is said in it
is decided by the machine, and what is stored of it by whoever carries that out.
"""

from collections.abc import Mapping
from functools import partial

from gateway import client_tools, ownership
from gateway.approvals import asks
from gateway.clock import milliseconds, onwards, timestamp
from gateway.commits.failures import Conflict
from gateway.commits.tools import StandingApproval
from gateway.failures import TOOLS_UNAVAILABLE
from gateway.lifecycle import apply
from gateway.live import Lane, Work, status
from gateway.means import Means
from gateway.model import TaskState, TaskStatus, TaskStatusUpdateEvent
from gateway.projection import View
from gateway.record import entry
from gateway.tool_port import ToolError
from gateway.tools import ToolPolicy
from gateway.toolset import OfferedTool
from gateway.turn import Turn, TurnFacts

_NO_TOOLS = ToolPolicy()
_THE_EPOCH = timestamp(0)


class TurnFailed(Exception):
    """The turn cannot go on, and no backend is to blame. `detail` is for the operator's log."""

    def __init__(self, failure: str, detail: str) -> None:
        super().__init__(failure)
        self.failure = failure
        self.detail = detail


class Course:
    """`tools` is what the service call may lead to, `view` what it carries of the conversation, `attempt` the number of its
    next try, `pending` the handle that the try under way was told of. `base` is the handle at which the turn began. The
    times of the task are those of `clock`.
    """

    __slots__ = ("attempt", "base", "clock", "lane", "machine", "means", "pending", "tools", "view", "work")

    def __init__(self, means: Means, work: Work, lane: Lane) -> None:
        self.means = means
        self.work = work
        self.lane = lane
        self.tools = _NO_TOOLS
        self.view = View((), ())
        self.attempt = 0
        self.pending: str | None = None
        self.base = work.base if work.resumed else lane.thread.handle
        self.clock = onwards(means.clock, milliseconds(work.live.status.timestamp or _THE_EPOCH))
        self.machine = Turn(self.facts(), self.clock)
        if work.resumed:
            # From the start: a turn that is called off before it does anything ends its calls, too.
            self.machine.go_on(work.resumed)

    def facts(self) -> TurnFacts:
        work, thread, policies = self.work, self.lane.thread, self.work.agent.policies
        return TurnFacts(
            work.live.id,
            work.live.context_id,
            ownership.of_thread(thread, work.agent.adapter.ownership),
            direct_replies=work.may_reply,
            tolerate_missing_handle=policies.on_missing_handle == "tolerate" and thread.handle is not None,
            shadow=policies.shadow_history,
            on_owner_conflict=policies.on_owner_conflict,
            tools=self.tools,
            rendering=work.rendering,
        )

    def begin_call(self) -> None:
        """The service call that comes next has not been tried."""
        self.attempt, self.pending = 0, None

    def working(self) -> tuple[TaskStatus, bytes | None]:
        """The status of the task at work, and the event that tells it where it is new."""
        live = self.work.live
        working = status(apply(live.status.state, TaskState.WORKING), timestamp(self.clock.now()))
        if live.status.state is TaskState.WORKING:
            return working, None
        return working, entry(TaskStatusUpdateEvent(task_id=live.id, context_id=live.context_id, status=working))

    async def reread(self) -> None:
        """Raises: Conflict when the thread is gone."""
        known, lane = self.lane.thread, self.lane
        thread = await self.means.ledger.thread(known.id)
        if thread is None:
            raise Conflict(f"thread {known.id!r} is gone")
        lane.thread, lane.current = thread, True

    async def offer(self) -> None:
        """The tools of the service call that comes next. Raises: TurnFailed when it cannot be told what the agent's are."""
        agent, policies = self.work.agent, self.work.agent.policies
        exhausted = self.machine.round >= policies.tool_rounds
        theirs = client_tools.offered(policies.client_tools, self.work.message)
        offered: Mapping[str, OfferedTool] = {}
        if agent.toolset is not None:
            try:
                offered = await agent.toolset.offered()
            except ToolError as error:
                raise TurnFailed(TOOLS_UNAVAILABLE, error.detail) from error
        standing: tuple[StandingApproval, ...] = ()
        if policies.approvals and policies.standing_approvals == "allow":
            context, principal = self.lane.thread.context, self.work.caller.principal
            standing = await self.means.ledger.standing_approvals(context, principal)
        self.tools = ToolPolicy(
            offered,
            {tool.name: tool for tool in theirs if tool.name not in offered},
            partial(asks, policies.approvals),
            unknown_fails=policies.unknown_tool == "fail",
            exhausted=exhausted,
            patience=int(policies.approval_timeout * 1000),
            standing=standing,
        )
