"""The span of a request, from its arrival to the end of its answer or stream. Law: a caller that nobody vouches for begins no
trace here and prolongs none: its own is linked."""

from collections.abc import Awaitable, Callable
from typing import Any

from gateway.a2a.wire.dialect import CHANGES, Method
from gateway.core.turn_trace import locate
from gateway.engine.turn_run import TurnRun
from gateway.foundation import trace
from gateway.foundation.addresses import is_loopback
from gateway.foundation.trace import TraceContext
from gateway.http.audited import target_of
from gateway.http.auth import Identity
from gateway.http.reply import Headers
from gateway.operations.call import OperationCall
from gateway.ports.observer import Observer, RequestLine, Target
from gateway.ports.spans import RequestSpan


class TracedRequest:
    """`began` is in milliseconds since 1970, `id` as of a row of the ledger."""

    __slots__ = ("_began", "_id", "_links", "_observer", "_operation", "_parent", "_place", "_target")

    def __init__(self, observer: Observer, began: int, id_: str) -> None:
        self._observer, self._began, self._id = observer, began, id_
        self._place: TraceContext | None = None
        self._parent = self._operation = ""
        self._links: list[TraceContext] = []
        self._target = Target()

    def admit(
        self, method: Method, headers: Headers, identity: Identity, peer: str, line: RequestLine, *, continues: bool
    ) -> str | None:
        """The caller's trace, as it is stored with a turn; None where that is not to be prolonged. `continues`: it may be."""
        caller = trace.of_headers(headers)
        trusted = continues and (identity.key is not None or is_loopback(peer))
        if caller is None and method.operation not in CHANGES:  # a read has a span only in the trace of a caller
            return None
        parent = caller if trusted else None
        here, self._operation = trace.span_id(self._id), method.operation
        if parent is not None:
            sampled = self._observer.samples(parent.trace_id, parent)
            self._place, self._parent = parent.beside(here, sampled=sampled), parent.span_id
        else:
            trace_id = trace.trace_id(self._id)
            sampled = self._observer.samples(trace_id, None)
            self._place = TraceContext(trace_id, here).beside(here, sampled=sampled)
            if caller is not None:
                self._links.append(caller)
        line.trace_id, line.span_id = self._place.trace_id, here
        return None if parent is None else parent.text

    def performing(
        self, perform: Callable[[OperationCall, Any], Awaitable[Any]]
    ) -> Callable[[OperationCall, Any], Awaitable[Any]]:
        """The operation, of which this learns what it is about."""

        async def performed(call: OperationCall, request: Any) -> Any:
            self._target = target_of(call.agent.name, request)
            result = await perform(call, request)
            self._note(target_of(call.agent.name, request, result))
            return result

        return performed

    def brought(self, run: TurnRun) -> None:
        """The request has brought this turn, or has answered it."""
        self._links.append(locate(run.turn, run.trace, self._observer.samples)[0])
        self._note(Target(self._target.agent, run.live.context_id, run.live.id, self._target.message))

    def _note(self, found: Target) -> None:
        task, context = found.task or self._target.task, found.context or self._target.context
        self._target = Target(found.agent, context, task, found.message or self._target.message)

    def end(self, line: RequestLine, now: int) -> None:
        """The answer has ended."""
        if self._place is None or not self._place.sampled:
            return
        told, about = line.error, self._target
        self._observer.spanned(
            RequestSpan(
                place=self._place,
                parent=self._parent,
                began=self._began,
                ended=now,
                failure=told if isinstance(told, str) else "",
                operation=self._operation,
                agent=about.agent,
                task=about.task,
                context=about.context,
                message=about.message,
                links=tuple(self._links),
            )
        )
