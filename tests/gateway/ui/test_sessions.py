"""Sessions are what their cookies say."""

import pytest

from gateway.ui.sessions import LIFETIME, Sessions

NOW = 1_795_168_800_000
SECRET = b"s" * 32
DIGEST = b"d" * 32


class Time:
    now = NOW

    def __call__(self) -> int:
        return self.now


@pytest.mark.parametrize("cookie", ["", "x", "=" * 200, "A" * 5000, "ä", "!!!!", "AAAA", "A" * 120, "\n"])
def test_what_is_no_cookie_of_this_gateway_is_none(cookie: str) -> None:
    assert Sessions(SECRET, lambda: NOW).read(cookie) is None


def test_no_character_of_a_cookie_can_be_changed() -> None:
    sessions = Sessions(SECRET, lambda: NOW)
    cookie = sessions.cookie(sessions.begin(DIGEST))
    for at, character in enumerate(cookie[:-1]):
        other = "A" if character != "A" else "B"
        assert sessions.read(cookie[:at] + other + cookie[at + 1 :]) is None


def test_another_gateway_does_not_take_it() -> None:
    ours = Sessions(SECRET, lambda: NOW)
    assert Sessions(b"t" * 32, lambda: NOW).read(ours.cookie(ours.begin(DIGEST))) is None


@pytest.mark.parametrize(("seconds", "holds"), [(0, True), (LIFETIME - 1, True), (LIFETIME, False), (-2, False)])
def test_a_session_has_its_time(seconds: int, holds: bool) -> None:
    time = Time()
    sessions = Sessions(SECRET, time)
    cookie = sessions.cookie(sessions.begin(DIGEST))
    time.now += seconds * 1000
    assert (sessions.read(cookie) is not None) is holds


@pytest.mark.parametrize("key", [b"", DIGEST])
def test_another_process_reads_the_same_session(key: bytes) -> None:
    here, there = Sessions(SECRET, lambda: NOW), Sessions(SECRET, lambda: NOW)
    session = here.begin(key)
    assert there.read(here.cookie(session)) == session
    assert there.has_token(session, here.token(session))


def test_a_token_is_of_one_session() -> None:
    sessions = Sessions(SECRET, lambda: NOW)
    first, second = sessions.begin(), sessions.begin()
    assert not sessions.has_token(first, sessions.token(second))
    assert not sessions.has_token(first, "")
    assert not sessions.has_token(first, "ä")


def test_gateways_on_one_host_have_cookies_of_their_own_and_processes_of_one_the_same() -> None:
    ours, others = Sessions(SECRET, lambda: NOW), Sessions(b"t" * 32, lambda: NOW)
    assert ours.installation == Sessions(SECRET, lambda: NOW).installation
    assert ours.installation != others.installation
