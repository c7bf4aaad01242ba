"""Messages on the wire: how they are put together, and how they are found in what comes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.a2a.errors import EncodingNotSupported, InvalidRequest, PayloadTooLarge
from gateway.grpc.messages import Incoming, parts, portions

MESSAGES = st.lists(st.binary(max_size=20), max_size=10)


@given(MESSAGES, st.integers(1, 7))
def test_what_is_put_together_is_found_again_in_whatever_pieces_it_comes(messages: list[bytes], size: int) -> None:
    incoming, whole, found = Incoming(20), b"".join(parts(messages)), []
    for at in range(0, len(whole), size):
        incoming.feed(whole[at : at + size])
        while (message := incoming.next()) is not None:
            found.append(message)
    incoming.ended = True

    assert found == messages
    assert incoming.next() is None


def test_small_messages_are_one_part_and_large_ones_are_not_copied() -> None:
    small, large = b"a", bytes(2**16)
    found = list(parts([small, small, large, small]))

    assert [len(each) for each in found] == [17, 2**16, 6]
    assert found[1] is large


@given(MESSAGES, st.integers(1, 50))
def test_portions_are_the_messages_in_order(messages: list[bytes], size: int) -> None:
    found = list(portions(messages, size))

    assert [message for portion in found for message in portion] == messages
    assert all(portion and sum(map(len, portion[:-1])) < size for portion in found)


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"\x00\x00\x00\x00\x0b", PayloadTooLarge),
        (b"\x01\x00\x00\x00\x01", EncodingNotSupported),
        (b"\x00\x00\x00\x00\x02a", InvalidRequest),
        (b"\x00\x00", InvalidRequest),
    ],
    ids=["too-large", "compressed", "cut-message", "cut-prefix"],
)
def test_what_is_no_message_is_refused(data: bytes, error: type[Exception]) -> None:
    incoming = Incoming(10)
    incoming.feed(data)
    incoming.ended = True

    with pytest.raises(error):
        incoming.next()


def test_a_message_that_is_too_large_is_refused_before_it_has_come() -> None:
    incoming = Incoming(10)
    incoming.feed(b"\x00\xff\xff\xff\xff")

    with pytest.raises(PayloadTooLarge):
        incoming.next()
