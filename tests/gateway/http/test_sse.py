"""Framing of events. Life and end of streams: tests/interaction/test_streams.py."""

from gateway.a2a.errors import TaskNotFound
from gateway.http.sse import Envelope

BARE = Envelope(b"", b"", lambda error: error.message.encode())
WRAPPED = Envelope(b'{"id":1,"result":', b"}", lambda error: error.message.encode())


def test_an_event_has_its_number_and_one_line_of_data() -> None:
    assert BARE.join([(7, b"{}")]) == b"id: 7\ndata: {}\n\n"


def test_an_event_without_a_number_has_no_id() -> None:
    assert BARE.join([(None, b"{}")]) == b"data: {}\n\n"


def test_a_batch_is_one_piece_with_the_envelope_around_each_event() -> None:
    assert WRAPPED.join([(1, b"a"), (2, b"b")]) == (
        b'id: 1\ndata: {"id":1,"result":a}\n\nid: 2\ndata: {"id":1,"result":b}\n\n'
    )


def test_an_empty_batch_is_empty() -> None:
    assert WRAPPED.join([]) == b""


def test_an_error_is_an_event_of_its_own_kind() -> None:
    assert WRAPPED.failure(TaskNotFound("gone")) == b"event: error\ndata: gone\n\n"
