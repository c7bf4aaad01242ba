"""Places in a trace, as W3C Trace Context writes them."""

import asyncio

import pytest

from gateway.foundation import trace
from gateway.foundation.trace import TraceContext, from_text, of_headers, parse

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
PARENT = f"00-{TRACE}-{SPAN}-01"
PLACE = TraceContext(TRACE, SPAN)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE[1:]}-{SPAN}-01",
        f" {PARENT}",
        f"{PARENT}\n",
    ],
)
def test_what_is_no_traceparent_is_none(text: str) -> None:
    assert parse(text) is None


def test_a_later_version_is_read_as_far_as_it_is_known() -> None:
    assert parse(f"01-{TRACE}-{SPAN}-01-what-comes-later") == PLACE
    assert parse(f"cc-{TRACE}-{SPAN}-09") == PLACE


def test_a_place_is_written_as_it_was_read() -> None:
    place = parse(PARENT, "vendor=1,other=x")
    assert place is not None
    assert place.headers() == {"traceparent": PARENT, "tracestate": "vendor=1,other=x"}
    assert from_text(place.text) == place
    assert from_text(PARENT) == PLACE
    assert from_text(None) is None


@pytest.mark.parametrize("state", ["x" * 513, "a=\x00", "a=ä"])
def test_a_state_that_cannot_be_passed_on_is_left_out(state: str) -> None:
    assert parse(PARENT, state) == PLACE


def test_the_callers_place_is_read_from_its_headers() -> None:
    headers = [
        (b"accept", b"*/*"),
        (b"traceparent", f" {PARENT} ".encode()),
        (b"tracestate", b"a=1"),
        (b"tracestate", b"b=2"),
    ]
    assert of_headers(headers) == TraceContext(TRACE, SPAN, state="a=1,b=2")


def test_two_parents_are_none() -> None:
    assert of_headers([(b"traceparent", PARENT.encode())] * 2) is None
    assert of_headers([]) is None


def test_whether_a_trace_is_wanted_stands_in_its_flags() -> None:
    unwanted = PLACE.beside(SPAN, sampled=False)
    assert (PLACE.sampled, unwanted.sampled, unwanted.traceparent[-2:]) == (True, False, "00")
    assert unwanted.beside(SPAN, sampled=True) == PLACE


def test_an_id_follows_from_what_it_stands_for() -> None:
    assert PLACE.child("turn", "call", 1) == PLACE.child("turn", "call", 1)
    assert len({PLACE.child("turn", "call", number).span_id for number in range(20)}) == 20
    assert (len(trace.span_id("a")), len(trace.trace_id("a"))) == (16, 32)
    assert trace.span_id("ab", "c") != trace.span_id("a", "bc")


async def test_what_a_task_begins_belongs_where_the_task_belongs() -> None:
    async def inside() -> TraceContext | None:
        return trace.current()

    assert trace.current_headers() == {}
    token = trace.enter(PLACE)
    async with asyncio.TaskGroup() as group:
        begun = group.create_task(inside())
    trace.leave(token)
    assert (begun.result(), trace.current()) == (PLACE, None)
