"""The caller of a request."""

import asyncio
from collections.abc import Iterable

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from gateway.a2a.errors import TooManyRequests, Unauthenticated
from gateway.foundation.clock import Clock
from gateway.http.auth import Identity, KeyAuthentication, NoAuthentication
from gateway.ledger.api_keys import ApiKey, digest_of, new_key, shown
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.threads import Caller
from tests.support.core import BOUND

PEER = "192.0.2.1"


class Turned:
    """A clock that the test sets, in seconds."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.clock = Clock(now=lambda: int(self.seconds * 1000), monotonic=lambda: self.seconds)


class Keys:
    """A ledger's keys. `reads` counts how often one was looked up."""

    def __init__(self) -> None:
        self.stored: dict[bytes, ApiKey] = {}
        self.reads = 0
        self.failure: Exception | None = None

    def issue(self, principal: str, *, admin: bool = False, expires_at: int | None = None) -> str:
        key = new_key()
        digest = digest_of(key)
        self.stored[digest] = ApiKey(digest, principal, shown(key), principal, "", admin, 0, expires_at)
        return key

    def revoke(self, key: str) -> None:
        digest = digest_of(key)
        self.stored[digest] = replace(self.stored[digest], revoked_at=1)

    def end_sessions(self, key: str, now: int) -> None:
        digest = digest_of(key)
        self.stored[digest] = replace(self.stored[digest], sessions_ended_at=now)

    async def api_key(self, digest: bytes) -> ApiKey | None:
        self.reads += 1
        if self.failure is not None:
            raise self.failure
        return self.stored.get(digest)


@pytest.fixture
def time() -> Turned:
    return Turned()


@pytest.fixture
def keys() -> Keys:
    return Keys()


@pytest.fixture
def auth(keys: Keys, time: Turned) -> KeyAuthentication:
    return KeyAuthentication(keys, time.clock)


def bearer(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]


async def refused(auth: KeyAuthentication, headers: Iterable[tuple[bytes, bytes]], peer: str = PEER) -> Unauthenticated:
    with pytest.raises(Unauthenticated) as raised:
        await auth.authenticate(headers, peer)
    return raised.value


async def test_without_authentication_all_clients_are_the_same_caller() -> None:
    auth = NoAuthentication()
    anyone = Identity(Caller("anonymous"), admin=True)
    assert await auth.authenticate([], PEER) == await auth.authenticate(bearer("x"), "") == anyone


def holder(principal: str, key: str, *, admin: bool = False) -> Identity:
    return Identity(Caller(principal), admin, digest_of(key), shown(key))


async def test_a_key_in_either_header_identifies_the_caller(auth: KeyAuthentication, keys: Keys) -> None:
    ada, ops = keys.issue("ada"), keys.issue("ops", admin=True)
    assert await auth.authenticate(bearer(ada), PEER) == holder("ada", ada)
    assert await auth.authenticate([(b"authorization", f"bearer   {ada} ".encode())], PEER) == holder("ada", ada)
    assert await auth.authenticate([(b"x-api-key", ops.encode())], PEER) == holder("ops", ops, admin=True)
    assert await auth.authenticate([*bearer(ada), (b"x-api-key", ada.encode())], PEER) == holder("ada", ada)


async def test_no_key_and_a_wrong_one_differ(auth: KeyAuthentication) -> None:
    assert not (await refused(auth, [])).presented
    assert (await refused(auth, bearer(new_key()))).presented


async def test_every_invalid_key_is_refused_in_the_same_words(auth: KeyAuthentication, keys: Keys) -> None:
    ada, expired, revoked = keys.issue("ada"), keys.issue("old", expires_at=1), keys.issue("gone")
    keys.revoke(revoked)
    wrong = [
        bearer(""),
        bearer("hunter2"),
        bearer(ada[:-1]),
        bearer(ada + "x"),
        bearer(ada.swapcase()),
        bearer(f"{ada}, {ada}"),
        bearer(new_key()),
        bearer(expired),
        bearer(revoked),
        [(b"authorization", b"Basic " + ada.encode())],
        [(b"authorization", ada.encode())],
        [(b"authorization", b"Basic eA=="), (b"x-api-key", ada.encode())],
        [*bearer(ada), (b"x-api-key", new_key().encode())],
        [*bearer(ada), *bearer(revoked)],
        [(b"x-api-key", b"\xff\xfe")],
    ]
    assert {str(await refused(auth, headers, f"192.0.2.{n}")) for n, headers in enumerate(wrong)} == {
        "the API key is not valid"
    }


