"""Server-sent events with names and ids, out of any stream of bytes."""

from itertools import pairwise

import pytest

from adapters.http.named_events import NamedEventReader, ServerEvent
from adapters.http.sse import EVENT_LIMIT, STREAM_LIMIT, StreamTooLarge


def event(data: bytes, name: str = "message", event_id: str = "") -> ServerEvent:
    return ServerEvent(name, event_id, data)


class TestNamedEventReader:
    """Bytes -> events."""

    @pytest.mark.parametrize(
        ("wire", "expected"),
        [
            pytest.param(b"event: x\nid: 7\ndata: 1\n\n", [event(b"1", "x", "7")], id="name, id and data"),
            pytest.param(b"data: 1\nid: 7\nevent: x\n\n", [event(b"1", "x", "7")], id="in any order"),
            pytest.param(
                b"event: x\r\nid: 7\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n",
                [event(b"1", "x", "7"), event(b"2", "message", "7")],
                id="CRLF",
            ),
            pytest.param(b"event: x\rdata: 1\r\rdata: 2\r\r", [event(b"1", "x"), event(b"2")], id="CR"),
            pytest.param(
                b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n",
                [event(b"a", "message", "1"), event(b"b", "message", "1"), event(b"c")],
                id="an id holds until the next",
            ),
            pytest.param(b"id: 1\n\ndata: a\n\n", [event(b"a", "message", "1")], id="an id without an event"),
            pytest.param(b"id: 1\ndata: a\nid: 2\0\n\n", [event(b"a", "message", "1")], id="an id with NUL"),
            pytest.param(
                b"event: x\n\ndata: 1\n\nevent: y\nevent: z\ndata: 2\n\n",
                [event(b"1"), event(b"2", "z")],
                id="a name is for one event",
            ),
            pytest.param(
                b"event: end\ndata\n\nevent: done\ndata:\n\n", [event(b"", "end"), event(b"", "done")], id="empty"
            ),
            pytest.param(b"event: x\n\nid: 1\n\nretry: 3\n\n: ping\n\n", [], id="no data"),
            pytest.param(b"data: [1,\ndata: 2]\n\n", [event(b"[1,\n2]")], id="data of several lines"),
            pytest.param(b"event:x\ndata:  2\n\n", [event(b" 2", "x")], id="one space belongs to the field"),
            pytest.param(b"datax: 1\nother\n:data: 2\ndata: 3\n\n", [event(b"3")], id="unknown fields and comments"),
            pytest.param(b"\xef\xbb\xbfevent: x\ndata: 1\n\n", [event(b"1", "x")], id="BOM"),
            pytest.param(
                b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n", [event(b"1")], id="BOM where the stream does not begin"
            ),
            pytest.param(
                "event: é\ndata: \u2028🌍\n\n".encode(), [event("\u2028🌍".encode(), "é")], id="several bytes"
            ),
            pytest.param(
                b"event: a\r\ndata: 1\r\nid: 1\r\n\r\nevent: b\r\ndata: 2\r\n\r\nevent: c\r\ndata: 3\r\nid: 3\r\n\r\n",
                [event(b"1", "a", "1"), event(b"2", "b", "1"), event(b"3", "c", "3")],
                id="events of the most frequent form",
            ),
            pytest.param(
                b"event: a\ndata: 1\n\nevent: b\ndata: 2\rdata: 3\n\nevent: c\ndata: 4\nid: 4\r\n\n",
                [event(b"1", "a"), event(b"2\n3", "b"), event(b"4", "c", "4")],
                id="other line ends inside of an event",
            ),
            pytest.param(
                b"event: a\ndata: 1\n\nevent: b\ndata: 2\nid: 2\0\n\nevent: c\ndata: 3\nretry: 1\n\nevent: d\nid: 4\n\n",
                [event(b"1", "a"), event(b"2", "b"), event(b"3", "c")],
                id="other lines behind the data",
            ),
        ],
    )
    def test_it_makes_no_difference_where_the_stream_is_cut(self, wire: bytes, expected: list[ServerEvent]) -> None:
        def read(cuts: list[int]) -> list[ServerEvent]:
            reader = NamedEventReader()
            pieces = [wire[start:end] for start, end in pairwise([0, *cuts, len(wire)])]
            return [found for piece in pieces if piece for found in reader.feed(piece)]

        assert read([]) == expected
        assert read(list(range(1, len(wire)))) == expected
        for cut in range(1, len(wire)):
            assert read([cut]) == expected, wire[:cut]

    def test_what_one_read_completes_comes_at_once(self) -> None:
        reader = NamedEventReader()
        assert reader.feed(b"data: 1\n\nevent: x\ndata: 2\n\nda") == [event(b"1"), event(b"2", "x")]
        assert reader.feed(b"ta: 3\n") == []
        assert reader.feed(b"\ndata: 4\r") == [event(b"3")]
        assert reader.feed(b"\r") == [event(b"4")]

    @pytest.mark.parametrize(
        ("rest", "last"),
        [
            (b"", None),
            (b"\n", None),
            (b'event: x\ndata: {"a":1}', event(b'{"a":1}', "x", "1")),
            (b'data: {"a":1}\nid: 2\n', event(b'{"a":1}', "message", "2")),
            (b"event: done\ndata: [DONE]", event(b"[DONE]", "done", "1")),
            (b'data: {"a":{"b":1}', None),
            (b"data: {}\ndat", event(b"{}", "message", "1")),
        ],
    )
    def test_the_empty_line_after_the_last_event_may_be_missing(self, rest: bytes, last: ServerEvent | None) -> None:
        reader = NamedEventReader()
        assert reader.feed(b"id: 1\ndata: 1\n\n" + rest) == [event(b"1", "message", "1")]
        assert reader.finish() == last

    def test_an_event_may_be_large_but_not_without_end(self) -> None:
        piece = b"x" * 1024 * 1024
        reader = NamedEventReader()
        reader.feed(b"data: ")
        for _ in range(8):
            reader.feed(piece)
        [found] = reader.feed(b"\n\n")
        assert len(found.data) == 8 * len(piece)
        with pytest.raises(StreamTooLarge):  # noqa: PT012
            for _ in range(EVENT_LIMIT // len(piece) + 1):
                reader.feed(piece)

    def test_an_event_of_many_lines_is_not_endless_either(self) -> None:
        lines = b"data: %s\n" % (b"x" * 1000) * 1000
        reader = NamedEventReader()
        with pytest.raises(StreamTooLarge):  # noqa: PT012
            for _ in range(EVENT_LIMIT // 1_000_000 + 1):
                assert reader.feed(lines) == []

    def test_a_stream_of_small_events_is_not_endless_either(self) -> None:
        events = (b": %s\n\n" % (b"x" * 1000)) * 1000
        reader = NamedEventReader()
        with pytest.raises(StreamTooLarge):  # noqa: PT012
            for _ in range(STREAM_LIMIT // len(events) + 1):
                assert reader.feed(events) == []
