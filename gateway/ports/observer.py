"""What the gateway tells of its work: the one seam for the access log, for metrics and for the audit log.

Law: each method is called in the event loop, behind the commit of what it tells, and never for single deltas. It returns at
once and raises nothing. Nothing that is told holds content of a conversation, but spans where content is asked for.
"""

from collections.abc import Callable, Iterable
from typing import TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from gateway.foundation.logs import LogLine
from gateway.foundation.trace import TraceContext
from gateway.ports.spans import Span

Labels: TypeAlias = tuple[str, ...]
Reading: TypeAlias = Callable[[], Iterable[tuple[Labels, float]]]
"""The present values of a gauge, each with the values of its labels."""


class RequestLine(LogLine, kw_only=True, gc=False):
    """A request that was answered. The caller, agent and operation are unset for a request that is refused before they are
    known, and for one that has none. `status` is 0 without an answer. `ms` is the time until the end of the answer."""

    event: str = "request"
    method: str | UnsetType = UNSET
    path: str | UnsetType = UNSET
    principal: str | UnsetType = UNSET
    agent: str | UnsetType = UNSET
    operation: str | UnsetType = UNSET
    error: str | UnsetType = UNSET
    status: int = 0
    ms: float | UnsetType = UNSET
    peer: str | None = None
    trace_id: str | UnsetType = UNSET
    span_id: str | UnsetType = UNSET


class TurnLine(LogLine, kw_only=True, gc=False):
    """A turn, from its begin in this process to its end, its pause, or the end of the process. The numbers of tokens are those
    that the backend has reported."""

    event: str = "turn"
    agent: str
    context: str
    task: str
    turn: str
    principal: str
    outcome: str
    ms: float
    input_tokens: int | UnsetType = UNSET
    cached_tokens: int | UnsetType = UNSET
    output_tokens: int | UnsetType = UNSET
    reasoning_tokens: int | UnsetType = UNSET
    total_tokens: int | UnsetType = UNSET
    trace_id: str | UnsetType = UNSET
    span_id: str | UnsetType = UNSET


