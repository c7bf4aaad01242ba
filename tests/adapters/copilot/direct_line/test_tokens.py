"""Tokens: where they come from, how long they last, and what becomes of a conversation without one."""

import time
from typing import Any

import pytest

from adapters.copilot.direct_line.begun import Begun
from adapters.copilot.direct_line.state import LineState, Token
from gateway.ports.adapter import AdapterError, CallCompleted, ErrorClass
from gateway.ports.capabilities import Ongoing
from gateway.testing.adapter_scripts import collect, completed, request, text
from tests.adapters.copilot.direct_line.conftest import Adapt
from tests.emulators.direct_line import TOKEN_ENDPOINT, DirectLine

JOIN, REFRESH = "GET /conversations/{id}", "POST /tokens/refresh"


async def failure(adapter: Any, asked: Any) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, asked)
    return caught.value


def later(done: CallCompleted, **changes: Any) -> Any:
    return request("And now?", handle=done.handle, state=done.state, **{"secret": done.secret, **changes})


@pytest.fixture
def by_endpoint(line: DirectLine, adapt: Adapt) -> Any:
    return adapt(token_endpoint=f"{line.origin}{TOKEN_ENDPOINT}?api-version=1")


async def test_a_secret_opens_a_conversation_and_nothing_secret_is_kept(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    assert done.secret is None
    assert line.secret not in str(done.state)
    again = await collect(adapter, later(done))
    assert text(again) == "you said And now?"
    assert REFRESH not in line.calls


async def test_a_secret_outlives_the_token_of_a_conversation(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt()
    done = completed(await collect(adapter, request("Hi")))
    line.expire_tokens()
    assert text(await collect(adapter, later(done))) == "you said And now?"


async def test_the_token_of_an_endpoint_is_kept_as_a_secret(by_endpoint: Any) -> None:
    done = completed(await collect(by_endpoint, request("Hi")))
    assert done.secret["token"].startswith("eyJ")
    assert done.secret["expires_at"] > time.time() * 1000
    assert done.secret["token"] not in str(done.state)
    again = completed(await collect(by_endpoint, later(done)))
    assert again.handle == done.handle


async def test_the_environment_of_a_token_endpoint_names_its_region_once(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt(token_endpoint=f"{line.origin}{TOKEN_ENDPOINT}?api-version=1", url=None)
    for _ in range(2):
        await collect(adapter, request("Hi"))
    assert line.calls.count("GET /powervirtualagents/regionalchannelsettings") == 1


async def test_a_token_is_refreshed_before_a_conversation_rests_for_long(line: DirectLine, by_endpoint: Any) -> None:
    done = completed(await collect(by_endpoint, request("Hi")))
    fresh = completed(await collect(by_endpoint, later(done)))
    assert REFRESH not in line.calls
    soon = {**done.secret, "expires_at": int(time.time() * 1000) + 20 * 60 * 1000}
    refreshed = completed(await collect(by_endpoint, later(fresh, secret=soon)))
    assert line.calls.count(REFRESH) == 1
    assert refreshed.secret["token"] != done.secret["token"]
    assert refreshed.secret["expires_at"] > soon["expires_at"]


@pytest.mark.parametrize("status", [403, 429, 500])
async def test_a_token_that_lives_is_used_where_it_is_not_refreshed(
    line: DirectLine, by_endpoint: Any, status: int
) -> None:
    done = completed(await collect(by_endpoint, request("Hi")))
    soon = {**done.secret, "expires_at": int(time.time() * 1000) + 20 * 60 * 1000}
    line.refuse(REFRESH, status)
    assert completed(await collect(by_endpoint, later(done, secret=soon))).handle == done.handle


async def test_a_first_turn_whose_token_is_gone_has_failed_and_its_context_goes_on(
    line: DirectLine, by_endpoint: Any
) -> None:
    with pytest.raises(AdapterError) as caught:
        async for _ in by_endpoint.resume(request("Hi"), Ongoing("c1", "m1")):
            pass
    assert caught.value.kind is ErrorClass.BACKEND_FAILED


async def test_an_expired_token_is_an_expired_conversation_and_nothing_is_asked(
    line: DirectLine, by_endpoint: Any
) -> None:
    done = completed(await collect(by_endpoint, request("Hi")))
    before = len(line.calls)
    error = await failure(by_endpoint, later(done, secret={**done.secret, "expires_at": 1}))
    assert error.kind is ErrorClass.HANDLE_EXPIRED
    assert len(line.calls) == before


async def test_a_token_that_the_service_calls_expired_is_an_expired_conversation(
    line: DirectLine, by_endpoint: Any
) -> None:
    done = completed(await collect(by_endpoint, request("Hi")))
    line.expire_tokens()
    assert (await failure(by_endpoint, later(done))).kind is ErrorClass.HANDLE_EXPIRED


async def test_another_try_goes_on_in_the_conversation_that_the_first_has_made(
    line: DirectLine, by_endpoint: Any
) -> None:
    """The thread has its token only when a call has completed."""
    line.refuse("POST /conversations/{id}/activities", 429, Retry_After="0")
    assert (await failure(by_endpoint, request("Hi"))).kind is ErrorClass.RATE_LIMITED
    again = request("Hi", handle=line.only.id)
    done = completed(await collect(by_endpoint, again))
    assert len(line.conversations) == 1
    assert line.requests[0]["from"]["id"] == line.only.user == done.state["user"]


async def test_only_the_latest_conversations_without_a_completed_call_are_kept() -> None:
    begun = Begun()
    for number in range(1001):
        begun.keep(f"c{number}", LineState(user=f"u{number}"), Token(f"t{number}"))
    assert begun.find("c0") == (LineState(), None)
    assert begun.find("c1") == (LineState(user="u1"), Token("t1"))
    begun.drop("c1")
    begun.drop("c1")
    assert begun.find("c1") == (LineState(), None)


@pytest.mark.parametrize("secret", [None, {}, {"token": 5}], ids=["imported", "empty", "unreadable"])
async def test_a_conversation_without_its_token_is_expired(by_endpoint: Any, secret: Any) -> None:
    done = completed(await collect(by_endpoint, request("Hi")))
    assert (await failure(by_endpoint, later(done, secret=secret))).kind is ErrorClass.HANDLE_EXPIRED


async def test_a_token_of_the_settings_serves_one_context(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt(token=line.new_token())
    done = completed(await collect(adapter, request("Hi")))
    assert text(await collect(adapter, later(done))) == "you said And now?"
    error = await failure(adapter, request("Hi"))
    assert error.kind is ErrorClass.NOT_SERVED
    assert "one context" in error.detail


async def test_a_token_of_the_settings_that_has_expired_is_the_operators_to_mend(
    line: DirectLine, adapt: Adapt
) -> None:
    adapter = adapt(token=line.new_token())
    line.expire_tokens()
    assert (await failure(adapter, request("Hi"))).kind is ErrorClass.UNAUTHORISED


async def test_a_wrong_secret_is_unauthorised(adapt: Adapt) -> None:
    error = await failure(adapt(secret="another-secret-0123"), request("Hi"))
    assert error.kind is ErrorClass.UNAUTHORISED
    assert "another-secret" not in error.detail


async def test_an_endpoint_that_gives_no_token_serves_nobody(line: DirectLine, adapt: Adapt) -> None:
    adapter = adapt(token_endpoint=f"{line.origin}/powervirtualagents/regionalchannelsettings")
    assert (await failure(adapter, request("Hi"))).kind is ErrorClass.NOT_SERVED


async def test_a_conversation_that_the_service_does_not_know_is_not_found(adapt: Adapt) -> None:
    asked = request("Hi", handle="unknown", state={"user": "me", "watermark": "1"})
    assert (await failure(adapt(), asked)).kind is ErrorClass.HANDLE_NOT_FOUND


async def test_a_service_without_conversations_is_not_served(line: DirectLine, adapt: Adapt) -> None:
    error = await failure(adapt(url=f"{line.origin}/elsewhere"), request("Hi"))
    assert error.kind is ErrorClass.NOT_SERVED


async def test_a_limit_of_requests_names_its_time(line: DirectLine, adapt: Adapt) -> None:
    line.refuse("POST /conversations", 429, Retry_After="7")
    error = await failure(adapt(), request("Hi"))
    assert (error.kind, error.retry_after) == (ErrorClass.RATE_LIMITED, 7.0)


# --- adopting and probing


@pytest.mark.parametrize("handle", ["", "a/b", "a?b", "a\nb", ".", ".."])
def test_what_cannot_be_a_conversation_is_not_adopted(adapt: Adapt, handle: str) -> None:
    with pytest.raises(ValueError, match="conversationId"):
        adapt().check_handle(handle)


def test_a_conversation_is_adopted_by_the_secret_only(line: DirectLine, adapt: Adapt) -> None:
    adapt().check_handle("IwNDHxGSVbo8ee-us")
    with pytest.raises(ValueError, match="`secret` only"):
        adapt(token_endpoint=f"{line.origin}{TOKEN_ENDPOINT}").check_handle("IwNDHxGSVbo8ee-us")


async def test_an_adopted_conversation_goes_on(line: DirectLine, adapt: Adapt) -> None:
    handle = completed(await collect(adapt(), request("Hi"))).handle
    events = await collect(adapt(), request("And now?", handle=handle))
    assert text(events) == "you said And now?"
    assert completed(events).handle == handle


async def test_a_probe_asks_for_a_token_and_leaves_no_conversation(line: DirectLine, adapt: Adapt) -> None:
    report = await adapt().probe()
    assert "it takes the credentials" in report.notes
    assert line.conversations == {}


async def test_a_probe_of_a_token_refreshes_it(line: DirectLine, adapt: Adapt) -> None:
    await adapt(token=line.new_token()).probe()
    assert line.calls == [REFRESH]


async def test_a_probe_of_a_wrong_secret_fails(adapt: Adapt) -> None:
    with pytest.raises(AdapterError) as caught:
        await adapt(secret="another-secret-0123").probe()
    assert caught.value.kind is ErrorClass.UNAUTHORISED
