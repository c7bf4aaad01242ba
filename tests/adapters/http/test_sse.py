"""Server-sent events out of any stream of bytes."""

from itertools import pairwise

import pytest

from adapters.http.sse import EVENT_LIMIT, STREAM_LIMIT, EventReader, StreamTooLarge


class TestEventReader:
    """Bytes -> data of events."""

    @pytest.mark.parametrize(
        ("wire", "expected"),
        [
            pytest.param(b'data: {"a":1}\n\n', [b'{"a":1}'], id="an event"),
            pytest.param(b'event: x\ndata: {"a":1}\n\ndata: 2\n\n', [b'{"a":1}', b"2"], id="with a name and without"),
            pytest.param(b"data: 1\r\n\r\ndata: 2\r\n\r\n", [b"1", b"2"], id="CRLF"),
            pytest.param(b"data: 1\r\rdata: 2\r\r", [b"1", b"2"], id="CR"),
            pytest.param(b"data: 1\r\n\ndata: 2\n\r\ndata: 3\r\r\n", [b"1", b"2", b"3"], id="line ends mixed"),
            pytest.param(b": ping\n\ndata: 1\n\n: ping\n\n", [b"1"], id="comments"),
            pytest.param(b"data: 1\n: in between\nid: 7\nretry: 3\n\n", [b"1"], id="other fields behind"),
            pytest.param(b"id: 7\nevent: x\ndata: 1\n\n", [b"1"], id="other fields before"),
            pytest.param(b"data: [1,\ndata: 2]\n\n", [b"[1,\n2]"], id="data of several lines"),
            pytest.param(b"data:1\n\ndata:  2\n\n", [b"1", b" 2"], id="one space belongs to the field"),
            pytest.param(b"\xef\xbb\xbfdata: 1\n\n", [b"1"], id="BOM"),
            pytest.param(b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n", [b"1"], id="BOM where the stream does not begin"),
            pytest.param(b"\n\n\ndata: 1\n\n\n\n\ndata: 2\n\n", [b"1", b"2"], id="more empty lines than needed"),
            pytest.param(b"event: ping\n\nevent: x\nid: 1\n\ndata\n\ndata:\n\ndata: 1\n\n", [b"1"], id="no data"),
            pytest.param("data: é\u2028🌍\n\n".encode(), ["é\u2028🌍".encode()], id="text of several bytes"),
            pytest.param(b"data: {}\n\ndata: [DONE]\n\n", [b"{}", b"[DONE]"], id="the last word of some servers"),
        ],
    )
    def test_it_makes_no_difference_where_the_stream_is_cut(self, wire: bytes, expected: list[bytes]) -> None:
        def read(cuts: list[int]) -> list[bytes]:
            reader = EventReader()
            pieces = [wire[start:end] for start, end in pairwise([0, *cuts, len(wire)])]
            return [data for piece in pieces if piece for data in reader.feed(piece)]

        assert read([]) == expected
        assert read(list(range(1, len(wire)))) == expected
        for cut in range(1, len(wire)):
            assert read([cut]) == expected, wire[:cut]

    def test_what_one_read_completes_comes_at_once(self) -> None:
        reader = EventReader()
        assert reader.feed(b"data: 1\n\ndata: 2\n\nda") == [b"1", b"2"]
        assert reader.feed(b"ta: 3\n") == []
        assert reader.feed(b"\ndata: 4\r") == [b"3"]
        assert reader.feed(b"\r") == [b"4"]

    @pytest.mark.parametrize(
        ("rest", "last"),
        [
            (b"", b""),
            (b"\n", b""),
            (b'data: {"a":1}', b'{"a":1}'),
            (b'event: x\ndata: {"a":1}\n', b'{"a":1}'),
            (b"data: [DONE]", b"[DONE]"),
            (b'data: {"a":{"b":1}', b""),
            (b"data: " + b"[" * 20_000, b""),
            (b"data: {}\ndat", b"{}"),
        ],
    )
    def test_the_empty_line_after_the_last_event_may_be_missing(self, rest: bytes, last: bytes) -> None:
        reader = EventReader()
        assert reader.feed(b"data: 1\n\n" + rest) == [b"1"]
        assert reader.finish() == last

    def test_an_event_may_be_large_but_not_without_end(self) -> None:
        piece = b"x" * 1024 * 1024
        reader = EventReader()
        reader.feed(b"data: ")
        for _ in range(8):
            reader.feed(piece)
        [data] = reader.feed(b"\n\n")
        assert len(data) == 8 * len(piece)
        with pytest.raises(StreamTooLarge):  # noqa: PT012
            for _ in range(EVENT_LIMIT // len(piece) + 1):
                reader.feed(piece)

    def test_a_stream_of_small_events_is_not_endless_either(self) -> None:
        events = (b": %s\n\n" % (b"x" * 1000)) * 1000
        reader = EventReader()
        with pytest.raises(StreamTooLarge):  # noqa: PT012
            for _ in range(STREAM_LIMIT // len(events) + 1):
                assert reader.feed(events) == []
