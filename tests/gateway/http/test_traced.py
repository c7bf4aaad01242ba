"""The span of a request, and whose trace it is a part of."""

import pytest

from gateway.a2a.model import Wire
from gateway.a2a.wire.dialect import Method
from gateway.core.turn_trace import locate
from gateway.foundation import trace
from gateway.foundation.clock import Clock
from gateway.http.auth import Identity
from gateway.http.traced import TracedRequest
from gateway.ledger.threads import Caller
from gateway.ports.observer import RequestLine
from gateway.ports.spans import RequestSpan
from tests.support.spans import CALLER, SpanLog

ANYONE = Identity(Caller("anonymous"), admin=True)
ADA = Identity(Caller("ada"), key=b"k")
HEADERS = ((b"traceparent", CALLER.traceparent.encode()),)
SEND, GET = (Method(name, name, Wire) for name in ("SendMessage", "GetTask"))
FAR, HERE = "203.0.113.7", "127.0.0.1"


def admitted(
    log: SpanLog,
    *,
    method: Method = SEND,
    headers: tuple[tuple[bytes, bytes], ...] = HEADERS,
    identity: Identity = ANYONE,
    peer: str = HERE,
    continues: bool = True,
) -> tuple[str | None, RequestSpan | None]:
    """What is stored with a turn, and the span of the request."""
    traced, line = TracedRequest(log, 1000, "request-1"), RequestLine()
    stored = traced.admit(method, headers, identity, peer, line, continues=continues)
    traced.end(line, 2000)
    spans = log.of(RequestSpan)
    if spans:
        assert (line.trace_id, line.span_id) == (spans[0].place.trace_id, spans[0].place.span_id)
    return stored, spans[0] if spans else None


@pytest.mark.parametrize(("identity", "peer"), [(ANYONE, HERE), (ADA, FAR)])
def test_the_trace_of_a_caller_with_a_key_or_on_this_machine_goes_on(identity: Identity, peer: str) -> None:
    stored, span = admitted(SpanLog(), identity=identity, peer=peer)
    assert (stored, span and span.parent) == (CALLER.text, CALLER.span_id)
    assert span is not None
    assert (span.place.trace_id, span.links, span.began, span.ended) == (CALLER.trace_id, (), 1000, 2000)


@pytest.mark.parametrize(("peer", "continues"), [(FAR, True), ("", True), (HERE, False)])
def test_the_trace_of_any_other_caller_is_linked(peer: str, continues: bool) -> None:
    stored, span = admitted(SpanLog(), peer=peer, continues=continues)
    assert stored is None
    assert span is not None
    assert (span.place.trace_id, span.parent, span.links) == (trace.trace_id("request-1"), "", (CALLER,))


def test_a_read_has_a_span_in_the_trace_of_its_caller_alone() -> None:
    assert admitted(SpanLog(), method=GET, headers=()) == (None, None)
    assert admitted(SpanLog(), method=GET)[1] is not None
    stored, span = admitted(SpanLog(), headers=())
    assert (stored, span is None) == (None, False)


def test_a_stranger_does_not_decide_what_is_wanted() -> None:
    log = SpanLog(wanted=False)
    assert admitted(log, peer=FAR) == (None, None)
    assert log.asked == [(trace.trace_id("request-1"), None)]


def test_a_refused_request_says_why() -> None:
    log, line = SpanLog(), RequestLine()
    traced = TracedRequest(log, 1, "request-1")
    traced.admit(SEND, HEADERS, ADA, FAR, line, continues=True)
    line.error = "BUSY"
    traced.end(line, 2)
    assert [span.failure for span in log.of(RequestSpan)] == ["BUSY"]


def test_a_request_that_was_never_admitted_has_no_span() -> None:
    log = SpanLog()
    TracedRequest(log, 1, Clock().row_id()).end(RequestLine(), 2)
    assert log.spans == []


def test_the_place_of_a_turn_follows_from_what_is_stored() -> None:
    log = SpanLog()
    stored, span = admitted(log)
    assert span is not None
    assert locate("turn-1", stored, log.samples)[0].trace_id == span.place.trace_id
