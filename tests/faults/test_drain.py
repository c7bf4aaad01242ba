"""SIGTERM and SIGINT: the gateway accepts no more messages, lets its turns end, and exits cleanly."""

import asyncio
import re
import signal
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from a2a.types import a2a_pb2
from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]

from gateway.grpc.status import details_of
from gateway.ledger.calls import RESTARTED
from tests.a2a_client import A2A, COMPLETED, Refused, a2a_http, failed, streamed_text, text_of, user_message, why
from tests.faults.paused_agents import AGENTS, PausedAgents, paused_agents
from tests.running import StartChild, child_gateways

pytestmark = [pytest.mark.xdist_group("drain"), pytest.mark.fault("K13")]


@dataclass(frozen=True, slots=True)
class Process:
    held: PausedAgents
    start: StartChild


@pytest.fixture
async def process(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncGenerator[Process]:
    """Gateways on one database; a parameter is the grace of their shutdown."""
    grace = getattr(request, "param", "30s")
    settings = f"server: {{port: 0, shutdown_grace: {grace}, grpc: {{port: 0}}}}"
    async with AsyncExitStack() as stack:
        held = await stack.enter_async_context(paused_agents(tmp_path))
        yield Process(held, await stack.enter_async_context(child_gateways(held.agents, tmp_path, settings=settings)))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_gateway_ends_at_once(process: Process, number: signal.Signals) -> None:
    child = await process.start()
    async with a2a_http(child.url) as http:
        assert (await http.get("/readyz")).status_code == 200
        child.signal(number)
        assert await child.ended() == 0


async def _new_message_is_refused(http: httpx2.AsyncClient) -> bool:
    refused = await http.post("/a2a/function/message:send", json={"message": user_message("hi")})
    return refused.status_code == 503 and "retry-after" in refused.headers


@pytest.mark.parametrize("agent", AGENTS)
async def test_a_running_turn_ends_in_peace_and_its_stream_can_be_resumed(process: Process, agent: str) -> None:
    child, text = await process.start(), f"talking {agent}"
    async with a2a_http(child.url) as http:
        async with A2A(http, agent).stream(text) as stream:
            await stream.read_until(lambda frames: streamed_text(frames) == "one two ")
            await process.held.arrived[text].wait()
            child.signal(signal.SIGTERM)
            seen = await stream.rest()
        ready = await http.get("/readyz")
        refused = await _new_message_is_refused(http)
        task = seen[0].event["task"]
        still = await A2A(http, agent).get(task["id"])
        process.held.go_on[text].set()
        code = await child.ended()
    again = await process.start()
    async with a2a_http(again.url) as http, A2A(http, agent).subscribe(task["id"], seen[-1].number) as resumed:
        rest = await resumed.rest()

    assert not stream.cut
    assert stream.comments == [": draining"]
    assert (ready.status_code, refused, still["status"]["state"]) == (503, True, "TASK_STATE_WORKING")
    assert code == 0
    assert [frame.number for frame in rest[1:]] == [len(seen), len(seen) + 1]
    assert streamed_text([*seen, *rest]) == "one two three"
    assert why(rest[-1].event["statusUpdate"]) == COMPLETED


async def test_a_gateway_that_drains_sends_its_callers_to_another_connection(process: Process) -> None:
    child, text = await process.start(), "talking function"
    async with a2a_http(child.url) as http:
        async with A2A(http, "function").stream(text) as stream:
            await process.held.arrived[text].wait()
            before = await http.get("/livez")
            child.signal(signal.SIGTERM)
            await stream.rest()
        during = [await http.get("/livez") for _ in range(2)]
        process.held.go_on[text].set()
        assert await child.ended() == 0

    assert "connection" not in before.headers
    assert [answer.headers.get("connection") for answer in during] == ["close", "close"]


async def _left_unfinished(process: Process, signals: int) -> None:
    child, text = await process.start(), "talking function"
    async with a2a_http(child.url) as http, A2A(http, "function").stream(text) as stream:
        await stream.read_until(lambda frames: streamed_text(frames) == "one two ")
        await process.held.arrived[text].wait()
        child.signal(signal.SIGTERM)
        seen = await stream.rest()
        for _ in range(signals - 1):
            child.signal(signal.SIGTERM)
    assert await child.ended() == 0

    again = await process.start()
    async with a2a_http(again.url) as http:
        caller = A2A(http, "function")
        task = seen[0].event["task"]["id"]
        async with caller.subscribe(task, seen[-1].number) as resumed:
            rest = await resumed.rest()
        stored = await caller.get(task)
    assert why(rest[-1].event["statusUpdate"]) == why(stored) == failed(RESTARTED)
    assert text_of(stored) == "one two "


async def test_a_second_signal_means_now(process: Process) -> None:
    await _left_unfinished(process, signals=2)


@pytest.mark.parametrize("process", ["200ms"], indirect=True)
async def test_a_turn_that_outlasts_the_grace_is_left_to_the_next_process(process: Process) -> None:
    await _left_unfinished(process, signals=1)


async def _by_rpc(http: httpx2.AsyncClient, text: str, context: str) -> dict[str, Any]:
    """The ErrorInfo of the refusal."""
    with pytest.raises(Refused) as caught:
        await A2A(http, "function").send(text, context)
    found: dict[str, Any] = caught.value.error["data"][0]
    return found


async def _by_rest(http: httpx2.AsyncClient, text: str, context: str) -> dict[str, Any]:
    answer = await http.post("/a2a/function/message:send", json={"message": user_message(text, context)})
    assert answer.status_code == 500
    found: dict[str, Any] = answer.json()["error"]["details"][0]
    return found


async def _by_grpc(http: httpx2.AsyncClient, text: str, context: str) -> dict[str, Any]:
    card = (await http.get("/a2a/function/.well-known/agent-card.json")).json()
    [at] = [each for each in card["supportedInterfaces"] if each["protocolBinding"] == "GRPC"]
    request = ParseDict({"tenant": at["tenant"], "message": user_message(text, context)}, a2a_pb2.SendMessageRequest())
    async with grpc.aio.insecure_channel(at["url"]) as channel:
        method: Any = channel.unary_unary("/lf.a2a.v1.A2AService/SendMessage")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await method(request.SerializeToString(), metadata=(("a2a-version", "1.0"),))
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    [found] = details_of(tuple(caught.value.trailing_metadata() or ()))
    return found


@pytest.mark.parametrize("process", ["1s"], indirect=True)
async def test_callers_that_wait_when_the_grace_is_over_hear_that_their_messages_were_accepted(
    process: Process,
) -> None:
    child = await process.start()
    async with a2a_http(child.url) as http, asyncio.TaskGroup() as group:
        caller, bindings = A2A(http, "function"), {"rpc": _by_rpc, "rest": _by_rest, "grpc": _by_grpc}
        waiting = []
        for name, send in bindings.items():
            text = f"silent {name}"
            waiting.append(group.create_task(send(http, text, name)))
            await process.held.arrived[text].wait()
            waiting.append(group.create_task(send(http, "queued", name)))
            async with asyncio.timeout(20):
                while len(await caller.tasks(name)) < 2:
                    pass
        stored = [task["id"] for name in bindings for task in reversed(await caller.tasks(name))]
        child.signal(signal.SIGTERM)
        told = [await each for each in waiting]
        assert await child.ended() == 0
    assert [(info["reason"], info["metadata"]) for info in told] == [
        ("UNANSWERED", {"taskId": task}) for task in stored
    ]
    assert b"Traceback" not in child.output
    statuses = re.findall(rb'"operation":"SendMessage","error":"UNANSWERED","status":(\d+)', child.output)
    assert sorted(statuses) == [b"200", b"200", b"500", b"500", b"500", b"500"]


@pytest.mark.parametrize("process", ["200ms"], indirect=True)
async def test_what_had_not_begun_when_the_grace_was_over_runs_in_the_next_process(process: Process) -> None:
    child, text = await process.start(), "talking function"
    async with a2a_http(child.url) as http:
        caller = A2A(http, "function")
        async with caller.stream(text, "c") as stream:
            await stream.read_until(lambda frames: streamed_text(frames) == "one two ")
            queued = {"returnImmediately": True}
            message = user_message("more", "c")
            waiting = (await caller.call("SendMessage", message=message, configuration=queued))["task"]
            child.signal(signal.SIGTERM)
            await stream.rest()
    assert await child.ended() == 0

    again = await process.start()
    async with a2a_http(again.url) as http:
        caller = A2A(http, "function")
        async with caller.subscribe(waiting["id"], after=0) as resumed:
            rest = await resumed.rest()
        stored = await caller.get(waiting["id"])
    assert why(rest[-1].event["statusUpdate"]) == why(stored) == COMPLETED
    assert text_of(stored) == f"{text} | more"
