"""The frames of a connection before h2 reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.grpc.frames import Frames, Violation
from tests.gateway.grpc.raw import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)

BURST = 5000
FRAMES = st.lists(
    st.tuples(st.integers(0, 12), st.binary(max_size=20)).filter(lambda each: each != (WINDOW_UPDATE, bytes(4))),
    max_size=10,
)


class Time:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def read(found: Frames, data: bytes) -> bytes:
    """All that passes."""
    passed = found.passed(data)
    while found.rest:
        passed += found.passed(b"")
    return passed


def frames(clock: Time | None = None) -> Frames:
    """A connection whose preface has come."""
    found = Frames(clock or Time())
    read(found, PREFACE)
    return found


@given(FRAMES, st.integers(1, 40))
def test_all_but_goaway_and_priorities_pass_in_whatever_pieces_they_come(
    sent: list[tuple[int, bytes]], size: int
) -> None:
    found = Frames(Time())
    whole = PREFACE + b"".join(frame(kind, 0, 1, payload) for kind, payload in sent)
    passed = b"".join(read(found, whole[at : at + size]) for at in range(0, len(whole), size))

    kept = [(kind, payload) for kind, payload in sent if kind not in (GOAWAY, PRIORITY)]
    assert passed == PREFACE + b"".join(frame(kind, 0, 1, payload) for kind, payload in kept)
    assert found.leaving == any(kind == GOAWAY for kind, _ in sent)


@pytest.mark.parametrize("kind", [DATA, PRIORITY, RST_STREAM, PING, WINDOW_UPDATE, 77])
def test_frames_that_carry_nothing_have_a_limit(kind: int) -> None:
    found = frames()
    read(found, frame(kind, 0, 1) * BURST)

    with pytest.raises(Violation, match="flood"):
        read(found, frame(kind, 0, 1))


def test_settings_cost_more_because_they_change_all_calls() -> None:
    found = frames()
    read(found, frame(SETTINGS, 0, 0) * (BURST // 10))

    with pytest.raises(Violation, match="flood"):
        read(found, frame(SETTINGS, 0, 0))


def test_data_of_a_few_bytes_are_as_good_as_none() -> None:
    found = frames()
    read(found, frame(DATA, 0, 1, bytes(256)) * (2 * BURST) + frame(DATA, 0, 1, bytes(255)) * BURST)

    with pytest.raises(Violation, match="flood"):
        read(found, frame(DATA, 0, 1, bytes(255)))


@pytest.mark.parametrize("kind", [PING, RST_STREAM])
def test_the_limit_is_one_over_time(kind: int) -> None:
    clock = Time()
    found = frames(clock)
    for _ in range(100):
        read(found, frame(kind, 0, 1) * 500)
        clock.now += 1


@pytest.mark.parametrize("kind", [PING, RST_STREAM])
def test_what_is_not_used_is_not_saved_up(kind: int) -> None:
    clock = Time()
    found = frames(clock)
    read(found, frame(kind, 0, 1) * BURST)
    clock.now += 1_000_000

    with pytest.raises(Violation):
        read(found, frame(kind, 0, 1) * (BURST + 2))


def test_what_the_peer_is_told_it_may_answer() -> None:
    found = frames()
    read(found, frame(PING, 0, 0) * BURST)
    found.answered()
    read(found, frame(PING, 0, 0) * 10)

    with pytest.raises(Violation):
        read(found, frame(PING, 0, 0))


def test_calls_that_are_answered_are_not_paid_for_with_resets() -> None:
    found = frames()
    for number in range(1, 2 * BURST, 2):
        found.answered()
        read(found, frame(HEADERS, 0, number) + frame(RST_STREAM, 0, number))

    with pytest.raises(Violation, match="flood of resets"):
        read(found, frame(RST_STREAM, 0, 1))


def test_a_peer_that_has_its_calls_reset_pays_as_one_that_resets_them() -> None:
    found = frames()
    for _ in range(BURST):
        found.made_reset()

    with pytest.raises(Violation, match="flood of resets"):
        found.made_reset()


def test_headers_that_open_no_call_have_a_limit() -> None:
    found = frames()
    read(found, b"".join(frame(HEADERS, 0, number) for number in range(1, 4 * BURST, 2)))
    read(found, frame(HEADERS, 0, 1) * BURST)

    with pytest.raises(Violation, match="flood"):
        read(found, frame(HEADERS, 0, 1))


def test_the_headers_of_a_call_have_a_size() -> None:
    found = frames()
    read(found, frame(HEADERS, 0, 1, bytes(2**14)) + frame(CONTINUATION, 0, 1, bytes(2**14)) * 7)

    with pytest.raises(Violation, match="headers that are too large"):
        read(found, frame(CONTINUATION, 0, 1, b"x"))


def test_a_frame_that_is_too_large_is_not_waited_for() -> None:
    with pytest.raises(Violation, match="too large"):
        read(frames(), frame(DATA, 0, 1, bytes(2**14 + 1))[:9])


@pytest.mark.parametrize(
    ("sent", "calls"),
    [
        (frame(HEADERS, END_HEADERS, 1), 50),
        (frame(HEADERS, END_HEADERS, 1, bytes(900)), 5),
        (frame(HEADERS, 0, 1, bytes(400)) + frame(CONTINUATION, END_HEADERS, 1, bytes(400)), 5),
        (frame(HEADERS, END_HEADERS, 1, bytes(2**14)), 1),
        (frame(SETTINGS, 0, 0), 5),
    ],
    ids=["short", "long", "in two", "longest", "settings"],
)
def test_what_is_read_at_once_is_bounded_by_frames_and_by_the_bytes_of_headers(sent: bytes, calls: int) -> None:
    found = frames()
    first = found.passed(sent * 60)
    assert (len(first), found.rest) == (calls * len(sent), sent * (60 - calls))
    assert first + read(found, b"") == sent * 60


def test_data_that_is_large_is_read_at_once() -> None:
    found, sent = frames(), frame(DATA, 0, 1, bytes(2**14)) * 16
    assert (found.passed(sent), found.rest) == (sent, b"")


def test_an_empty_window_of_a_stream_is_taken_out_and_what_is_behind_it_waits() -> None:
    found, opened = frames(), frame(HEADERS, END_HEADERS, 5)
    empty, further = frame(WINDOW_UPDATE, 0, 5, (2**31).to_bytes(4)), frame(PING, 0, 0, bytes(8))
    assert found.passed(opened + empty + further) == opened
    assert (found.empty_window, found.rest) == (5, further)
    assert found.passed(b"") == further


def test_an_empty_window_of_a_stream_that_is_not_open_ends_its_connection() -> None:
    with pytest.raises(Violation, match="not open"):
        frames().passed(frame(WINDOW_UPDATE, 0, 7, bytes(4)))
