"""One tool call: its executor, its approval, its status and its outcome. Law: decided once, when its service call is complete;
every call ends with exactly one outcome; an approval is for one tool and one set of arguments.

Source: docs/state-model.md, sections 6 and 13 E.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET, UnsetType

from gateway.a2a import nesting
from gateway.a2a.model import Json
from gateway.a2a.tool_calls import CallFacts, Phase, Response
from gateway.core.lifecycles import TOOL_CALL, advance
from gateway.core.tools.steps import Steps
from gateway.core.tools.toolset import OfferedTool
from gateway.ledger.states import OPEN, ToolCallStatus
from gateway.ledger.tool_calls import StandingApproval
from gateway.ports.tools import ToolDeclaration

NO_SUCH_TOOL = "This tool is not available."
NOT_RUN = "This call was not run."
CUT = "This call was not run: the answer that made it is not whole."
OUTCOME_UNKNOWN = "The outcome of this call is unknown."
TIMED_OUT = "The tool did not answer in time; whether it did its work is not known."
NO_USABLE_ANSWER = "The tool gave no answer that can be used; whether it did its work is not known."
FAILED = "The tool failed."
RESULT_TOO_DEEP = f"The tool ran, but its result is {nesting.TOO_DEEP}."
NO_OBJECT = "The arguments are not a JSON object."
DO_NOT_FIT = "The arguments do not fit."
TOO_DEEP = f"The arguments are {nesting.TOO_DEEP}."
TOO_LARGE = "The arguments are too large: those of all calls of one answer may have {limit} bytes together."
OTHER_TOOL = "This call was not run: the tool is not the one that was allowed."
LIMIT_REACHED = "This call was not run: the limit of tool rounds is reached."

NEVER_RAN = frozenset({NO_SUCH_TOOL, NOT_RUN, CUT, OTHER_TOOL, LIMIT_REACHED})
"""Outcomes of calls that were not run, and may run when they are made again."""

_KEPT = 1000
"""Characters of the arguments of an oversized call: enough to tell which call it was."""

RUNS = 3
"""How often an idempotent call may be started in all, if its process dies while it runs: the call may be the cause."""

PHASES = {
    ToolCallStatus.COMPLETED: Phase.SUCCEEDED,
    ToolCallStatus.FAILED: Phase.FAILED,
    ToolCallStatus.NOT_FOUND: Phase.FAILED,
    ToolCallStatus.REJECTED: Phase.REJECTED,
    ToolCallStatus.CANCELLED: Phase.CANCELLED,
    ToolCallStatus.INTERRUPTED: Phase.INTERRUPTED,
    ToolCallStatus.EXTERNAL: Phase.INTERRUPTED,
}
"""The outcome, as callers see it."""

ALLOWED: dict[str, Json] = {"approved": True}
"""The outcome of a backend's question that was approved."""

_canonical = msgspec.json.Encoder(order="sorted")

Gate = Callable[[str, dict[str, Json]], bool]
"""Whether a call of the tool with this identity and these arguments needs an approval."""


class Settled(msgspec.Struct, frozen=True):
    """The end of a tool call. `status` is one of `PHASES`, `output` goes to the model.

    `under_masks` takes the place of `output` for callers with masks, where it differs: the whole of a result that was cut
    for the model, because a mask cannot be found in a piece of JSON; or a fault in words that repeat no argument.
    """

    status: ToolCallStatus
    output: Json
    under_masks: Json | Response | UnsetType = UNSET


