"""Spans on their way to a receiver of OTLP."""

import pytest
import structlog
from msgspec.structs import replace
from opentelemetry.trace import SpanKind

from gateway.foundation.trace import TraceContext
from gateway.ports.observer import Observers
from gateway.ports.spans import CallSpan, RequestSpan
from gateway.telemetry.otel import traces as module
from gateway.telemetry.otel.traces import traces
from tests.support.otlp import receiver
from tests.support.ports import free_port
from tests.support.spans import CALLER, SpanLog

CALL = CallSpan(
    place=CALLER,
    parent="c" * 16,
    began=1000,
    ended=3000,
    failure="unreachable",
    agent="a",
    context="c",
    round=0,
    attempts=1,
)
REQUEST = RequestSpan(
    place=CALLER,
    began=5,
    ended=4,
    operation="GetTask",
    agent="a",
    links=(TraceContext("d" * 32, "e" * 16, state="x=1"),),
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"):
        monkeypatch.delenv(name, raising=False)


async def test_a_span_comes_with_its_own_ids_and_times(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        async with traces(contents=False) as made:
            made.spanned(CALL)
            made.spanned(REQUEST)
        call, request = received.spans
    assert (call.name, call.trace_id, call.span_id, call.parent) == ("chat", "a" * 32, "b" * 16, "c" * 16)
    assert (call.began, call.ended, call.failed) == (1_000_000_000, 3_000_000_000, True)
    assert call.attributes["error.type"] == "unreachable"
    # The numbers of the protocol are one higher.
    assert (call.kind, request.kind) == (SpanKind.CLIENT.value + 1, SpanKind.SERVER.value + 1)
    assert (request.parent, request.failed, request.links) == ("", False, (("d" * 32, "e" * 16),))
    assert request.began == request.ended
    assert call.resource["service.name"] == "a2a-gateway"


async def test_the_environment_says_who_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    async with receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        async with traces(contents=False) as made:
            made.spanned(CALL)
        [span] = received.spans
    assert span.resource["service.name"] == "ours"
    assert span.resource["deployment.environment.name"] == "test"


async def test_spans_do_not_wait_long(monkeypatch: pytest.MonkeyPatch) -> None:
    async with receiver() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        async with traces(contents=False) as made:
            made.spanned(CALL)
            await received.until(lambda spans: spans)


async def test_the_sampler_of_the_environment_decides_by_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", "0.5")
    async with traces(contents=False) as made:
        low, high = "0" * 15 + "1" + "0" * 16, "f" * 32
        assert (made.samples(low, None), made.samples(high, None)) == (True, False)
        assert made.samples(high, replace(CALLER, trace_id=high))
        assert not made.samples(low, replace(CALLER, trace_id=low, flags=0))


async def test_everything_is_wanted_where_nothing_else_is_said() -> None:
    async with traces(contents=True) as made:
        assert (made.traces, made.contents) == (True, True)
        assert made.samples("f" * 32, None)


async def test_a_receiver_that_is_away_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setattr(module, "_LAST_SECONDS", 0.0)
    with structlog.testing.capture_logs() as lines:
        async with traces(contents=False) as made:
            made.spanned(CALL)
    assert [line["event"] for line in lines if line["event"] == "traces.not-sent"] == ["traces.not-sent"]


def test_several_observers_want_what_one_of_them_wants() -> None:
    log, unwanted = SpanLog(contents=True), SpanLog(wanted=False)
    observers = Observers(unwanted, log)
    assert (observers.traces, observers.contents, observers.samples("f" * 32, None)) == (True, True, True)
    observers.spanned(CALL)
    assert log.spans == [CALL]
