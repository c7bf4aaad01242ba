"""The health of agents by the admin API."""

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from msgspec.structs import replace

from gateway.foundation.clock import Clock
from tests.a2a_client import A2A, a2a_http
from tests.gateway.ui.visitor import make_key, visiting
from tests.running import Local, StartLocal, local_gateway, start_local

__all__ = ["start_local"]

HEALTH = "/admin/api/v1/health"
AGENTS = """
echo: {type: python, ref: "gateway.cli.demo.agent:reply", default: true}
broken: {type: python, ref: "tests.gateway.ui.agents:fails"}
wedged: {type: python, ref: "tests.gateway.ui.agents:waits"}
asking: {type: python, ref: "tests.gateway.ui.agents:asks"}
"""
IDLE = {
    "state": "ok", "openCalls": 0, "silentCalls": 0, "runningTurns": 0, "queuedTurns": 0, "waitingTurns": 0, "failedTurns": 0,
}  # fmt: skip


@dataclass
class Later:
    """A clock of which the test says how late it is."""

    seconds: float = 0.0
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = replace(Clock(), monotonic=lambda: time.monotonic() + self.seconds)


@pytest.fixture
def later() -> Later:
    return Later()


@pytest.fixture
async def gateway(tmp_path: Path, later: Later) -> AsyncIterator[Local]:
    async with local_gateway(AGENTS, tmp_path, clock=later.clock) as gateway:
        yield gateway


@pytest.fixture
async def http(gateway: Local) -> AsyncIterator[httpx2.AsyncClient]:
    async with a2a_http(gateway.url) as http:
        yield http


async def test_agents_of_which_nothing_is_wrong_are_ok(http: httpx2.AsyncClient) -> None:
    found = (await http.get(HEALTH)).json()["agents"]
    assert found == [{"agent": name, **IDLE} for name in ("echo", "broken", "wedged", "asking")]


async def test_what_failed_is_counted(http: httpx2.AsyncClient) -> None:
    await A2A(http, "broken").send("hi")
    [broken] = [each for each in (await http.get(HEALTH)).json()["agents"] if each["failedTurns"]]
    assert broken == {"agent": "broken", **IDLE, "failedTurns": 1}


async def test_an_agent_whose_calls_hang_is_said_to_here_and_on_the_pages(
    http: httpx2.AsyncClient, gateway: Local, later: Later
) -> None:
    async with A2A(http, "wedged").stream("hi", "c-1") as stream:
        await stream.read(2)
        later.seconds = 45
        [wedged] = [each for each in (await http.get(HEALTH)).json()["agents"] if each["state"] != "ok"]
        since = wedged.pop("since")
        assert wedged == {
            "agent": "wedged", **IDLE, "state": "silent", "openCalls": 1, "silentCalls": 1, "runningTurns": 1,
        }  # fmt: skip
        assert since.endswith("Z")
        async with visiting(gateway) as visitor:
            page = await visitor.open("/ui/")
            assert "wedged: nothing has come of a call to the backend for 45" in page
            assert "calls hang 1 of 1 for 45" in page
            assert "calls hang" in await visitor.open("/ui/agents/wedged")


async def test_a_backend_that_is_down_is_told_with_when_it_is_asked_again(
    start_local: StartLocal, later: Later
) -> None:
    down = "down: {type: openai-responses, model: m, base_url: 'http://127.0.0.1:9/v1'}"
    gateway = await start_local(down, clock=later.clock)
    async with a2a_http(gateway.url) as http:
        for context in ("c-1", "c-2"):
            await A2A(http, "down").send("hi", context)
        [alone] = (await http.get(HEALTH)).json()["agents"]
        assert (alone["state"], alone["askedAgainIn"] <= 30) == ("left-alone", True)
        later.seconds = 60
        [down_still] = (await http.get(HEALTH)).json()["agents"]
        assert (down_still["state"], down_still["askedAgainIn"]) == ("down", 0)
        async with visiting(gateway) as visitor:
            assert "is asked again with the next request. http://127.0.0.1:9" in await visitor.open("/ui/")


async def test_only_admins_are_told(start_local: StartLocal) -> None:
    gateway = await start_local(AGENTS, settings="auth: {mode: any_of, api_keys: {enabled: true}}")
    statuses = []
    async with a2a_http(gateway.url) as http:
        for admin in (False, True):
            http.headers["authorization"] = f"Bearer {await make_key(gateway, f'{admin}', admin=admin)}"
            statuses.append((await http.get(HEALTH)).status_code)
    assert statuses == [403, 200]


async def test_a_turn_that_has_ended_with_a_question_waits_until_it_is_answered(http: httpx2.AsyncClient) -> None:
    asking = A2A(http, "asking")
    task = await asking.send("?", "c-1")
    found = (await http.get(HEALTH)).json()["agents"][3]
    assert (found["agent"], found["waitingTurns"], found["queuedTurns"]) == ("asking", 1, 0)
    await asking.send("Oslo", "c-1", taskId=task["id"])
    assert (await http.get(HEALTH)).json()["agents"][3]["waitingTurns"] == 0
