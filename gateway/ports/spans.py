"""What is told of work that took time, for traces. Law: a span is told once, when it has ended and that is stored; its ids are
derived from ids of the ledger, so that another process may tell it in the place of one that died.

Source: OpenTelemetry, semantic conventions for generative AI, for the kinds of spans.
"""

from typing import TypeAlias

import msgspec

from gateway.a2a.model import Json
from gateway.foundation.trace import TraceContext
from gateway.ports.capabilities import Backend, Model


class Tokens(msgspec.Struct, frozen=True):
    """None for a number that was not reported. The cached ones are among the input tokens, those of reasoning among the output
    tokens."""

    input: int | None = None
    cached: int | None = None
    output: int | None = None
    reasoning: int | None = None


NO_TOKENS = Tokens()


class SpanFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`parent` is the id of the span that it is a part of, empty for the first of its trace. Times are milliseconds since 1970.
    `failure` says why it did not go well, and is empty where it did."""

    place: TraceContext
    parent: str = ""
    began: int
    ended: int
    failure: str = ""


class TurnSpan(SpanFacts, frozen=True, kw_only=True):
    """A turn, from its acceptance to its end. `taken_over`: another process began it. `said` and `answered` are its content,
    where that is asked for."""

    agent: str
    context: str
    task: str
    turn: str
    state: str
    tokens: Tokens = NO_TOKENS
    taken_over: bool = False
    said: Json = None
    answered: Json = None


class CallSpan(SpanFacts, frozen=True, kw_only=True):
    """A service call, from its first try to the end of the last. `first` is the time at which something of the answer came."""

    agent: str
    context: str
    round: int
    attempts: int
    backend: Backend | None = None
    model: Model | None = None
    first: int | None = None
    tokens: Tokens = NO_TOKENS


class TrySpan(SpanFacts, frozen=True, kw_only=True):
    """A failed try of a service call that another one followed."""

    agent: str
    attempt: int
    backend: Backend | None = None


class ToolSpan(SpanFacts, frozen=True, kw_only=True):
    """A tool call that the gateway ran. `source` is the name of the tool's source, `call` the id of the call. `arguments` and
    `result` are its content, where that is asked for."""

    agent: str
    context: str
    tool: str
    call: str
    source: str = ""
    arguments: Json = None
    result: Json = None


class PushSpan(SpanFacts, frozen=True, kw_only=True):
    """A post of a push notification. `status` is that of HTTP, None without an answer."""

    task: str
    config: str
    number: int
    status: int | None = None


class RequestSpan(SpanFacts, frozen=True, kw_only=True):
    """A request, to the end of its answer or stream. `links` are the places to which it belongs as well: that of the turn that
    it has brought, and that of a caller which is not trusted to be its parent."""

    operation: str
    agent: str
    task: str = ""
    context: str = ""
    message: str = ""
    links: tuple[TraceContext, ...] = ()


Span: TypeAlias = TurnSpan | CallSpan | TrySpan | ToolSpan | PushSpan | RequestSpan
