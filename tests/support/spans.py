"""An observer that keeps the spans that it is told."""

from typing import TypeVar

from gateway.foundation.trace import TraceContext
from gateway.ports.observer import Observer
from gateway.ports.spans import Span

S = TypeVar("S", bound=Span)

CALLER = TraceContext("a" * 32, "b" * 16)


class SpanLog(Observer):
    """`wanted` says whether traces are sampled."""

    traces = True

    def __init__(self, *, contents: bool = False, wanted: bool = True) -> None:
        self.contents = contents
        self.wanted = wanted
        self.spans: list[Span] = []
        self.asked: list[tuple[str, TraceContext | None]] = []

    def samples(self, trace_id: str, caller: TraceContext | None) -> bool:
        self.asked.append((trace_id, caller))
        return self.wanted

    def spanned(self, span: Span) -> None:
        self.spans.append(span)

    def of(self, kind: type[S]) -> list[S]:
        return [span for span in self.spans if isinstance(span, kind)]
