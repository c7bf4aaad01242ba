"""The life of one tool call: who runs it, what becomes of it, and what its model is told. Law: decided when its service
call is complete, once; every call ends with exactly one outcome.

Source: state-model, sections 6 and 13 E.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec

from gateway.a2a.model import Json
from gateway.a2a.tool_calls import CallFacts, Phase
from gateway.core.lifecycles import TOOL_CALL, advance
from gateway.core.tools import approvals
from gateway.core.tools.consent import ConsentLink
from gateway.core.tools.toolset import OfferedTool
from gateway.ledger.states import OPEN, ToolCallStatus
from gateway.ledger.tool_calls import StandingApproval
from gateway.ports.tools import ToolDeclaration

NO_SUCH_TOOL = "This tool is not available."
NOT_RUN = "This call was not run."
OUTCOME_UNKNOWN = "The outcome of this call is unknown."
TIMED_OUT = "The tool did not answer in time; whether it did its work is not known."
FAILED = "The tool failed."
NO_OBJECT = "The arguments are not a JSON object."
OTHER_TOOL = "This call was not run: the tool is not the one that was allowed."
LIMIT_REACHED = "This call was not run: the limit of tool rounds is reached."

RUNS = 3
"""So often may an idempotent call be started whose process died while it ran: it may be what ends the process."""

PHASES = {
    ToolCallStatus.COMPLETED: Phase.SUCCEEDED,
    ToolCallStatus.FAILED: Phase.FAILED,
    ToolCallStatus.NOT_FOUND: Phase.FAILED,
    ToolCallStatus.REJECTED: Phase.REJECTED,
    ToolCallStatus.CANCELLED: Phase.CANCELLED,
    ToolCallStatus.INTERRUPTED: Phase.INTERRUPTED,
    ToolCallStatus.EXTERNAL: Phase.INTERRUPTED,
}
"""How callers see the outcome."""

ALLOWED: dict[str, Json] = {"approved": True}
"""The outcome of a backend's question that was answered with a yes."""

Gate = Callable[[str, dict[str, Json]], bool]
"""Does a call of the tool with this identity and these arguments need a yes?"""


@dataclass(frozen=True, slots=True)
class Settled:
    """`output` is what the model is told. `status` is one of `PHASES`."""

    status: ToolCallStatus
    output: Json


class ToolPolicy(msgspec.Struct, frozen=True):
    """What one service call may lead to. `exhausted`: no more tools may be run in this turn, `why_not` tells the model.
    `standing`: what its caller has allowed for good, whatever `asks` says.
    `patience`: so many milliseconds a caller has to decide, or to bring a result."""

    offered: Mapping[str, OfferedTool] = msgspec.field(default_factory=dict)
    client: Mapping[str, ToolDeclaration] = msgspec.field(default_factory=dict)
    asks: Gate = lambda _identity, _arguments: False
    unknown_fails: bool = False
    exhausted: bool = False
    why_not: str = LIMIT_REACHED
    patience: int = 0
    standing: tuple[StandingApproval, ...] = ()

    def origin(self, name: str) -> str:
        """Who is going to run a call of this name, as far as the name tells."""
        return "gateway" if name in self.offered else "client" if name in self.client else "backend"

    def declarations(self) -> tuple[ToolDeclaration, ...]:
        """What the model is told of."""
        return (*(tool.declaration for tool in self.offered.values()), *self.client.values())

    def server(self, name: str) -> str | None:
        tool = self.offered.get(name)
        return tool.server if tool is not None else None


