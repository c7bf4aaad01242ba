"""The mutable state of one running turn, and the history that its next service call carries.

Law: the machine decides, and the executor stores; with a window no more history is read than the window takes, however long the
conversation is.
"""

from collections.abc import Mapping, Sequence
from functools import partial

import msgspec

from gateway.a2a.model import TaskState, TaskStatus
from gateway.core import ownership
from gateway.core.agents import Agent, AgentPolicies
from gateway.core.citations import drop_uncited, last_source_number
from gateway.core.failures import TOOLS_UNAVAILABLE
from gateway.core.history import Doubt, Groups, View, Window, off_chain, project, suspects, weight_of_tokens
from gateway.core.lifecycles import TASK, advance
from gateway.core.tools import client_tools
from gateway.core.tools.approval_rules import ApprovalRule, asks
from gateway.core.tools.tool_call import ToolPolicy
from gateway.core.tools.toolset import OfferedTool
from gateway.core.turn.machine import TurnFacts, TurnMachine
from gateway.engine.runtime import Runtime
from gateway.engine.turn_run import ThreadQueue, TurnRun, status, status_update
from gateway.foundation.clock import milliseconds, non_decreasing, timestamp
from gateway.ledger.calls import NewToolCall, Prepare
from gateway.ledger.errors import Conflict
from gateway.ledger.events import entry
from gateway.ledger.port import Ledger
from gateway.ledger.threads import ThreadRecord
from gateway.ledger.tool_calls import StandingApproval
from gateway.ports.capabilities import Ongoing
from gateway.ports.conversation import HistoryRecord, StorageOwner, weigh
from gateway.ports.tools import ToolError

_NO_TOOLS = ToolPolicy()


class TurnFailed(Exception):
    """The turn cannot continue, for a reason that is not a fault of a backend. `detail` is for the operator's log."""

    def __init__(self, failure: str, detail: str) -> None:
        super().__init__(failure)
        self.failure = failure
        self.detail = detail


class TurnContext:
    """The values of one turn that the parts of the engine share. `tools` are the rules for the tools of the service
    call, `view` is the part of the conversation that the call carries, `attempt` the number of its next try, `call` the
    names that the current try has told, `first_at` the time of the first that came of its answer. `doubt` is the part of
    the conversation that the call does without after a refusal. `doubtful` is an earlier turn of the thread on which the
    backend may still be at work: it has to be looked up again before any request after this one, unless this one is
    accepted. `base` is the handle at which the turn began. The times of the task are times of `clock`."""

    __slots__ = (
        "attempt",
        "base",
        "call",
        "clock",
        "doubt",
        "doubtful",
        "first_at",
        "held",
        "machine",
        "run",
        "runtime",
        "tools",
        "view",
    )

    def __init__(self, runtime: Runtime, run: TurnRun, held: ThreadQueue) -> None:
        self.runtime = runtime
        self.run = run
        self.held = held
        self.tools = _NO_TOOLS
        self.view = View((), ())
        self.attempt = 0
        self.call = Ongoing()
        self.doubt: Doubt | None = None
        self.doubtful: str | None = None
        self.first_at: int | None = None
        self.base = run.base if run.open_calls else held.thread.handle
        self.clock = non_decreasing(runtime.clock, milliseconds(run.live.status.timestamp or timestamp(0)))
        self.machine = TurnMachine(self.facts(), self.clock)
        if run.open_calls:
            # From the start: a turn that is cancelled before it does anything ends its calls, too.
            self.machine.restore(run.open_calls)

    @property
    def thread(self) -> ThreadRecord:
        return self.held.thread

    def continued(self, thread: ThreadRecord) -> ThreadRecord:
        """The thread as the next request continues it: a turn in doubt is not on the chain any more."""
        doubt = self.doubt
        return thread if doubt is None or doubt.turn is None else msgspec.structs.replace(thread, handle=doubt.handle)

    def facts(self) -> TurnFacts:
        run, thread, policies = self.run, self.thread, self.run.agent.policies
        owned = ownership.of_thread(thread, run.agent.adapter.ownership)
        return TurnFacts(
            run.live.id,
            run.live.context_id,
            run.turn,
            owned,
            direct_replies=run.may_reply,
            tolerate_missing_handle=policies.on_missing_handle == "tolerate" and thread.handle is not None,
            shadow=policies.shadow_history,
            keeps_interrupted=owned.owner is StorageOwner.GATEWAY or policies.interrupted_answers == "note",
            on_owner_conflict=policies.on_owner_conflict,
            tools=self.tools,
            rendering=run.rendering,
            marks_thoughts=run.marks_thoughts,
        )

    @property
    def addressed(self) -> Ongoing | None:
        """The names by which the backend can be asked about the current try, if it has any."""
        return ownership.addressed(self.thread, self.call)

    # --- changes

    def begin_try(self) -> None:
        """The try before failed."""
        self.attempt, self.call, self.first_at = self.attempt + 1, Ongoing(), None

    async def reread_thread(self) -> None:
        """Raises: Conflict when the thread is gone."""
        thread = await self.runtime.ledger.thread(self.thread.id)
        if thread is None:
            raise Conflict(f"thread {self.thread.id!r} is gone")
        self.held.thread, self.held.current = thread, True

    async def offer_tools(self) -> None:
        """The tools of the next service call. Raises: TurnFailed when a source does not list its tools."""
        agent, policies = self.run.agent, self.run.agent.policies
        of_client = client_tools.offered(policies.client_tools, self.run.message)
        offered: Mapping[str, OfferedTool] = {}
        rules: Sequence[ApprovalRule] = policies.approvals
        if agent.toolset is not None:
            try:
                offered = await agent.toolset.offered()
                rules = agent.toolset.rules_in_force(rules)
            except ToolError as error:
                raise TurnFailed(TOOLS_UNAVAILABLE, error.detail) from error
        standing: tuple[StandingApproval, ...] = ()
        if policies.approvals and policies.standing_approvals == "allow":
            context, principal = self.thread.context, self.run.caller.principal
            standing = await self.runtime.ledger.standing_approvals(context, principal)
        self.tools = ToolPolicy(
            offered,
            {tool.name: tool for tool in of_client if tool.name not in offered},
            partial(asks, rules),
            unknown_fails=policies.unknown_tool == "fail",
            exhausted=self.machine.round >= policies.tool_rounds,
            patience=int(policies.approval_timeout * 1000),
            standing=standing,
            largest_arguments=policies.tool_arguments,
        )

    # --- what is read

    def prepare(self, thread: ThreadRecord) -> Prepare:
        """C2 of the next try, on the thread as it will be then."""
        run, thread = self.run, self.continued(thread)
        return self.runtime.prepare(thread, run.turn, run.live.id, round_=self.machine.round, attempt=self.attempt)

    def working(self) -> tuple[TaskStatus, bytes | None]:
        """The WORKING status of the task, and its event, None where the task has this status already."""
        live = self.run.live
        working = status(advance(TASK, live.status.state, TaskState.WORKING), timestamp(self.clock.now()))
        if live.status.state is TaskState.WORKING:
            return working, None
        return working, entry(status_update(live, working))

    async def history(self) -> View:
        thread = self.continued(self.thread)
        return await load_history(self.runtime.ledger, self.run.agent, thread, self.run.turn, self.doubt)

    async def suspects(self) -> Groups:
        thread = self.continued(self.thread)
        return await load_suspects(self.runtime.ledger, self.run.agent, thread, self.run.turn, self.doubt)