async def test_a_failure_is_logged_with_no_more_than_the_beginning_of_a_key(
    auth: KeyAuthentication, keys: Keys
) -> None:
    key = keys.issue("ada")
    keys.revoke(key)
    with capture_logs() as logs:
        await refused(auth, bearer(key))
        await refused(auth, bearer("my password"))
    assert logs == [
        {"event": "auth.failed", "log_level": "warning", "peer": PEER, "prefix": key[:12], "reason": "revoked"},
        {"event": "auth.failed", "log_level": "warning", "peer": PEER, "prefix": "", "reason": "malformed"},
    ]


async def test_a_key_is_looked_up_once_a_second_and_a_revoked_one_fails_then(
    auth: KeyAuthentication, keys: Keys, time: Turned
) -> None:
    key = keys.issue("ada")
    for _ in range(5):
        await auth.authenticate(bearer(key), PEER)
    assert keys.reads == 1
    keys.revoke(key)
    time.seconds += 0.999
    await auth.authenticate(bearer(key), PEER)
    time.seconds += 0.001
    await refused(auth, bearer(key))
    await refused(auth, bearer(key))


async def test_an_expired_key_fails_at_once(auth: KeyAuthentication, keys: Keys, time: Turned) -> None:
    key = keys.issue("ada", expires_at=1_000_500)
    await auth.authenticate(bearer(key), PEER)
    time.seconds += 0.5
    await refused(auth, bearer(key))


async def test_a_new_key_works_at_once_also_where_it_was_refused_before(auth: KeyAuthentication, keys: Keys) -> None:
    key = keys.issue("ada")
    record = keys.stored.pop(digest_of(key))
    await refused(auth, bearer(key))
    keys.stored[record.digest] = record
    assert await auth.authenticate(bearer(key), PEER) == holder("ada", key)


async def test_without_a_readable_database_no_key_is_accepted(
    auth: KeyAuthentication, keys: Keys, time: Turned
) -> None:
    key = keys.issue("ada")
    await auth.authenticate(bearer(key), PEER)
    keys.failure = LedgerUnavailable("gone")
    await auth.authenticate(bearer(key), PEER)
    time.seconds += 1
    with pytest.raises(LedgerUnavailable):
        await auth.authenticate(bearer(key), PEER)


async def test_guessing_is_slowed_down_and_valid_keys_pass(auth: KeyAuthentication, keys: Keys, time: Turned) -> None:
    good, fresh = keys.issue("ada"), keys.issue("bob")
    await auth.authenticate(bearer(good), PEER)
    for _ in range(20):
        await refused(auth, bearer(new_key()))
    with pytest.raises(TooManyRequests) as limited, capture_logs() as logs:
        await auth.authenticate(bearer(new_key()), PEER)
    assert limited.value.retry_after == 3
    assert logs == []
    assert (await auth.authenticate(bearer(good), PEER)).caller == Caller("ada")
    assert (await auth.authenticate(bearer(fresh), PEER)).caller == Caller("bob")
    await refused(auth, bearer(new_key()), "192.0.2.2")
    assert not (await refused(auth, [])).presented
    time.seconds += 3
    await refused(auth, bearer(new_key()))


