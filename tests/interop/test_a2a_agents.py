"""Agents of the official SDK behind the gateway: of a2a-sdk 1.3 over each binding, and of 0.3.26."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from adapters.a2a.adapter import A2AAdapter
from adapters.a2a.settings import A2ASettings
from gateway.ports.adapter import ErrorClass
from gateway.ports.capabilities import Ongoing
from gateway.testing.adapter_scripts import collect, completed, request, text
from tests.a2a_client import A2A, COMPLETED, Frame, a2a_http, failed, streamed_text, text_of, why
from tests.interop import peer_processes
from tests.interop.peer_processes import Peer
from tests.running import AT_ONCE, child_gateways, local_gateway
from tests.support.core import query
from tests.support.polling import until
from tests.support.ports import free_port

WAYS = {
    "1.0 JSON-RPC": ("1.0", "transport: JSONRPC"),
    "1.0 HTTP+JSON": ("1.0", "transport: HTTP+JSON"),
    "1.0 gRPC": ("1.0", "transport: GRPC"),
    "1.0 as 0.3": ("1.0", "version: '0.3'"),
    "1.0 whole": ("whole", "transport: JSONRPC"),
    "0.3 JSON-RPC": ("0.3", "poll: 100ms"),
    "0.3 whole": ("0.3 whole", "poll: 100ms"),
}
COUNTED = "".join(f"t{number} " for number in range(6))

Agents: TypeAlias = Callable[[str], Peer]


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    """Starts each agent on its first use."""
    running: dict[str, Peer] = {}
    with ExitStack() as stack:

        def started(kind: str) -> Peer:
            if kind not in running:
                start = peer_processes.a2a_sdk_0_3 if kind.startswith("0.3") else peer_processes.a2a_sdk
                options = ("whole",) if kind.endswith("whole") else ()
                running[kind] = stack.enter_context(start(tmp_path_factory.mktemp("agent"), *options))
            return running[kind]

        yield started


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS))
async def front(request: pytest.FixtureRequest, agents: Agents, tmp_path: Path) -> AsyncIterator[A2A]:
    """A caller of the gateway before an agent."""
    kind, settings = request.param
    async with in_front(agents(kind), tmp_path, settings) as caller:
        yield caller


@asynccontextmanager
async def in_front(peer: Peer, folder: Path, settings: str = "", more: str = "") -> AsyncIterator[A2A]:
    poll = "" if "poll" in settings else ", poll: 100ms"
    agent = f"front: {{type: a2a, url: '{peer.url}'{f', {settings}' if settings else ''}{poll}{more}}}"
    async with local_gateway(agent, folder, pace=AT_ONCE) as gateway, a2a_http(gateway.url) as http:
        yield A2A(http, "front")


async def counted(front: A2A, seen: int, text: str = "slow 6") -> tuple[dict[str, Any], list[Frame]]:
    """The task, and its stream up to this piece."""
    async with front.stream(text) as stream:
        frames = await stream.read_until(lambda frames: f"t{seen} " in streamed_text(frames))
        return frames[0].event["task"], frames


# --- how it fails -----------------------------------------------------------------------------------------------------


async def test_a_task_that_fails_is_one_that_failed_and_the_context_goes_on(front: A2A) -> None:
    broken = await front.send("boom")
    after = await front.send("two", broken["contextId"])
    assert (why(broken), why(after)) == (failed(ErrorClass.BACKEND_FAILED), COMPLETED)
    assert text_of(after) == "2: boom | two"


async def test_an_agent_that_was_restarted_is_told_the_conversation_again(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two", "gateway")]
    for folder in folders:
        folder.mkdir()
    port = free_port()
    with peer_processes.a2a_sdk(folders[0], port=port) as peer:
        async with in_front(peer, folders[2], more=", on_lost_handle: rebuild") as front:
            first = await front.send("one")
    with peer_processes.a2a_sdk(folders[1], port=port):
        async with in_front(peer, folders[2], more=", on_lost_handle: rebuild") as front:
            second = await front.send("two", first["contextId"])
            third = await front.send("three", first["contextId"])
    assert why(second) == COMPLETED
    assert "User: one" in text_of(second)
    assert text_of(third).startswith("2: ")
    assert text_of(third).endswith("two | three")


async def test_an_agent_that_is_gone_cannot_be_reached(tmp_path: Path) -> None:
    with peer_processes.a2a_sdk(tmp_path) as peer:
        pass
    async with in_front(peer, tmp_path) as front:
        assert why(await front.send("one")) == failed(ErrorClass.UNREACHABLE)


# --- turns ------------------------------------------------------------------------------------------------------------


async def test_a_context_is_one_conversation_of_the_agent(front: A2A) -> None:
    first = await front.send("one")
    second = await front.send("two", first["contextId"])
    other = await front.send("three")
    assert [text_of(task) for task in (first, second, other)] == ["1: one", "2: one | two", "1: three"]


async def test_pieces_are_passed_on_as_they_come(front: A2A) -> None:
    async with front.stream("slow 6") as stream:
        frames = await stream.rest()
    assert streamed_text(frames) == COUNTED
    assert sum("artifactUpdate" in frame.event for frame in frames) >= 2


async def test_contexts_at_the_same_time_do_not_mix(front: A2A) -> None:
    tasks = await asyncio.gather(*(front.send(f"n{number}") for number in range(8)))
    assert [text_of(task) for task in tasks] == [f"1: n{number}" for number in range(8)]


async def test_a_message_without_a_task_is_an_answer(front: A2A) -> None:
    first = await front.send("msg")
    second = await front.send("two", first["contextId"])
    assert (text_of(first), text_of(second)) == ("no task for msg", "2: msg | two")


@pytest.mark.parametrize("way", WAYS)
async def test_a_message_without_a_task_is_one_here_where_the_settings_say_so(
    way: str, agents: Agents, tmp_path: Path
) -> None:
    kind, settings = WAYS[way]
    async with in_front(agents(kind), tmp_path, settings, ", direct_replies: true") as front:
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "msg"}]}
        first = (await front.call("SendMessage", message=message))["message"]
        second = await front.send("two", first["contextId"])
        listed = (await front.call("ListTasks"))["tasks"]
    assert first["parts"] == [{"text": "no task for msg"}]
    assert text_of(second) == "2: msg | two"
    assert [task["id"] for task in listed] == [second["id"]]


async def test_a_file_goes_there_and_another_comes_back(front: A2A) -> None:
    file = {"raw": "AAEC", "filename": "x.bin", "mediaType": "image/png"}
    task = await front.send("", parts=[{"text": "file"}, file])
    [answer, made] = task["artifacts"]
    assert answer["parts"][0]["text"].startswith("x.bin image/png")
    assert made["artifactId"] == "f"
    assert made["name"] == "made"
    assert made["parts"] == [{"raw": "AAE=", "filename": "made.bin", "mediaType": "application/octet-stream"}]


async def test_a_question_is_answered_in_its_task(front: A2A) -> None:
    asked = await front.send("ask")
    assert why(asked) == ("TASK_STATE_INPUT_REQUIRED", "Which city?")
    done = await front.send("Oslo", asked["contextId"], taskId=asked["id"])
    assert (why(done), text_of(done)) == (COMPLETED, "2: ask | Oslo")


# --- without a listener -----------------------------------------------------------------------------------------------


async def test_a_cancelled_task_is_cancelled_at_the_agent_and_the_context_goes_on(front: A2A) -> None:
    async with front.stream("slow 100") as stream:
        frames = await stream.read_until(lambda frames: "t1 " in streamed_text(frames))
        task = frames[0].event["task"]
        await front.call("CancelTask", id=task["id"])
        last = (await stream.rest())[-1].event["statusUpdate"]
    assert last["status"]["state"] == "TASK_STATE_CANCELED"
    assert last["metadata"]["backendCancelled"] is True
    after = await front.send("two", task["contextId"])
    assert text_of(after) == "2: slow 100 | two"


@pytest.mark.parametrize("way", WAYS)
async def test_a_question_that_is_cancelled_is_cancelled_at_the_agent(way: str, agents: Agents, tmp_path: Path) -> None:
    kind, settings = WAYS[way]
    database = tmp_path / "gateway.db"
    async with in_front(agents(kind), tmp_path, settings) as front:
        asked = await front.send("ask")
        await front.call("CancelTask", id=asked["id"])
        await until(lambda: query(database, "SELECT id FROM withdrawal") == [])
        [names] = query(database, "SELECT handle_out, run FROM service_call")
        after = await front.send("two", asked["contextId"])
    adapter = A2AAdapter(
        A2ASettings.model_validate({"url": agents(kind).url, **dict([settings.replace("'", "").split(": ")])})
    )
    found = await adapter.fetch(Ongoing(*names))
    await adapter.aclose()
    assert text(found.events) == "(the task is canceled)"
    assert text_of(after) == "2: ask | two"


async def test_a_caller_that_comes_back_hears_the_rest(front: A2A) -> None:
    task, frames = await counted(front, 2)
    async with front.subscribe(task["id"], after=frames[-1].number) as stream:
        rest = await stream.rest()
    assert streamed_text(frames) + streamed_text(rest) == COUNTED


@pytest.mark.parametrize("transport", ["JSONRPC", "HTTP+JSON", "GRPC"])
async def test_a_message_whose_task_nobody_has_heard_of_is_found(transport: str, agents: Agents) -> None:
    settings = {"url": agents("1.0").url, "transport": transport}
    adapter = A2AAdapter(A2ASettings.model_validate(settings))
    first = completed(await collect(adapter, request("one")))
    asked = request("two", handle=first.handle, state=first.state)
    await collect(adapter, asked)
    tail = await adapter.tail(asked)
    await adapter.aclose()
    assert tail is not None
    assert (tail.held, text(tail.answer)) == (1, "2: one | two")


@pytest.mark.parametrize("way", ["1.0 JSON-RPC", "1.0 HTTP+JSON", "1.0 gRPC", "0.3 JSON-RPC"])
async def test_a_task_goes_on_in_a_gateway_that_was_killed(way: str, agents: Agents, tmp_path: Path) -> None:
    """What the agent said while no gateway listened is neither lost nor said twice, in 0.3 either."""
    kind, settings = WAYS[way]
    config = (
        f"front: {{type: a2a, url: '{agents(kind).url}', {settings}{'' if 'poll' in settings else ', poll: 100ms'}}}"
    )
    async with child_gateways(config, tmp_path) as start:
        first = await start()
        async with a2a_http(first.url) as http, A2A(http, "front").stream("slow 30") as stream:
            frames = list(await stream.read_until(lambda frames: "t5 " in streamed_text(frames)))
            await first.kill()
        second = await start()
        async with a2a_http(second.url) as http:
            front = A2A(http, "front")
            async with front.subscribe(frames[0].event["task"]["id"], after=frames[-1].number) as stream:
                rest = await stream.rest()
            after = await front.send("two", frames[0].event["task"]["contextId"])
    assert streamed_text(frames) + streamed_text(rest) == "".join(f"t{number} " for number in range(30))
    assert text_of(after) == "2: slow 30 | two"