class ToolPolicy(msgspec.Struct, frozen=True):
    """The rules for the tools of one service call. `exhausted` says that no tool may run in the rest of this turn;
    `why_not` is the reason that the model receives. `standing` are the caller's standing approvals, which override
    `asks`. `patience` is the time in milliseconds that the caller has for a decision or a result.
    `largest_arguments` is in bytes: of all calls together that the backend does not run itself, and of each call that it
    runs."""

    offered: Mapping[str, OfferedTool] = msgspec.field(default_factory=dict)
    client: Mapping[str, ToolDeclaration] = msgspec.field(default_factory=dict)
    asks: Gate = lambda _identity, _arguments: False
    unknown_fails: bool = False
    exhausted: bool = False
    why_not: str = LIMIT_REACHED
    patience: int = 0
    standing: tuple[StandingApproval, ...] = ()
    largest_arguments: int = 256 * 1024

    def origin(self, name: str) -> str:
        """The executor of calls with this name, as far as the name tells."""
        return "gateway" if name in self.offered else "client" if name in self.client else "backend"

    def declarations(self) -> tuple[ToolDeclaration, ...]:
        return (*(tool.declaration for tool in self.offered.values()), *self.client.values())

    def server(self, name: str) -> str | None:
        return self.offered[name].server if name in self.offered else None


class ConsentLink(msgspec.Struct, frozen=True):
    """A page on which the user gives a consent. `id` is the gateway's id of the link. `server` names the party that
    needs the consent, for example `mcp:mail`; `text` is the reason that this party gives. `call` is the tool call of
    the gateway that waits for the consent, if there is one."""

    id: str
    url: str
    server: str = ""
    text: str = ""
    call: str = ""