async def test_neighbours_of_an_ipv6_network_are_one_peer(auth: KeyAuthentication) -> None:
    for number in range(20):
        await refused(auth, bearer("x"), f"2001:db8:1:2::{number:x}")
    with pytest.raises(TooManyRequests):
        await auth.authenticate(bearer("x"), "2001:db8:1:2:ffff::1")
    await refused(auth, bearer("x"), "2001:db8:1:3::1")
    for _ in range(20):
        await refused(auth, bearer("x"), "::ffff:192.0.2.7")
    with pytest.raises(TooManyRequests):
        await auth.authenticate(bearer("x"), "192.0.2.7")
    await refused(auth, bearer("x"), "a socket without an address")


async def test_a_revoked_key_calls_the_callbacks_of_its_streams(auth: KeyAuthentication, keys: Keys) -> None:
    key = keys.issue("ada")
    ada, ops = await auth.authenticate(bearer(key), PEER), await auth.authenticate(bearer(keys.issue("ops")), PEER)
    told: list[str] = []
    over = asyncio.Event()

    def tell(name: str) -> None:
        told.append(name)
        over.set()

    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        looking = group.create_task(auth.run())
        with auth.on_revocation(ada, lambda: tell("ada")), auth.on_revocation(ops, lambda: tell("ops")):
            keys.revoke(key)
            await over.wait()
        looking.cancel()
    assert told == ["ada"]


async def test_without_keys_no_callback_is_called() -> None:
    auth = NoAuthentication()
    with auth.on_revocation(await auth.authenticate([], PEER), lambda: pytest.fail("told")):
        pass


async def test_who_has_shown_a_key_is_known_by_its_digest_while_it_is_in_force(
    auth: KeyAuthentication, keys: Keys, time: Turned
) -> None:
    ada = keys.issue("ada", admin=True)
    assert await auth.holder(digest_of(ada), 5) == replace(holder("ada", ada, admin=True), session=5)
    assert await auth.holder(b"", 5) is None
    assert await auth.holder(digest_of(new_key()), 5) is None
    keys.revoke(ada)
    time.seconds += 2
    assert await auth.holder(digest_of(ada), 5) is None


async def test_sessions_that_were_ended_hold_nothing_and_the_key_and_later_ones_do(
    auth: KeyAuthentication, keys: Keys
) -> None:
    ada = keys.issue("ada", admin=True)
    keys.end_sessions(ada, 5)
    assert [await auth.holder(digest_of(ada), begun) is None for begun in (4, 5, 6)] == [True, True, False]
    assert (await auth.authenticate(bearer(ada), PEER)).session is None


async def test_that_sessions_were_ended_is_known_within_a_second_and_at_once_where_it_was_done(
    auth: KeyAuthentication, keys: Keys, time: Turned
) -> None:
    digest = digest_of(ada := keys.issue("ada"))
    assert await auth.holder(digest, 5) is not None
    keys.end_sessions(ada, 5)
    assert await auth.holder(digest, 5) is not None
    time.seconds += 1
    assert await auth.holder(digest, 5) is None
    assert await auth.holder(digest, 6) is not None
    keys.end_sessions(ada, 6)
    auth.forget(digest)
    assert await auth.holder(digest, 6) is None


async def test_a_session_that_was_ended_calls_the_callbacks_of_its_streams_alone(
    auth: KeyAuthentication, keys: Keys
) -> None:
    key = keys.issue("ada")
    direct, old, new = (
        await auth.authenticate(bearer(key), PEER),
        await auth.holder(digest_of(key), 5),
        await auth.holder(digest_of(key), 6),
    )
    assert old is not None
    assert new is not None
    told: list[str] = []
    over = asyncio.Event()

    def tell(name: str) -> None:
        told.append(name)
        over.set()

    async with asyncio.timeout(BOUND), asyncio.TaskGroup() as group:
        looking = group.create_task(auth.run())
        with (
            auth.on_revocation(direct, lambda: tell("direct")),
            auth.on_revocation(old, lambda: tell("old")),
            auth.on_revocation(new, lambda: tell("new")),
        ):
            keys.end_sessions(key, 5)
            await over.wait()
        looking.cancel()
    assert told == ["old"]


async def test_without_authentication_everybody_holds_the_same() -> None:
    assert await NoAuthentication().holder(b"", 5) == Identity(Caller("anonymous"), admin=True)
