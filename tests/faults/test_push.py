"""Receivers that refuse, stall, break off and die, and a gateway that is killed: every event arrives, in order."""

import asyncio
import hashlib
import json
import random
import sqlite3
from contextlib import AsyncExitStack, closing
from functools import partial
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path

import httpx2
import pytest
from joserfc import jwt
from joserfc.jwk import KeySet

from gateway.foundation.addresses import TargetRules
from gateway.foundation.resolver import Resolver
from gateway.foundation.signing_keys import key_set
from gateway.ports.adapter import CallCompleted, TextDelta
from gateway.push.delivery import PushLimits
from gateway.push.dispatcher import Dispatcher
from gateway.push.sender import Sender
from gateway.push.signatures import Signer
from gateway.push.webhook import WebhookRequests
from tests.a2a_client import A2A, a2a_http, user_message
from tests.receiver import LOOPBACK, RESET, STALL, Answer, Letter, Receiver, receiving
from tests.running import child_gateways
from tests.support.core import Core, query, running_core
from tests.support.polling import interval, until
from tests.support.push_harness import BOX, PushHarness
from tests.support.scripted import BR, ScriptedAdapter

SEED = 20261121
TASKS, EVENTS = 10, 100
RULES = TargetRules(http=True, ports=(), networks=(ip_network("127.0.0.0/8"),))


@pytest.mark.fault("W1")
async def test_a_thousand_events_arrive_in_order_at_a_receiver_that_refuses_stalls_breaks_off_and_dies(
    tmp_path: Path,
) -> None:
    """Source: docs/state-model.md, section 14, W1."""
    signer = Signer(b"m" * 32, "https://gateway.example")
    chance = random.Random(SEED)
    receiver = Receiver()
    receiver.otherwise = lambda: _misbehaves(chance)
    async with running_core(tmp_path / "ledger.db") as core, AsyncExitStack() as stack:
        core.agent(
            ScriptedAdapter(BR, otherwise=lambda _: [*(TextDelta(f"{n}") for n in range(99)), CallCompleted("r")])
        )
        push = PushHarness(core)
        lookup = Resolver(RULES.permit)
        sender = Sender(RULES, lookup, 0.3, core.time.clock)
        notifier = Dispatcher(
            core.ledger, lambda: sender, WebhookRequests(BOX, signer), core.time.clock, PushLimits(timeout=0.3)
        )
        alive = await stack.enter_async_context(AsyncExitStack())
        await alive.enter_async_context(receiving(receiver))
        await _talk(core, push, receiver.url)
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            delivering = group.create_task(notifier.run())
            deaths = 0
            while _left(core):
                if not notifier._under_way:
                    _pass_time(core)
                    notifier.wake()
                await interval()
                if deaths < 3 and len(receiver.accepted) > 250 * (deaths + 1):
                    deaths += 1
                    await alive.aclose()
                    await interval()
                    await alive.enter_async_context(receiving(receiver))
            delivering.cancel()
        lookup.close()
        refused = len(receiver.letters) - len(receiver.accepted)
        assert (deaths, refused > 50) == (3, True)
        _all_arrived_in_order(core, receiver)
        _all_verified(receiver, KeySet.import_key_set(json.loads(key_set([signer.key]))))


def _misbehaves(chance: random.Random) -> Answer | str:
    drawn = chance.random()
    if drawn < 0.04:
        return Answer(chance.choice((301, 404, 429, 500, 503)))
    if drawn < 0.07:
        return RESET
    return STALL if drawn < 0.08 else Answer()


async def _talk(core: Core, push: PushHarness, url: str) -> None:
    for _ in range(TASKS):
        task = await push.send("hello")
        assert task.id
    _send_to(core, f"{url}/hook")


def _send_to(core: Core, url: str) -> None:
    """Loopback is refused where a configuration is made; here it stands for the whole internet."""
    with closing(sqlite3.connect(core.path)) as database, database:
        database.execute("UPDATE push_config SET url = ?, host = '127.0.0.1'", (url,))


