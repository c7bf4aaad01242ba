"""Spans to a receiver of OTLP/HTTP. Law: the environment variables of OpenTelemetry say where, how many and how often; a
receiver that is away costs spans and nothing else.

Source: OpenTelemetry, "Environment Variable Specification"; opentelemetry-sdk, which reads them.
"""

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_SCHEDULE_DELAY,
    OTEL_SDK_DISABLED,
    OTEL_SERVICE_NAME,
)
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

from gateway.foundation.trace import TraceContext
from gateway.ports.observer import Observer
from gateway.ports.spans import CallSpan, PushSpan, RequestSpan, Span, ToolSpan, TrySpan, TurnSpan
from gateway.telemetry.gateway_version import gateway_version
from gateway.telemetry.otel.attributes import attributes_of, name_of
from gateway.telemetry.otel.current import context_of, span_context

log = structlog.get_logger("gateway.telemetry.otel")

_BATCH, _DELAY = 64, 1000
"""Spans that are sent at once, and milliseconds for which the first of them waits, where the environment says nothing. Encoding
a batch holds the interpreter, and what is not sent yet is lost with the process."""

_LAST_SECONDS = 5.0
"""For the spans that are left when the process ends."""

_SERVICE = "a2a-gateway"

_KINDS: Mapping[type[Span], SpanKind] = {
    TurnSpan: SpanKind.INTERNAL,
    CallSpan: SpanKind.CLIENT,
    TrySpan: SpanKind.CLIENT,
    ToolSpan: SpanKind.INTERNAL,
    PushSpan: SpanKind.CLIENT,
    RequestSpan: SpanKind.SERVER,
}


class Traces(Observer):
    """With `contents`, spans have what was said."""

    traces = True

    def __init__(self, *, contents: bool = False) -> None:
        self.contents = contents
        named = {SERVICE_VERSION: gateway_version()}
        if OTEL_SERVICE_NAME not in os.environ and "service.name=" not in os.environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        ):
            named[SERVICE_NAME] = _SERVICE
        provider = TracerProvider(resource=Resource.create(named), shutdown_on_exit=False)
        self._sampler, self._resource = provider.sampler, provider.resource
        self._disabled = os.environ.get(OTEL_SDK_DISABLED, "").strip().lower() == "true"
        self._scope = InstrumentationScope(_SERVICE, gateway_version())
        self._processor = BatchSpanProcessor(
            OTLPSpanExporter(),
            # None: as the environment says.
            schedule_delay_millis=None if OTEL_BSP_SCHEDULE_DELAY in os.environ else _DELAY,
            max_export_batch_size=None if OTEL_BSP_MAX_EXPORT_BATCH_SIZE in os.environ else _BATCH,
        )

    def samples(self, trace_id: str, caller: TraceContext | None) -> bool:
        if self._disabled:
            return False
        parent = None if caller is None else context_of(caller, remote=True)
        found = self._sampler.should_sample(parent, int(trace_id, 16), "", SpanKind.INTERNAL)
        return found.decision is Decision.RECORD_AND_SAMPLE

    def spanned(self, span: Span) -> None:
        self._processor.on_end(self._readable(span))

    def _readable(self, span: Span) -> ReadableSpan:
        place, parent = span.place, None
        if span.parent:
            parent = span_context(place.beside(span.parent, sampled=place.sampled), remote=False)
        return ReadableSpan(
            name=name_of(span),
            context=span_context(place, remote=False),
            parent=parent,
            resource=self._resource,
            attributes=attributes_of(span),
            kind=_KINDS[type(span)],
            links=[Link(span_context(link, remote=True)) for link in span.links]
            if isinstance(span, RequestSpan)
            else (),
            status=Status(StatusCode.ERROR) if span.failure else Status(StatusCode.UNSET),
            start_time=span.began * 1_000_000,
            end_time=max(span.began, span.ended) * 1_000_000,
            instrumentation_scope=self._scope,
        )

    def close(self) -> None:
        """Sends what is left. Returns when that is done, or given up."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]


@asynccontextmanager
async def traces(*, contents: bool) -> AsyncIterator[Traces]:
    """Spans are taken while the block runs. Raises: ValueError for environment variables that cannot work."""
    made = Traces(contents=contents)
    try:
        yield made
    finally:
        # A daemon, because the SDK may wait for its receiver for longer.
        closing = threading.Thread(target=made.close, name="otel-close", daemon=True)
        closing.start()
        await asyncio.to_thread(closing.join, _LAST_SECONDS)
        if closing.is_alive():
            log.warning("traces.not-sent", seconds=_LAST_SECONDS)
