"""The current context of OpenTelemetry for code of the operator: what it traces itself is a part of the call that it serves.
Law: the SDK is not needed for it."""

from opentelemetry import context as contexts
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState, set_span_in_context

from gateway.foundation.trace import TraceContext


def span_context(place: TraceContext, *, remote: bool) -> SpanContext:
    """`remote`: the span is that of another process, such as the caller's."""
    return SpanContext(
        trace_id=int(place.trace_id, 16),
        span_id=int(place.span_id, 16),
        is_remote=remote,
        trace_flags=TraceFlags(place.flags),
        trace_state=TraceState.from_header([place.state]) if place.state else TraceState(),
    )


def context_of(place: TraceContext, *, remote: bool) -> contexts.Context:
    return set_span_in_context(NonRecordingSpan(span_context(place, remote=remote)), contexts.Context())


def attach(place: TraceContext) -> None:
    """What this task does from now on is a part of the span."""
    contexts.attach(context_of(place, remote=True))
