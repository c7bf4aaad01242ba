"""Texts that were cut between the two UTF-16 units of a character."""

import json
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from adapters.http.half_characters import HalfCharacters, with_whole_characters
from adapters.http.named_events import NamedEventReader
from adapters.http.sse import EventReader

TEXTS = some.text(some.one_of(some.sampled_from('a\\"\n{:}é😀🎉\ufffd'), some.characters(codec="utf-8")), max_size=12)


def units(text: str) -> list[str]:
    """One text for each UTF-16 unit, as JavaScript sees it."""
    raw = text.encode("utf-16-le", "surrogatepass")
    return [raw[place : place + 2].decode("utf-16-le", "surrogatepass") for place in range(0, len(raw), 2)]


def written(text: str, *, escapes: bool) -> bytes:
    """As JSON.stringify of JavaScript writes it, which escapes lone halves only; or as a server that escapes all."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    if escapes:
        return json.dumps(whole).encode()
    shown = (
        json.dumps(each)[1:-1] if 0xD800 <= ord(each) < 0xE000 or each < " " or each in '"\\' else each
        for each in whole
    )
    return f'"{"".join(shown)}"'.encode()


def joined(*events: bytes) -> list[object]:
    halves = HalfCharacters()
    return [msgspec.json.decode(halves.join(event)) for event in events]


@given(TEXTS, some.lists(some.integers(0, 20), max_size=6), some.booleans())
def test_it_makes_no_difference_at_which_unit_a_text_is_cut(text: str, cuts: list[int], escapes: bool) -> None:
    each = units(text)
    places = sorted({0, len(each), *(cut for cut in cuts if cut < len(each))})
    pieces = ["".join(each[begin:end]) for begin, end in pairwise(places)]
    events = [b'{"type":"delta","delta":{"text":%b}}' % written(piece, escapes=escapes) for piece in pieces]
    halves = HalfCharacters()
    found = [msgspec.json.decode(halves.join(event))["delta"]["text"] for event in events]
    assert "".join(found) == text


@pytest.mark.parametrize(
    ("events", "values"),
    [
        ([rb'"a\ud83d"', rb'"\ude00b"'], ["a", "\U0001f600b"]),
        ([rb'"a\uD83D"', rb'"\uDE00b"'], ["a", "\U0001f600b"]),
        ([rb'"a\ud83d"', b'{"type":"ping"}', rb'"\ude00b"'], ["a", {"type": "ping"}, "\U0001f600b"]),
        ([rb'"\ud83d"', rb'"\ude00\ud83c"', rb'"\udf89"'], ["", "\U0001f600", "\U0001f389"]),
        ([rb'["\ud83d","\ud83c"]', rb'["\ude00","\udf89"]'], [["", ""], ["\U0001f600", "\U0001f389"]]),
        (
            [rb'{"a":"1\ud83d","b":"2\ud83c"}', rb'{"b" : "\udf89", "a" : "\ude00"}'],
            [{"a": "1", "b": "2"}, {"b": "\U0001f389", "a": "\U0001f600"}],
        ),
    ],
    ids=["one", "capitals", "an event between", "alone", "in a list", "by name"],
)
def test_a_half_is_joined_with_the_half_that_it_lacks(events: Sequence[bytes], values: list[object]) -> None:
    assert joined(*events) == values


@pytest.mark.parametrize(
    ("events", "values"),
    [
        ([rb'"\ude00b"'], ["\ufffdb"]),
        ([rb'"a\ud83db"'], ["a\ufffdb"]),
        ([rb'"a\ude00"'], ["a\ufffd"]),
        ([rb'"a\ud83d\ud83d"', rb'"\ude00"'], ["a\ufffd", "\U0001f600"]),
        ([rb'"a\ud83d"', rb'"\ude00"', rb'"\ude00"'], ["a", "\U0001f600", "\ufffd"]),
        ([rb'{"a":"\ud83d"}', rb'{"b":"\ude00"}'], [{"a": ""}, {"b": "\ufffd"}]),
        ([rb'{"\ud83d":"\ude00"}'], [{"\ufffd": "\ufffd"}]),
        ([rb'"a\ud83d"', b'"b"'], ["a", "b"]),
        ([rb'"a\ud83d"', b'"a\xf0\x9f\x98\x80 b"'], ["a", "a\U0001f600 b"]),
    ],
    ids=["low", "in the middle", "low at the end", "two", "twice", "another name", "a name", "never", "all so far"],
)
def test_a_half_without_its_other_is_replaced_or_left_out(events: Sequence[bytes], values: list[object]) -> None:
    assert joined(*events) == values


@pytest.mark.parametrize(
    "event",
    [
        rb'"\\ud83d"',
        rb'"\ud83d\ude00"',
        rb'"\\\\ud83d\\ude00"',
        b"[DONE]",
        rb'"\u00e9\ud7ff\ue000"',
        rb'"\\\ud83d\ude00"',
    ],
)
def test_what_has_no_half_stays_as_it_is(event: bytes) -> None:
    assert HalfCharacters().join(event) == event
    assert with_whole_characters(event) == event


def test_only_the_latest_names_wait() -> None:
    halves = HalfCharacters()
    for number in range(100):
        halves.join(rb'{"n%d":"\ud83d"}' % number)
    assert halves.join(rb'{"n0":"\ude00"}') == rb'{"n0":"\ufffd"}'
    assert halves.join(rb'{"n99":"\ude00"}') == rb'{"n99":"\ud83d\ude00"}'


@pytest.mark.parametrize(
    ("document", "value"),
    [(rb'["a\ud83d","\ude00"]', ["a\ufffd", "\ufffd"]), (rb'"\ud83d\ude00"', "\U0001f600"), (rb'"\\ud83d"', "\\ud83d")],
)
def test_a_document_has_whole_characters(document: bytes, value: object) -> None:
    assert msgspec.json.decode(with_whole_characters(document)) == value


WIRE = (
    b'event: x\ndata: {"text":"a\\ud83d"}\n\nevent: x\ndata: {"text":"\\ude00b"}\n\nevent: x\ndata: {"text":"c\\ud83d"}'
)
WHOLE = [b'{"text":"a"}', b'{"text":"\\ud83d\\ude00b"}', b'{"text":"c"}']


def test_the_data_of_events_have_whole_characters_wherever_the_stream_is_cut() -> None:
    for cut in range(1, len(WIRE)):
        reader = EventReader()
        assert [*reader.feed(WIRE[:cut]), *reader.feed(WIRE[cut:]), reader.finish()] == WHOLE


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_the_data_of_named_events_have_whole_characters_wherever_the_stream_is_cut(end: bytes) -> None:
    wire = b": hello\n\n" + WIRE.replace(b"\n", end)
    for cut in range(1, len(wire)):
        reader = NamedEventReader()
        found = [*reader.feed(wire[:cut]), *reader.feed(wire[cut:]), reader.finish()]
        assert [event.data for event in found if event is not None] == WHOLE
