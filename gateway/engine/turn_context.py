"""One turn on its way, as everybody who has a part in it knows it. Law: it does nothing of its own accord; what is said in it
is decided by the machine, and what is stored of it by whoever carries that out.

What a turn is reminded of: the ledger's items as the view of its next service call. Law: with a window no more is read
than the window takes, however long the conversation is.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from gateway.a2a.lifecycle import apply
from gateway.a2a.model import TaskState, TaskStatus, TaskStatusUpdateEvent
from gateway.core import ownership
from gateway.core.agents import Agent, AgentPolicies
from gateway.core.citations import drop_uncited, last_source_number
from gateway.core.failures import TOOLS_UNAVAILABLE
from gateway.core.history import View, Window, project, weight_of_tokens
from gateway.core.tools import client_tools
from gateway.core.tools.approvals import asks
from gateway.core.tools.tool_call import ToolPolicy
from gateway.core.tools.toolset import OfferedTool
from gateway.core.turn.machine import Turn, TurnFacts
from gateway.engine.runtime import Runtime
from gateway.engine.turn_run import ThreadQueue, TurnRun, status
from gateway.foundation.clock import milliseconds, non_decreasing, timestamp
from gateway.ledger.calls import NewToolCall
from gateway.ledger.errors import Conflict
from gateway.ledger.events import entry
from gateway.ledger.port import Ledger
from gateway.ledger.threads import ThreadRecord
from gateway.ledger.tool_calls import StandingApproval
from gateway.ports.conversation import HistoryRecord, StorageOwner
from gateway.ports.tools import ToolError
from gateway.ports.weight import weigh

_NO_TOOLS = ToolPolicy()
_THE_EPOCH = timestamp(0)


class TurnFailed(Exception):
    """The turn cannot go on, and no backend is to blame. `detail` is for the operator's log."""

    def __init__(self, failure: str, detail: str) -> None:
        super().__init__(failure)
        self.failure = failure
        self.detail = detail


class TurnContext:
    """`tools` is what the service call may lead to, `view` what it carries of the conversation, `attempt` the number of its
    next try, `pending` the handle that the try under way was told of. `base` is the handle at which the turn began. The
    times of the task are those of `clock`.
    """

    __slots__ = ("attempt", "base", "clock", "lane", "machine", "means", "pending", "tools", "view", "work")

    def __init__(self, means: Runtime, work: TurnRun, lane: ThreadQueue) -> None:
        self.means = means
        self.work = work
        self.lane = lane
        self.tools = _NO_TOOLS
        self.view = View((), ())
        self.attempt = 0
        self.pending: str | None = None
        self.base = work.base if work.resumed else lane.thread.handle
        self.clock = non_decreasing(means.clock, milliseconds(work.live.status.timestamp or _THE_EPOCH))
        self.machine = Turn(self.facts(), self.clock)
        if work.resumed:
            # From the start: a turn that is called off before it does anything ends its calls, too.
            self.machine.restore(work.resumed)

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


async def load_history(ledger: Ledger, agent: Agent, thread: ThreadRecord, turn: str) -> View:
    """Raises: LedgerUnavailable, CorruptRecord."""
    owned = ownership.of_thread(thread, agent.adapter.ownership)
    anew = ownership.starts_new_chain(thread)
    whole_turns = agent.policies.persistence == "per_turn"
    if owned.owner is StorageOwner.BACKEND and not anew:
        unsent = await ledger.history(thread.id, unsent_only=True)
        return project(owned, unsent, turn, whole_turns=whole_turns)
    window = await _window(ledger, agent.policies, thread.id) if owned.owner is StorageOwner.GATEWAY else None
    records: Sequence[HistoryRecord]
    if window is None:
        records = await ledger.history(thread.id, unsent_only=False)
    else:
        records = await ledger.recent_history(
            thread.id, turn, messages=window.messages, weight=window.weight, opaque=owned.opaque_replay
        )
    if agent.policies.uncited_sources == "keep":
        return project(owned, records, turn, window, anew=anew, whole_turns=whole_turns)
    counting = [record for record in records if not record.displaced]
    shrunk = drop_uncited(counting, turn)
    view = project(owned, shrunk, turn, window, anew=anew, whole_turns=whole_turns)
    return msgspec.structs.replace(view, last_source=last_source_number(counting))


async def _window(ledger: Ledger, policies: AgentPolicies, thread: str) -> Window | None:
    if policies.history_tokens is not None:
        weight = weight_of_tokens(policies.history_tokens, await ledger.measured_calls(thread))
        return Window(policies.history_messages, weight)
    return Window(policies.history_messages, None) if policies.history_messages is not None else None


def weight_to_measure(agent: Agent, view: View, tool_calls: tuple[NewToolCall, ...]) -> int | None:
    """Of what a request carried, where that tells how many bytes make a token.

    A backend that runs tools reads more than it was sent, and counts that too.
    """
    if agent.policies.history_tokens is None or tool_calls or agent.adapter.ownership.owner is StorageOwner.BACKEND:
        return None
    return weigh(view.items)
