"""Limits of one principal on the wire, over both bindings: a clear answer, no partial effect, none on other principals."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.a2a_client import A2A, a2a_http, user_message
from tests.interaction.harness import Binding, Refusal
from tests.interaction.test_keys import ASKED, issue
from tests.running import Local, local_gateway
from tests.support.core import query, soon

AGENTS = 'held: {type: python, ref: "./held.py:reply"}'
HELD = """
import asyncio
async def reply(text):
    if text == "wait":
        yield "waiting"
        await asyncio.Event().wait()
    yield "done"
"""


def too_many(message: str) -> Refusal:
    return Refusal(-32603, 429, "RESOURCE_EXHAUSTED", "TOO_MANY_REQUESTS", message, rpc_http=429)


class Starting:
    """Gateways with limits, and callers with a key."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._folder = folder
        self._stack = stack
        (folder / "held.py").write_text(HELD)

    async def start(self, limits: str, auth: str = ASKED) -> Local:
        settings = f"{auth}\nlimits: {limits}"
        return await self._stack.enter_async_context(local_gateway(AGENTS, self._folder, settings=settings))

    async def caller(self, gateway: Local, principal: str, name: str | None = None) -> httpx2.AsyncClient:
        http = await self._stack.enter_async_context(a2a_http(gateway.url))
        http.headers["X-API-Key"] = await issue(gateway, principal, name=name)
        return http


@pytest.fixture
async def starting(tmp_path: Path) -> AsyncIterator[Starting]:
    async with AsyncExitStack() as stack:
        yield Starting(tmp_path, stack)


async def refusal(http: httpx2.AsyncClient, binding: Binding, operation: str, params: dict[str, Any]) -> Any:
    answer = await ask_held(http, binding, operation, params)
    assert int(answer.headers["retry-after"]) >= 1
    return answer.status_code, answer.json()


async def ask_held(
    http: httpx2.AsyncClient, binding: Binding, operation: str, params: dict[str, Any]
) -> httpx2.Response:
    exchange = binding.ask(operation, params)
    target = exchange.target.replace("/a2a/echo", "/a2a/held")
    headers = {"content-type": "application/json"} if exchange.body else {}
    return await http.request(exchange.method, target, content=exchange.body, headers=headers)


async def test_requests_over_the_limit_are_refused_for_this_principal_alone(
    starting: Starting, binding: Binding
) -> None:
    gateway = await starting.start("{requests_per_minute: 3}")
    ada, bob = await starting.caller(gateway, "ada"), await starting.caller(gateway, "bob")
    for _ in range(3):
        assert (await ask_held(ada, binding, "ListTasks", {})).status_code == 200
    expected = too_many("3 requests in a minute are the most that one principal may make; try again later.")
    assert await refusal(ada, binding, "SendMessage", {"message": user_message("Hello")}) == binding.refusal(
        expected, identified=False
    )
    assert query(gateway.database, "SELECT count(*) FROM task") == [(0,)]
    assert (await ask_held(bob, binding, "ListTasks", {})).status_code == 200
    assert (await ada.get("/a2a/held/.well-known/agent-card.json")).status_code == 200


async def test_a_second_key_of_the_same_principal_brings_no_more(starting: Starting, binding: Binding) -> None:
    gateway = await starting.start("{requests_per_minute: 1}")
    ada, again = await starting.caller(gateway, "ada"), await starting.caller(gateway, "ada", "ada-2")
    assert (await ask_held(ada, binding, "ListTasks", {})).status_code == 200
    assert (await ask_held(again, binding, "ListTasks", {})).status_code == 429


async def test_streams_over_the_limit_are_refused_before_anything_is_stored(
    starting: Starting, binding: Binding
) -> None:
    gateway = await starting.start("{streams_per_principal: 1}")
    ada, bob = await starting.caller(gateway, "ada"), await starting.caller(gateway, "bob")
    expected = too_many("1 open streams are the most that one principal may have; try again later.")
    async with A2A(ada, "held").stream("wait") as stream:
        await stream.read(1)
        task = stream.frames[0].event["task"]["id"]
        more = {"message": user_message("Hello")}
        assert await refusal(ada, binding, "SendStreamingMessage", more) == binding.refusal(expected)
        assert await refusal(ada, binding, "SubscribeToTask", {"id": task}) == binding.refusal(expected)
        assert query(gateway.database, "SELECT count(*) FROM task") == [(1,)]
        assert (await ask_held(ada, binding, "SendMessage", more)).status_code == 200
        async with A2A(bob, "held").stream("Hello") as other:
            await other.rest()
    # The slot is free once the gateway has seen the disconnect.
    async with asyncio.timeout(60):
        while (await ask_held(ada, binding, "SendStreamingMessage", more)).status_code == 429:
            pass


async def test_a_refused_stream_does_not_count(starting: Starting, binding: Binding) -> None:
    gateway = await starting.start("{streams_per_principal: 1}")
    ada = await starting.caller(gateway, "ada")
    for _ in range(3):
        answer = await ask_held(ada, binding, "SubscribeToTask", {"id": "unknown"})
        assert answer.status_code != 429


async def test_messages_over_the_limit_are_refused_until_one_has_ended(starting: Starting, binding: Binding) -> None:
    gateway = await starting.start("{runs_per_principal: 2}")
    ada, bob = await starting.caller(gateway, "ada"), await starting.caller(gateway, "bob")
    agent = A2A(ada, "held")
    at_once = {"returnImmediately": True}
    first = await agent.call("SendMessage", message=user_message("wait", "c-1"), configuration=at_once)
    await agent.call("SendMessage", message=user_message("wait", "c-1"), configuration=at_once)
    expected = too_many(
        "2 messages that are worked on or wait are the most that one principal may have; try again later."
    )
    params = {"message": user_message("Hello")}
    assert await refusal(ada, binding, "SendMessage", params) == binding.refusal(expected)
    assert await refusal(ada, binding, "SendStreamingMessage", params) == binding.refusal(expected)
    assert query(gateway.database, "SELECT count(*) FROM task") == [(2,)]
    assert (await ask_held(ada, binding, "GetTask", {"id": first["task"]["id"]})).status_code == 200
    assert (await ask_held(bob, binding, "SendMessage", params)).status_code == 200
    await soon(agent.call("CancelTask", id=first["task"]["id"]))
    assert (await ask_held(ada, binding, "SendMessage", params)).status_code == 200


async def test_a_repeat_under_its_key_does_not_count(starting: Starting) -> None:
    gateway = await starting.start("{runs_per_principal: 1}")
    ada = await starting.caller(gateway, "ada")
    ada.headers["Idempotency-Key"] = "once"
    send = {"message": user_message("wait"), "configuration": {"returnImmediately": True}}
    first = await A2A(ada, "held").call("SendMessage", **send)
    again = await A2A(ada, "held").call("SendMessage", **send)
    assert again["task"]["id"] == first["task"]["id"]


async def test_of_many_messages_at_once_the_allowed_number_is_accepted(starting: Starting) -> None:
    gateway = await starting.start("{runs_per_principal: 3}")
    ada = await starting.caller(gateway, "ada")
    send = {"message": user_message("wait"), "configuration": {"returnImmediately": True}}
    answers = await asyncio.gather(*(ada.post("/a2a/held/message:send", json=send) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 7
    assert query(gateway.database, "SELECT count(*) FROM task") == [(3,)]