async def load_history(
    ledger: Ledger, agent: Agent, thread: ThreadRecord, turn: str, doubt: Doubt | None = None
) -> View:
    """Raises: LedgerUnavailable, CorruptRecord."""
    owned = ownership.of_thread(thread, agent.adapter.ownership)
    whole_turns = agent.policies.persistence == "per_turn"
    if not is_sent_whole(thread):
        unsent: Sequence[HistoryRecord]
        if doubt is None or doubt.turn is None:
            unsent = await ledger.history(thread.id, unsent_only=True)
        else:
            unsent = off_chain(await ledger.history(thread.id, unsent_only=False), doubt.turn)
        return project(owned, unsent, turn, whole_turns=whole_turns, doubt=doubt)
    records, window = await load_conversation(ledger, agent, thread, turn)
    new_chain = ownership.starts_new_chain(thread)
    if agent.policies.uncited_sources == "keep":
        return project(owned, records, turn, window, new_chain=new_chain, whole_turns=whole_turns, doubt=doubt)
    counting = [record for record in records if not record.displaced]
    shrunk = drop_uncited(counting, turn)
    view = project(owned, shrunk, turn, window, new_chain=new_chain, whole_turns=whole_turns, doubt=doubt)
    return msgspec.structs.replace(view, last_source=last_source_number(counting))


async def load_suspects(ledger: Ledger, agent: Agent, thread: ThreadRecord, turn: str, doubt: Doubt | None) -> Groups:
    """What may be left out of a conversation that is sent as a whole. Raises: LedgerUnavailable, CorruptRecord."""
    if not is_sent_whole(thread):
        return ()
    records, window = await load_conversation(ledger, agent, thread, turn)
    owned, whole_turns = ownership.of_thread(thread, agent.adapter.ownership), agent.policies.persistence == "per_turn"
    return suspects(owned, records, turn, window, whole_turns=whole_turns, doubt=doubt)


def is_sent_whole(thread: ThreadRecord) -> bool:
    """Whether the next request carries the conversation, and not only what is new."""
    return thread.owner is StorageOwner.GATEWAY or ownership.starts_new_chain(thread)


async def load_conversation(
    ledger: Ledger, agent: Agent, thread: ThreadRecord, turn: str
) -> tuple[Sequence[HistoryRecord], Window | None]:
    """The items of the thread, of which a request carries those that fit into the window."""
    owned = ownership.of_thread(thread, agent.adapter.ownership)
    window = await _window(ledger, agent.policies, thread.id) if owned.owner is StorageOwner.GATEWAY else None
    if window is None:
        return await ledger.history(thread.id, unsent_only=False), None
    records = await ledger.recent_history(
        thread.id, turn, messages=window.messages, weight=window.weight, opaque=owned.opaque_replay
    )
    return records, window


async def _window(ledger: Ledger, policies: AgentPolicies, thread: str) -> Window | None:
    if policies.history_tokens is not None:
        weight = weight_of_tokens(policies.history_tokens, await ledger.measured_calls(thread))
        return Window(policies.history_messages, weight)
    return Window(policies.history_messages, None) if policies.history_messages is not None else None


def weight_to_measure(agent: Agent, view: View, tool_calls: tuple[NewToolCall, ...]) -> int | None:
    """The weight of a request whose token count tells how many bytes make a token, else None.

    A backend that runs tools reads more than the request, and counts that too.
    """
    if agent.policies.history_tokens is None or tool_calls or agent.adapter.ownership.owner is StorageOwner.BACKEND:
        return None
    return weigh(view.items)