class Actor(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who does something. `key` is the part of an API key that is shown, `peer` the address of the other end."""

    principal: str = ""
    tenant: str = ""
    key: str = ""
    peer: str = ""


class Target(msgspec.Struct, frozen=True, omit_defaults=True):
    """What it is done to: ids as callers know them, and names of the configuration. `principal` is that
    of the context or the key; `tenant` and `admin` are those of a key that is made."""

    agent: str = ""
    context: str = ""
    task: str = ""
    message: str = ""
    push: str = ""
    key: str = ""
    config: str = ""
    principal: str = ""
    tenant: str = ""
    admin: bool = False


class AuditEntry(msgspec.Struct, frozen=True):
    """Something that somebody has done, or was refused. `outcome` is `done` or the reason."""

    action: str
    actor: Actor
    target: Target = Target()
    outcome: str = "done"


class Observer:
    """Hears of everything, and here does nothing with it. Times are seconds. Agents, tools and backends are named as the
    configuration names them."""

    __slots__ = ()

    audits = False
    """Whether entries for an audit log are wanted: making one is not free."""

    traces = False
    """Whether spans are wanted: making one is not free."""

    contents = False
    """Whether spans are to have what was said."""

    def audited(self, entry: AuditEntry) -> None:
        """Something that an audit log has a line for."""

    # --- what is asked of the gateway

    def request_ended(self, line: RequestLine) -> None:
        """Nobody changes the line any more."""

    def key_refused(self, reason: str) -> None:
        """A credential was not valid: `several`, `malformed`, `unknown`, or what is wrong with the key."""

    # --- turns

    def turn_showed(self, agent: str, seconds: float) -> None:
        """A turn shows its first output, so long after it began here."""

    def turn_ended(self, line: TurnLine) -> None:
        """Nobody changes the line any more."""

    def call_answered(self, agent: str, seconds: float) -> None:
        """The first of an answer has come from the backend."""

    def call_ended(self, agent: str, outcome: str, seconds: float) -> None:
        """A try of a service call: `completed`, `cancelled`, or the class of its error."""

    def call_repeated(self, agent: str, failure: str) -> None:
        """Another try follows a failed one."""

    def handle_lost(self, agent: str, *, rebuilt: bool) -> None:
        """The backend has forgotten a conversation, which was told to it again or not."""

    def tool_ended(self, agent: str, tool: str, outcome: str, seconds: float) -> None:
        """A tool that the gateway ran. The outcome is a state of tool calls."""

    # --- the ledger and what is owed

    def group_committed(self, units: int, failed: int, seconds: float) -> None:
        """The ledger has written a group of units, of which some were refused or lost."""

    def pushed(self, outcome: str, seconds: float) -> None:
        """One post of a push notification: `delivered`, `failed` or `unwanted`."""

    def loop_lagged(self, seconds: float) -> None:
        """The event loop came back to a task so late."""

    # --- traces

    def samples(self, trace_id: str, caller: TraceContext | None) -> bool:
        """Whether the spans of this trace are wanted, of which the caller's span is the parent. All processes say the same."""
        return False

    def spanned(self, span: Span) -> None:
        """Something has ended that took time. Only told of traces whose spans are wanted."""

    # --- what is read when it is asked for

    def watch(self, name: str, help: str, read: Reading, *labels: str) -> None:  # noqa: A002 - the word of Prometheus
        """`read` tells what there is at a moment, such as the number of open streams."""


SILENT = Observer()


class Observers(Observer):
    """Several, each of which hears everything."""

    __slots__ = ("_all", "audits", "contents", "traces")

    def __init__(self, *observers: Observer) -> None:
        self._all = observers
        self.audits = any(one.audits for one in observers)
        self.traces = any(one.traces for one in observers)
        self.contents = any(one.contents for one in observers)

    def audited(self, entry: AuditEntry) -> None:
        for one in self._all:
            one.audited(entry)

    def request_ended(self, line: RequestLine) -> None:
        for one in self._all:
            one.request_ended(line)

    def key_refused(self, reason: str) -> None:
        for one in self._all:
            one.key_refused(reason)

    def turn_showed(self, agent: str, seconds: float) -> None:
        for one in self._all:
            one.turn_showed(agent, seconds)

    def turn_ended(self, line: TurnLine) -> None:
        for one in self._all:
            one.turn_ended(line)

    def call_answered(self, agent: str, seconds: float) -> None:
        for one in self._all:
            one.call_answered(agent, seconds)

    def call_ended(self, agent: str, outcome: str, seconds: float) -> None:
        for one in self._all:
            one.call_ended(agent, outcome, seconds)

    def call_repeated(self, agent: str, failure: str) -> None:
        for one in self._all:
            one.call_repeated(agent, failure)

    def handle_lost(self, agent: str, *, rebuilt: bool) -> None:
        for one in self._all:
            one.handle_lost(agent, rebuilt=rebuilt)

    def tool_ended(self, agent: str, tool: str, outcome: str, seconds: float) -> None:
        for one in self._all:
            one.tool_ended(agent, tool, outcome, seconds)

    def group_committed(self, units: int, failed: int, seconds: float) -> None:
        for one in self._all:
            one.group_committed(units, failed, seconds)

    def pushed(self, outcome: str, seconds: float) -> None:
        for one in self._all:
            one.pushed(outcome, seconds)

    def loop_lagged(self, seconds: float) -> None:
        for one in self._all:
            one.loop_lagged(seconds)

    def samples(self, trace_id: str, caller: TraceContext | None) -> bool:
        return any(one.samples(trace_id, caller) for one in self._all)

    def spanned(self, span: Span) -> None:
        for one in self._all:
            one.spanned(span)

    def watch(self, name: str, help: str, read: Reading, *labels: str) -> None:  # noqa: A002
        for one in self._all:
            one.watch(name, help, read, *labels)
