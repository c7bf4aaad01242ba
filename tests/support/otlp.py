"""A receiver of traces on loopback: OTLP over HTTP, as a collector takes it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Status
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from gateway.testing.serving import serve

_BOUND = 60.0


@dataclass(frozen=True, slots=True)
class Received:
    """A span as it came. Ids are in hexadecimal, `parent` is empty where there is none, `links` are trace and span ids."""

    name: str
    kind: int
    trace_id: str
    span_id: str
    parent: str
    began: int
    ended: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]
    links: tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Receiver:
    """`url` is its address, `spans` are in the order in which they came."""

    url: str = ""
    spans: list[Received] = field(default_factory=list)
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    async def take(self, request: Request) -> Response:
        sent = ExportTraceServiceRequest.FromString(await request.body())
        for of_resource in sent.resource_spans:
            resource = _values(of_resource.resource.attributes)
            for of_scope in of_resource.scope_spans:
                self.spans += [_received(span, resource) for span in of_scope.spans]
        self._came.set()
        answer = ExportTraceServiceResponse().SerializeToString()
        return Response(answer, media_type="application/x-protobuf")

    async def until(self, holds: Callable[[list[Received]], object]) -> list[Received]:
        """The spans, once they are as they must be."""
        async with asyncio.timeout(_BOUND):
            while not holds(self.spans):
                self._came.clear()
                await self._came.wait()
        return self.spans

    def named(self, name: str) -> list[Received]:
        return [span for span in self.spans if span.name == name]


@asynccontextmanager
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    async with serve(Starlette(routes=[Route("/v1/traces", made.take, methods=["POST"])])) as url:
        made.url = url
        yield made


def orphans(spans: list[Received], *known: str) -> list[str]:
    """The names of the spans whose parent has not come, and is none of those that are `known`."""
    ids = {(span.trace_id, span.span_id) for span in spans}
    return [
        span.name
        for span in spans
        if span.parent and span.parent not in known and (span.trace_id, span.parent) not in ids
    ]


def _received(span: Any, resource: dict[str, Any]) -> Received:
    return Received(
        span.name,
        span.kind,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code == Status.STATUS_CODE_ERROR,
        _values(span.attributes),
        resource,
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}
