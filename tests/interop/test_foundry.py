"""The gateway in front of agents of Foundry: the server that hosted agents run on, and OGX with the addresses of a project."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, text_of, why
from tests.interop.foundry_shim import AGENT, PROJECT, FoundryShim
from tests.interop.peer_processes import Aimock, Peer
from tests.running import StartLocal


@pytest.fixture
async def hosted(agentserver_peer: Peer) -> AsyncIterator[tuple[FoundryShim, str]]:
    shim = FoundryShim(agentserver_peer.url)
    async with serve(shim) as url:
        yield shim, f"{url}{PROJECT}"


@pytest.fixture
async def project(ogx_peer: Peer) -> AsyncIterator[tuple[FoundryShim, str]]:
    shim = FoundryShim(ogx_peer.url, model="openai/gpt-4")
    async with AsyncExitStack() as stack:
        yield shim, f"{await stack.enter_async_context(serve(shim))}{PROJECT}"


def _agent(endpoint: str, more: str = "") -> str:
    return f"mine: {{type: foundry, endpoint: '{endpoint}', agent: {AGENT}{more and f', {more}'}}}"


@pytest.mark.parametrize("more", ["", "hosted: true", "background: true", "hosted: true, background: true"])
async def test_a_hosted_agent_goes_on_from_its_last_response_in_its_sandbox(
    hosted: tuple[FoundryShim, str], start_local: StartLocal, more: str
) -> None:
    shim, endpoint = hosted
    gateway = await start_local(_agent(endpoint, more))
    async with a2a_http(gateway.url) as http:
        mine = A2A(http, "mine")
        first = await mine.send("one")
        second = await mine.send("two", first["contextId"])
        third = await mine.send("three", first["contextId"])
        other = await mine.send("one")
    said = [text_of(task).split(" conversation")[0] for task in (first, second, third, other)]
    assert said == ["echo 'one' history=0", "echo 'two' history=2", "echo 'three' history=4", "echo 'one' history=0"]
    sessions = [body.get("agent_session_id") for body in shim.bodies]
    assert sessions[0] is sessions[3] is None
    assert sessions[1] == sessions[2] is not None
    assert all("model" not in body for body in shim.bodies)


async def test_a_cancelled_answer_ends_at_the_hosted_agent(
    hosted: tuple[FoundryShim, str], start_local: StartLocal
) -> None:
    _, endpoint = hosted
    gateway = await start_local(_agent(endpoint, "background: true"))
    async with a2a_http(gateway.url) as http:
        mine = A2A(http, "mine")
        async with mine.stream("slow") as stream:
            shown = await stream.read_until(lambda frames: any("artifactUpdate" in each.event for each in frames))
            await mine.call("CancelTask", id=shown[0].event["task"]["id"])
            last = (await stream.rest())[-1].event["statusUpdate"]
    assert last["metadata"]["backendCancelled"] is True


@pytest.mark.parametrize("more", ["", "conversation: true"])
async def test_an_agent_of_a_project_keeps_the_conversation(
    project: tuple[FoundryShim, str], aimock_peer: Aimock, start_local: StartLocal, more: str
) -> None:
    shim, endpoint = project
    gateway = await start_local(_agent(endpoint, more))
    async with a2a_http(gateway.url) as http:
        mine = A2A(http, "mine")
        first = await mine.send("one")
        second = await mine.send("two", first["contextId"])
    assert [why(task) for task in (first, second)] == [COMPLETED, COMPLETED]
    roles = [message["role"] for message in aimock_peer.journal()[-1]["body"]["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert [len(body["input"]) for body in shim.bodies] == [1, 1]