@dataclass(slots=True)
class ToolCall:
    """One tool call of a turn. `status` is None while its service call runs, unless the backend has answered the call.

    `inputs` are the arguments, if they are an object and the gateway runs the call. `asked` says that the call needs an
    approval of `digest` before `expires_at`. `shown` says that callers have seen the call with its arguments. With
    `question`, the call is a question of the backend whether it may run a tool of its own, and the decision is the
    outcome. `runs_left` is the number of times that the call may still be started. `rerun` says that the call ran when
    its process died, and may run again. `pages` are the pages on which the user has to consent first. `identity` is the name
    that rules have for the tool of a call that needs an approval of its own. `oversized` says that the
    arguments are larger than the policy allows, and that `arguments` is their beginning. The times are in milliseconds.
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
    rerun: bool = False
    pages: tuple[ConsentLink, ...] = ()
    identity: str | None = None
    oversized: bool = False
    asked_at: int | None = None
    started_at: int | None = None
    ended_at: int | None = None

    def enter(self, status: ToolCallStatus) -> None:
        """Raises: IllegalTransition."""
        self.status = advance(TOOL_CALL, self.status, status)

    def settle(self, settled: Settled, at: int | None) -> None:
        """`at` is the time of the outcome, if it has one. Raises: IllegalTransition for a call that has an outcome."""
        self.enter(settled.status)
        self.outcome, self.ended_at = settled.output, at

    @property
    def is_open(self) -> bool:
        return self.status in OPEN

    @property
    def to_run(self) -> bool:
        ready = self.status in (ToolCallStatus.ANNOUNCED, ToolCallStatus.APPROVED)
        return self.executor == "gateway" and (ready or self.rerun)

    def can_run_with(self, tool: OfferedTool | None) -> bool:
        """False for a call that ran before and may not be repeated with this tool."""
        return not self.rerun or (tool is not None and tool.idempotent)

    @property
    def waits(self) -> bool:
        """The caller owes a decision, a consent, or the result."""
        asks = self.status in (ToolCallStatus.PENDING_APPROVAL, ToolCallStatus.PENDING_CONSENT)
        return asks or (self.executor == "client" and self.is_open)


def decide(call: ToolCall, policy: ToolPolicy, steps: Steps | None = None) -> Settled | None:
    """The outcome of a call that the backend did not answer, or None when the call has to run or to be approved.

    `steps` are those of the checks of all calls of one service call.
    """
    name, arguments = call.facts.name, call.arguments or ""
    if call.oversized:
        call.executor = call.executor if call.question else "gateway"
        return Settled(ToolCallStatus.FAILED, TOO_LARGE.format(limit=policy.largest_arguments))
    if call.question:
        call.inputs, call.asked = parse_arguments(arguments) or {}, True
        call.enter(ToolCallStatus.PENDING_APPROVAL)
        call.digest = digest(f"{call.facts.server}.{name}", arguments)
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
        return Settled(ToolCallStatus.FAILED, _why_unusable(arguments))
    call.inputs = inputs
    if tool is not None:
        complaint = tool.complaint(inputs, steps)
        if complaint is not None:
            return Settled(ToolCallStatus.FAILED, f"The arguments do not fit: {complaint}", DO_NOT_FIT)
        allowed = is_allowed(policy.standing, tool.server, tool.identity)
        call.asked = not allowed and policy.asks(tool.identity, inputs)
        if call.asked:
            call.digest, call.identity = digest(tool.identity, arguments), tool.identity
        # An approval is for one run.
        call.runs_left = RUNS if tool.idempotent and not call.asked else 1
    call.enter(ToolCallStatus.PENDING_APPROVAL if call.asked else ToolCallStatus.ANNOUNCED)
    return None


def refusal(call: ToolCall, tool: OfferedTool | None) -> Settled | None:
    """The reason why a call that waited cannot run, or None when it can run. Source: docs/state-model.md, I13."""
    if tool is None:
        return Settled(ToolCallStatus.NOT_FOUND, NO_SUCH_TOOL)
    if call.asked and call.digest != digest(tool.identity, call.arguments or ""):
        return Settled(ToolCallStatus.CANCELLED, OTHER_TOOL)
    return None


def parse_arguments(arguments: str) -> dict[str, Json] | None:
    """None where the arguments are no object, or nested too deep; a model may write nothing at all for no arguments."""
    if not arguments.strip():
        return {}
    try:
        value = nesting.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    return value if isinstance(value, dict) else None


def beginning(arguments: str, size: int) -> str:
    """What is kept of the arguments of a call that is not run for their size, which is a number of bytes."""
    return arguments if len(arguments) <= _KEPT else f"{arguments[:_KEPT]}\n[truncated: {size} bytes]"


def _why_unusable(arguments: str) -> str:
    try:
        nesting.decode(arguments)
    except nesting.TooDeep:
        return TOO_DEEP
    except (msgspec.DecodeError, UnicodeEncodeError):
        pass
    return NO_OBJECT


def answered(output: Json, *, error: bool) -> Settled:
    """The outcome of a call that another party than the gateway ran."""
    return Settled(ToolCallStatus.FAILED if error else ToolCallStatus.COMPLETED, output)


def outcome_at_end(status: ToolCallStatus | None) -> Settled:
    """The outcome of an open call whose turn ends."""
    if status is ToolCallStatus.RUNNING:
        return Settled(ToolCallStatus.INTERRUPTED, OUTCOME_UNKNOWN)
    return Settled(ToolCallStatus.CANCELLED, NOT_RUN)


def outcome_when_cut(facts: CallFacts, *, question: bool = False) -> Settled:
    """The outcome of a call that was unanswered when its service call broke off. Only a call that its backend runs can
    have run: the gateway, a client and a backend that asks first wait for the end of the answer."""
    if facts.origin == "backend" and not question:
        return Settled(ToolCallStatus.INTERRUPTED, OUTCOME_UNKNOWN)
    return Settled(ToolCallStatus.CANCELLED, CUT)


def digest(identity: str, arguments: str) -> str:
    """The digest that identifies an approved call. `arguments` is the model's raw text; spaces and the order of keys do
    not change the digest."""
    try:
        known = nesting.decode(arguments) if arguments.strip() else {}
    except msgspec.DecodeError:
        known = arguments
    return hashlib.sha256(_canonical.encode([identity, known])).hexdigest()


def is_allowed(given: Sequence[StandingApproval], server: str, identity: str) -> bool:
    """Whether a standing approval is for this tool. The model's name for it depends on the other tools of the agent."""
    return any(one.server == server and one.digest == digest(identity, one.arguments) for one in given)
