"""The push part of the admin API, and the published keys, of a running gateway."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.a2a_client import A2A, a2a_http, user_message
from tests.receiver import LOOPBACK, Answer, Receiver, receiving
from tests.running import Local, local_gateway
from tests.support.core import until

AGENTS = """
mine: {type: python, ref: "gateway.cli.demo.agent:reply", default: true}
"""
ALL = "/admin/api/v1/push"
ONCE = f"push: {{max_attempts: 1, signing: true, {LOOPBACK}}}"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Local]:
    async with local_gateway(AGENTS, tmp_path, settings=ONCE) as gateway:
        yield gateway


@pytest.fixture
async def http(gateway: Local) -> AsyncIterator[httpx2.AsyncClient]:
    async with a2a_http(gateway.url) as http:
        yield http


async def notified(http: httpx2.AsyncClient, url: str) -> str:
    """The task of a message whose events are posted to this URL."""
    config = {"id": "config-1", "url": url, "token": "token-canary"}
    answer = await A2A(http, "mine").call(
        "SendMessage", message=user_message("hello"), configuration={"taskPushNotificationConfig": config}
    )
    task: str = answer["task"]["id"]
    return task


async def stopped(http: httpx2.AsyncClient, state: str = "stopped") -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    while not found or found[0]["state"] != state:
        found = (await http.get(ALL)).json()["configs"]
    return found[0]


async def test_a_stopped_delivery_is_listed_with_its_reason_and_continues_on_request(
    http: httpx2.AsyncClient, receiver: Receiver
) -> None:
    receiver.answers.append(Answer(500))
    task = await notified(http, f"{receiver.url}/hook")
    assert await stopped(http) == {
        "taskId": task,
        "id": "config-1",
        "agent": "mine",
        "url": f"{receiver.url}/hook",
        "state": "stopped",
        "nextEvent": 1,
        "attempts": 1,
        "lastError": "HTTP 500",
    }
    replayed = await http.post(f"{ALL}:replay", json={"taskId": task, "id": "config-1"})
    assert (replayed.status_code, replayed.json()) == (200, {"replayed": 1})
    await receiver.ended()
    again = await http.post(f"{ALL}:replay", json={"taskId": task})
    assert again.status_code == 404
    assert "that was stopped" in again.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "field"), [({}, "taskId"), ({"taskId": 1}, "taskId"), ({"taskId": "t", "id": 1}, "id"), ([], "taskId")]
)
async def test_a_replay_names_its_task(http: httpx2.AsyncClient, body: object, field: str) -> None:
    refused = await http.post(f"{ALL}:replay", json=body)
    assert refused.status_code == 400
    assert f"parameters: {field}:" in refused.json()["error"]["message"]


async def test_other_methods_are_refused_with_the_allowed_ones(http: httpx2.AsyncClient) -> None:
    answer = await http.delete(ALL)
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET")


async def test_keys_are_published_for_caches(http: httpx2.AsyncClient) -> None:
    answer = await http.get("/.well-known/jwks.json")
    assert [key["alg"] for key in answer.json()["keys"]] == ["ES256"]
    assert answer.headers["cache-control"] == "public, max-age=300"
    again = await http.get("/.well-known/jwks.json", headers={"if-none-match": answer.headers["etag"]})
    assert again.status_code == 304


async def test_the_card_declares_push_notifications(http: httpx2.AsyncClient) -> None:
    card = (await http.get("/.well-known/agent-card.json")).json()
    assert card["capabilities"]["pushNotifications"] is True


async def test_without_push_notifications_there_are_no_addresses_and_no_declaration(tmp_path: Path) -> None:
    settings = "push: {enabled: false}"
    async with local_gateway(AGENTS, tmp_path, settings=settings) as gateway, a2a_http(gateway.url) as http:
        card = (await http.get("/.well-known/agent-card.json")).json()
        assert card["capabilities"]["pushNotifications"] is False
        assert [(await http.get(path)).status_code for path in (ALL, "/.well-known/jwks.json")] == [404, 404]


async def test_without_signing_there_are_no_keys(tmp_path: Path, receiver: Receiver) -> None:
    settings = f"push: {{{LOOPBACK}}}"
    async with local_gateway(AGENTS, tmp_path, settings=settings) as gateway, a2a_http(gateway.url) as http:
        assert (await http.get("/.well-known/jwks.json")).status_code == 404
        await notified(http, receiver.url)
        [letter, *_] = await receiver.until(bool)
        assert "x-a2a-notification-signature" not in letter.headers


async def test_a_key_of_the_operator_encrypts_and_signs(tmp_path: Path, receiver: Receiver) -> None:
    keys = []
    for key in ("k" * 32, "j" * 32):
        settings = f"push: {{signing: true, encryption_key: {key}, {LOOPBACK}}}"
        async with local_gateway(AGENTS, tmp_path, settings=settings) as gateway, a2a_http(gateway.url) as http:
            keys.append((await http.get("/.well-known/jwks.json")).json())
    assert keys[0] != keys[1]


async def test_deliveries_do_not_wait_for_each_other_and_no_task_waits_for_them(
    http: httpx2.AsyncClient, receiver: Receiver
) -> None:
    """Source: docs/state-model.md, W1. The receiver stalls, and every task still ends."""
    receiver.otherwise = lambda: "stall"
    for _ in range(6):
        await notified(http, receiver.url)
    await until(lambda: receiver.open == 4)
    assert receiver.most_open == 4
