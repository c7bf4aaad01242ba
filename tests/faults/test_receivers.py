"""Receivers of push notifications that fail in every way: no task waits for them, a healthy receiver gets its events
meanwhile, and the operator sees the reason."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.foundation.clock import Clock
from tests.a2a_client import A2A, COMPLETED, a2a_http, user_message, why
from tests.adapters.raw_server import Exchange, plain
from tests.faults.raw_backends import raw_backend
from tests.receiver import LOOPBACK, receiving
from tests.running import local_gateway
from tests.support.core import START
from tests.support.polling import interval, until
from tests.support.refusing import refusing_port

pytestmark = pytest.mark.fault("W1")

MIB = 1024 * 1024
AGENTS = "echo: {type: python, ref: 'gateway.cli.demo.agent:reply'}"
STANDS_STILL = Clock(now=lambda: START)
"""A second attempt does not become due, however long the first one takes."""


async def _huge(exchange: Exchange) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (64 * MIB)
    try:
        await exchange.send(head, *[b"x" * MIB] * 64)
    except ConnectionError:
        return


async def _drips(exchange: Exchange) -> None:
    """An answer that never ends, some of it again and again."""
    await exchange.send(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    try:
        while True:
            await exchange.send(b"x")
            await interval()
    except ConnectionError:
        return


async def _hangs(exchange: Exchange) -> None:
    await exchange.gone()


async def _resets(exchange: Exchange) -> None:
    exchange.reset()


async def _no_http(exchange: Exchange) -> None:
    await exchange.send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    exchange.writer.close()


def _answers(status: int, **headers: str) -> Any:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(plain(f"{status} Whatever", b"", **headers))

    return answer


BAD: dict[str, tuple[Any, str, str]] = {
    "500": (_answers(500), "active", "HTTP 500"),
    "429": (_answers(429, Retry_After="3600"), "active", "HTTP 429"),
    "410": (_answers(410), "gone", "HTTP 410"),
    "redirect": (_answers(307, Location="http://127.0.0.1:1/"), "active", "HTTP 307"),
    "404": (_answers(404), "active", "HTTP 404"),
    "drips": (_drips, "active", "timed out"),
    "hangs": (_hangs, "active", "timed out"),
    "resets": (_resets, "active", "the connection broke, or what came was no HTTP"),
    "no HTTP": (_no_http, "active", "the connection broke, or what came was no HTTP"),
    "TLS": (
        _answers(200),
        "active",
        "it does not answer in TLS; does its address begin with http:// and not with https://?",
    ),
    "down": (None, "active", "could not connect"),
}
"""The answer, the state of its configuration afterwards, and its last error."""


async def _standing(http: httpx2.AsyncClient) -> dict[str, dict[str, Any]]:
    """The configurations that are not done, by the name of their receiver."""
    found = (await http.get("/admin/api/v1/push")).json()["configs"]
    return {config["id"]: config for config in found}


async def test_no_task_waits_for_a_receiver_and_what_it_did_is_told(tmp_path: Path) -> None:
    asked: list[str] = []

    async def answer(exchange: Exchange) -> None:
        name = exchange.request.head.split()[1].removeprefix("/").replace("%20", " ")
        asked.append(name)
        await (BAD[name][0] if name in BAD else _huge)(exchange)

    settings = f"push: {{timeout: 3s, {LOOPBACK}}}"
    async with (
        raw_backend(answer) as bad,
        receiving() as well,
        local_gateway(AGENTS, tmp_path, settings=settings, clock=STANDS_STILL) as gateway,
        a2a_http(gateway.url) as http,
    ):
        caller = A2A(http, "echo")
        urls = {name: f"{bad.url}/{name.replace(' ', '%20')}" for name in (*BAD, "huge")}
        urls |= {"TLS": well.url.replace("http:", "https:"), "down": f"http://127.0.0.1:{refusing_port()}"}

        async def send(name: str, url: str) -> tuple[str, str]:
            configuration = {"taskPushNotificationConfig": {"id": name, "url": url}}
            result = await caller.call("SendMessage", message=user_message("hello"), configuration=configuration)
            return why(result["task"])

        # The timeout of a post is not waited for: all of them have their answers first.
        tasks = await asyncio.gather(*(send(name, url) for name, url in urls.items()))
        assert await send("well", f"{well.url}/hook") == COMPLETED
        assert tasks == [COMPLETED] * len(urls)
        letters = await well.ended()

        async def all_tried() -> bool:
            return _all_tried(await _standing(http))

        await until(all_tried)
        standing = await _standing(http)

    assert {name: (config["state"], config["lastError"]) for name, config in standing.items()} == {
        name: (state, error) for name, (_, state, error) in BAD.items()
    }
    assert {config["attempts"] for config in standing.values()} == {1}
    assert "nextAttempt" not in standing["410"]
    asked_for = datetime.fromtimestamp(START / 1000, UTC) + timedelta(hours=1)
    assert datetime.fromisoformat(standing["429"]["nextAttempt"]) == asked_for
    assert sorted(set(asked) - {"huge"}) == sorted(BAD.keys() - {"TLS", "down"})
    assert all(asked.count(name) == 1 for name in set(asked) - {"huge"})
    assert [letter.accepted for letter in letters] == [True] * len(letters)


def _all_tried(standing: dict[str, dict[str, Any]]) -> bool:
    """And the one that says too much has got all that there is, as its status says."""
    return standing.keys() == BAD.keys() and all("lastError" in config for config in standing.values())