def _left(core: Core) -> bool:
    return bool(query(core.path, "SELECT 1 FROM push_config WHERE state != 'done' LIMIT 1"))


def _pass_time(core: Core) -> None:
    """To when the next attempt is due."""
    [[due_at]] = query(core.path, "SELECT min(due_at) FROM push_config")
    core.time.now = max(core.time.now, due_at or 0)


def _all_arrived_in_order(core: Core, receiver: Receiver) -> None:
    for (task,) in query(core.path, "SELECT task FROM push_config"):
        stored = query(core.path, "SELECT payload FROM event WHERE task = ? ORDER BY last", task)
        log = [line for (payload,) in stored for line in payload.split("\n")]
        arrived = [letter.body.decode() for letter in receiver.accepted if task in letter.body.decode()]
        assert list(dict.fromkeys(arrived)) == log
        assert len(log) == EVENTS
        order = [log.index(body) for body in arrived]
        assert all(after - before in (0, 1) for before, after in pairwise(order))


def _all_verified(receiver: Receiver, keys: KeySet) -> None:
    """As the page for receivers says."""
    for letter in receiver.letters:
        _verified(letter, keys)
    ids: dict[str, bytes] = {}
    for letter in receiver.letters:
        assert ids.setdefault(letter.headers["webhook-id"], letter.body) == letter.body


def _verified(letter: Letter, keys: KeySet) -> None:
    token = jwt.decode(letter.headers["x-a2a-notification-signature"], keys, algorithms=["ES256"])
    assert token.claims["request_body_sha256"] == hashlib.sha256(letter.body).hexdigest()
    assert token.claims["jti"] == letter.headers["webhook-id"]
    assert abs(int(token.claims["iat"]) - int(letter.headers["webhook-timestamp"])) < 300


# --- a gateway that is killed -------------------------------------------------------------------------------------------


@pytest.mark.fault("K10", "K11")
async def test_a_gateway_that_is_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    """Source: docs/state-model.md, section 14, K10 and K11."""
    settings = f"push: {{signing: true, timeout: 3s, {LOOPBACK}}}"
    agents = "long: {type: python, ref: 'tests.interop.echo_agent:reply'}"
    text = " ".join(f"w{number}" for number in range(300))
    async with receiving() as receiver, child_gateways(agents, tmp_path, settings=settings) as start:
        child = await start()
        async with a2a_http(child.url) as http:
            config = {"id": "config-1", "url": f"{receiver.url}/hook", "token": "token-canary"}
            answer = await A2A(http, "long").call(
                "SendMessage", message=user_message(text), configuration={"taskPushNotificationConfig": config}
            )
        for arrived in (40, 120):
            await receiver.until(partial(_are, arrived), 60)
            await child.kill()
            child = await start()
        letters = await receiver.ended(60)
        async with a2a_http(child.url) as http:
            keys = KeySet.import_key_set((await http.get("/.well-known/jwks.json")).json())
            await _is_done(http, answer["task"]["id"])
    distinct = list(dict.fromkeys(letter.body for letter in letters))
    stored = query(tmp_path / "gateway.db", "SELECT payload FROM event ORDER BY last")
    assert distinct == [line.encode() for (payload,) in stored for line in payload.split("\n")]
    assert len(letters) - len(distinct) <= 2
    assert {letter.headers["x-a2a-notification-token"] for letter in letters} == {"token-canary"}
    for letter in letters:
        _verified(letter, keys)
    assert b"canary" not in (tmp_path / "gateway.db").read_bytes() + child.output


def _are(count: int, letters: list[Letter]) -> bool:
    return len(letters) >= count


async def _is_done(http: httpx2.AsyncClient, task: str) -> None:
    async def done() -> bool:
        return not (await http.get("/admin/api/v1/push")).json()["configs"]

    await until(done)