@dataclass(slots=True)
class ToolCall:
    """One tool call of a turn. `status` is None while its service call goes on, unless the backend has answered it.

    `inputs` are its arguments where they are an object and it is ours to run. `asked`: it needs a yes, for what `digest` is
    of; `expires_at`: until then its caller may answer. `shown`: callers have seen it, with its arguments. `question`: it is
    no call, but the backend's question whether it may run it; the decision is its outcome. `runs_left`: so often may it be
    started in all. `cut`: it ran when its process died, and may be run once more. `pages`: where its user has to consent first.
    """

    facts: CallFacts
    external_id: str
    arguments: str | None = None
    handled: bool | None = None
    status: ToolCallStatus | None = None
    outcome: Json = None
    executor: str = "backend"
    inputs: dict[str, Json] = field(default_factory=dict)
    asked: bool = False
    question: bool = False
    digest: str | None = None
    expires_at: int | None = None
    shown: bool = False
    runs_left: int = 1
    cut: bool = False
    pages: tuple[ConsentLink, ...] = ()

    def enter(self, status: ToolCallStatus) -> None:
        """Raises: IllegalTransition."""
        self.status = advance(TOOL_CALL, self.status, status)

    def settle(self, settled: Settled) -> None:
        """Raises: IllegalTransition for a call that has an outcome."""
        self.enter(settled.status)
        self.outcome = settled.output

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def to_run(self) -> bool:
        ready = self.status in (ToolCallStatus.ANNOUNCED, ToolCallStatus.APPROVED)
        return self.executor == "gateway" and (ready or self.cut)

    def can_run_with(self, tool: OfferedTool | None) -> bool:
        """Whether it is not one that ran before and would now be another thing to do."""
        return not self.cut or (tool is not None and tool.idempotent)

    @property
    def waits(self) -> bool:
        """For its caller: a decision, a consent, or the result."""
        asks = self.status in (ToolCallStatus.PENDING_APPROVAL, ToolCallStatus.PENDING_CONSENT)
        return asks or (self.executor == "client" and self.is_open)


def decide(call: ToolCall, policy: ToolPolicy) -> Settled | None:
    """What becomes of a complete call that its backend did not answer; None: it is to be run, or asked about."""
    name, arguments = call.facts.name, call.arguments or ""
    if call.question:
        call.inputs, call.asked = parse_arguments(arguments) or {}, True
        call.enter(ToolCallStatus.PENDING_APPROVAL)
        call.digest = approvals.digest(f"{call.facts.server}.{name}", arguments)
        return None
    if policy.exhausted:
        call.executor = "gateway"
        return Settled(ToolCallStatus.CANCELLED, policy.why_not)
    tool = policy.offered.get(name)
    if tool is None and name not in policy.client:
        call.executor = "gateway"
        return Settled(ToolCallStatus.NOT_FOUND, NO_SUCH_TOOL)
    call.executor = "gateway" if tool is not None else "client"
    inputs = parse_arguments(arguments)
    if inputs is None:
        return Settled(ToolCallStatus.FAILED, NO_OBJECT)
    call.inputs = inputs
    if tool is not None:
        complaint = tool.complaint(inputs)
        if complaint is not None:
            return Settled(ToolCallStatus.FAILED, f"The arguments do not fit: {complaint}")
        allowed = approvals.is_allowed(policy.standing, tool.server, tool.identity)
        call.asked = not allowed and policy.asks(tool.identity, inputs)
        call.digest = approvals.digest(tool.identity, arguments) if call.asked else None
        # A yes is for one run.
        call.runs_left = RUNS if tool.idempotent and not call.asked else 1
    call.enter(ToolCallStatus.PENDING_APPROVAL if call.asked else ToolCallStatus.ANNOUNCED)
    return None


def refusal(call: ToolCall, tool: OfferedTool | None) -> Settled | None:
    """Why a call that waited cannot run any more; None: it may. Source: state-model, I13."""
    if tool is None:
        return Settled(ToolCallStatus.NOT_FOUND, NO_SUCH_TOOL)
    if call.asked and call.digest != approvals.digest(tool.identity, call.arguments or ""):
        return Settled(ToolCallStatus.CANCELLED, OTHER_TOOL)
    return None


def parse_arguments(arguments: str) -> dict[str, Json] | None:
    """A model that calls a tool without arguments may write none at all."""
    if not arguments.strip():
        return {}
    try:
        value = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict) else None


def outcome_at_end(status: ToolCallStatus | None) -> Settled:
    """What a call of this status gets whose turn ends before it has an outcome."""
    if status is ToolCallStatus.RUNNING:
        return Settled(ToolCallStatus.INTERRUPTED, OUTCOME_UNKNOWN)
    return Settled(ToolCallStatus.CANCELLED, NOT_RUN)
