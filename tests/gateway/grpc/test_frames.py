"""The frames of a connection before h2 reads them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.grpc.frames import Flood, Frames
from tests.gateway.grpc.raw import (
    DATA,
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

FRAMES = st.lists(st.tuples(st.integers(0, 12), st.binary(max_size=20)), max_size=10)


@given(FRAMES, st.integers(1, 40))
def test_all_but_goaway_passes_in_whatever_pieces_it_comes(sent: list[tuple[int, bytes]], size: int) -> None:
    frames = Frames()
    whole = PREFACE + b"".join(frame(kind, 0, 1, payload) for kind, payload in sent)
    passed = b"".join(frames.passed(whole[at : at + size]) for at in range(0, len(whole), size))

    assert passed == PREFACE + b"".join(frame(kind, 0, 1, payload) for kind, payload in sent if kind != GOAWAY)
    assert frames.leaving == any(kind == GOAWAY for kind, _ in sent)


@pytest.mark.parametrize("kind", [DATA, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, 77])
def test_frames_that_carry_nothing_have_a_limit(kind: int) -> None:
    frames = Frames()
    frames.passed(PREFACE + frame(kind, 0, 1) * 1000)

    with pytest.raises(Flood):
        frames.passed(frame(kind, 0, 1))


def test_what_the_peer_is_told_it_may_answer() -> None:
    frames = Frames()
    frames.passed(PREFACE + frame(PING, 0, 0) * 1000)
    frames.written()
    frames.passed(frame(PING, 0, 0) * 10)

    with pytest.raises(Flood):
        frames.passed(frame(PING, 0, 0))


def test_calls_and_their_data_have_no_limit_here() -> None:
    sent = frame(HEADERS, 0, 1) + frame(DATA, 0, 1, b"a")

    assert Frames().passed(PREFACE + sent * 2000) == PREFACE + sent * 2000
