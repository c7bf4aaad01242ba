"""When a token is fetched: once for all, shortly before its end, and behind a refusal."""

import asyncio
from collections.abc import Mapping

import pytest

from adapters.http.credentials.tokens import BearerToken, Token
from adapters.http.failures import Failures
from gateway.foundation.clock import Clock
from gateway.ports.adapter import AdapterError, ErrorClass


class _Server:
    """Gives `first`, `second` and so on, or an error, and lets no answer through before `open`."""

    def __init__(self, *outcomes: float | AdapterError | None) -> None:
        self.outcomes = list(outcomes)
        self.asked = 0
        self.now = 1000.0
        self.waits = asyncio.Event()
        """An attempt has begun."""
        self.open = asyncio.Event()
        self.open.set()
        self.failures = Failures(())
        self.bearer = BearerToken(self.fetch, self.failures, Clock(monotonic=lambda: self.now))

    async def fetch(self) -> Token:
        self.asked += 1
        number = self.asked
        self.waits.set()
        await self.open.wait()
        match self.outcomes.pop(0):
            case AdapterError() as error:
                raise error
            case lifetime:
                return Token(f"token-number-{number}", lifetime)

    async def token(self) -> str:
        headers: Mapping[str, str] = await self.bearer("POST", "http://service", b"")
        assert headers.keys() == {"Authorization"}
        return headers["Authorization"].removeprefix("Bearer token-number-")

    async def error(self) -> AdapterError:
        with pytest.raises(AdapterError) as caught:
            await self.token()
        return caught.value


async def test_a_token_is_kept_until_shortly_before_its_end() -> None:
    server = _Server(3600, 600, 100, None)
    for wait, expected in ((0, "1"), (3299, "1"), (1, "2"), (539, "2"), (1, "3"), (89, "3"), (1, "4")):
        server.now += wait
        assert await server.token() == expected


async def test_a_token_of_unknown_life_is_kept_until_it_is_refused() -> None:
    server = _Server(None, None)
    assert await server.token() == "1"
    server.now += 1e9
    assert await server.token() == "1"
    assert server.bearer.renew({"Authorization": "Bearer token-number-1"})
    assert await server.token() == "2"


async def test_a_refusal_of_an_older_token_leaves_the_newer_one() -> None:
    server = _Server(3600, 3600)
    await server.token()
    server.bearer.renew({"Authorization": "Bearer token-number-1"})
    assert await server.token() == "2"
    assert server.bearer.renew({"Authorization": "Bearer token-number-1"})
    assert await server.token() == "2"


async def test_many_requests_wait_for_one_token() -> None:
    server = _Server(3600)
    server.open.clear()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(server.token()) for _ in range(20)]
        await server.waits.wait()
        server.open.set()
    assert ({task.result() for task in tasks}, server.asked) == ({"1"}, 1)


async def test_all_who_wait_for_a_token_share_its_failure_and_the_next_asks_again() -> None:
    server = _Server(AdapterError(ErrorClass.TIMED_OUT, "silence"), 3600)
    server.open.clear()
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(server.error()) for _ in range(20)]
        await server.waits.wait()
        server.open.set()
    assert {(task.result().kind, task.result().detail) for task in tasks} == {
        (ErrorClass.UNREACHABLE, "no token: silence")
    }
    assert server.asked == 1
    assert await server.token() == "2"


async def test_a_request_that_is_cancelled_leaves_the_token_to_the_next_that_waits() -> None:
    server = _Server(AdapterError(ErrorClass.TIMED_OUT, "silence"), 3600)
    await server.error()
    server.waits.clear()
    server.open.clear()
    async with asyncio.TaskGroup() as group:
        first, second = group.create_task(server.token()), group.create_task(server.token())
        await server.waits.wait()
        first.cancel()
        server.open.set()
    assert (second.result(), server.asked) == ("3", 3)


async def test_a_token_that_holds_is_used_while_no_newer_one_can_be_had() -> None:
    down = AdapterError(ErrorClass.UNREACHABLE, "down")
    server = _Server(3600, down, down, down)
    await server.token()
    for wait, asked in ((3300, 2), (29, 2), (1, 3), (269, 4)):
        server.now += wait
        assert (await server.token(), server.asked) == ("1", asked)
    server.now += 1
    server.outcomes.append(down)
    assert (await server.error()).kind is ErrorClass.UNREACHABLE


async def test_a_token_that_was_refused_is_not_used_again_although_no_newer_one_can_be_had() -> None:
    server = _Server(3600, AdapterError(ErrorClass.UNREACHABLE, "down"))
    await server.token()
    server.bearer.renew({"Authorization": "Bearer token-number-1"})
    assert (await server.error()).kind is ErrorClass.UNREACHABLE


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (ErrorClass.UNREACHABLE, ErrorClass.UNREACHABLE),
        (ErrorClass.TIMED_OUT, ErrorClass.UNREACHABLE),
        (ErrorClass.INTERRUPTED, ErrorClass.UNREACHABLE),
        (ErrorClass.BACKEND_FAILED, ErrorClass.UNREACHABLE),
        (ErrorClass.RATE_LIMITED, ErrorClass.RATE_LIMITED),
        (ErrorClass.REJECTED, ErrorClass.UNAUTHORISED),
        (ErrorClass.UNAUTHORISED, ErrorClass.UNAUTHORISED),
        (ErrorClass.NOT_SERVED, ErrorClass.UNAUTHORISED),
        (ErrorClass.CONTRACT_BROKEN, ErrorClass.UNAUTHORISED),
    ],
)
async def test_without_a_token_the_request_was_not_sent(kind: ErrorClass, expected: ErrorClass) -> None:
    error = await _Server(AdapterError(kind, "why", retry_after=7.0)).error()
    assert (error.kind, error.detail, error.retry_after) == (expected, "no token: why", 7.0)


async def test_tokens_are_masked_in_every_text_of_the_service() -> None:
    server = _Server(3600, 3600)
    await server.token()
    server.bearer.renew({"Authorization": "Bearer token-number-1"})
    await server.token()
    detail = server.failures.detail("token-number-1 and token-number-2 are wrong")
    assert detail == "*** and *** are wrong"
