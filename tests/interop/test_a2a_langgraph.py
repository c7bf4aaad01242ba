"""Assistants of a LangGraph Agent Server behind the gateway, by its A2A endpoint: a dialect of its own."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import httpx2
import pytest

from gateway.ports.adapter import ErrorClass
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, streamed_text, text_of, why
from tests.interop.peer_processes import Peer
from tests.running import AT_ONCE, child_gateways, local_gateway


async def assistant(peer: Peer, graph: str) -> str:
    async with httpx2.AsyncClient(trust_env=False) as http:
        found = (await http.post(f"{peer.origin}/assistants/search", json={"graph_id": graph})).json()
    return f"{peer.origin}/a2a/{found[0]['assistant_id']}"


@pytest.fixture
async def agents(langgraph_peer: Peer) -> str:
    """Two graphs: one that speaks word by word, and one that asks."""
    agent, node = [await assistant(langgraph_peer, graph) for graph in ("agent", "node")]
    return f"agent: {{type: a2a, url: '{agent}', poll: 200ms}}\nnode: {{type: a2a, url: '{node}', poll: 200ms}}"


@pytest.fixture
async def callers(agents: str, tmp_path: Path) -> AsyncIterator[tuple[A2A, A2A]]:
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(local_gateway(agents, tmp_path, pace=AT_ONCE))
        http = await stack.enter_async_context(a2a_http(gateway.url))
        yield A2A(http, "agent"), A2A(http, "node")


async def test_a_graph_that_breaks_fails_the_task_and_the_context_goes_on(callers: tuple[A2A, A2A]) -> None:
    _, node = callers
    broken = await node.send("boom")
    after = await node.send("two", broken["contextId"])
    assert (why(broken), why(after)) == (failed(ErrorClass.BACKEND_FAILED), COMPLETED)


async def test_a_context_is_one_thread_of_the_server(callers: tuple[A2A, A2A]) -> None:
    agent, _ = callers
    first = await agent.send("one")
    second = await agent.send("two", first["contextId"])
    assert [text_of(task) for task in (first, second)] == ["echo one of 1", "echo two of 3"]


async def test_texts_that_grow_are_pieces_of_one_answer(callers: tuple[A2A, A2A]) -> None:
    agent, _ = callers
    async with agent.stream("hello") as stream:
        frames = await stream.rest()
    assert streamed_text(frames) == "echo hello of 1"
    assert sum("artifactUpdate" in frame.event for frame in frames) > 1


async def test_an_interrupt_is_a_question_and_the_next_message_resumes_the_graph(callers: tuple[A2A, A2A]) -> None:
    _, node = callers
    asked = await node.send("ask")
    assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert asked["artifacts"][0]["parts"][0]["data"]["value"] == "Which city?"
    done = await node.send("Oslo", asked["contextId"], taskId=asked["id"])
    assert why(done) == COMPLETED
    assert text_of(done).endswith("Oslo")


async def test_a_run_is_cancelled_at_the_server(callers: tuple[A2A, A2A]) -> None:
    agent, _ = callers
    async with agent.stream("slow one") as stream:
        frames = await stream.read_until(lambda frames: "echo" in streamed_text(frames))
        task = frames[0].event["task"]
        await agent.call("CancelTask", id=task["id"])
        last = (await stream.rest())[-1].event["statusUpdate"]
    assert last["status"]["state"] == "TASK_STATE_CANCELED"
    assert why(await agent.send("two", task["contextId"])) == COMPLETED


async def test_an_answer_is_found_by_a_gateway_that_was_killed(agents: str, tmp_path: Path) -> None:
    async with child_gateways(agents, tmp_path) as start:
        first = await start()
        async with a2a_http(first.url) as http, A2A(http, "agent").stream("slow one") as stream:
            frames = list(await stream.read_until(lambda frames: "echo" in streamed_text(frames)))
            await first.kill()
        second = await start()
        async with a2a_http(second.url) as http:
            agent = A2A(http, "agent")
            async with agent.subscribe(frames[0].event["task"]["id"], after=frames[-1].number) as stream:
                rest = await stream.rest()
    assert streamed_text(frames) + streamed_text(rest) == "echo slow one of 1"
