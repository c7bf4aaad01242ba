"""A Foundry hosted agent that continues in the background and recovers from its own crash, behind a gateway with the same
promise: whichever of them is killed in the middle of an answer, its caller gets one whole answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.a2a_client import A2A, COMPLETED, Frame, a2a_http, streamed_text, text_of, why
from tests.interop import peer_processes
from tests.interop.peer_processes import Peer
from tests.invariants import violations
from tests.running import child_gateways

pytestmark = pytest.mark.xdist_group("peers")

WHOLE = "".join(f"tick{number} " for number in range(40))


class Hosted:
    """A hosted agent that can be killed and started again; what it keeps is on disk."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._stack = ExitStack()
        self.peer: Peer

    def start(self, port: int | None = None) -> None:
        self.peer = self._stack.enter_context(peer_processes.agentserver(self._directory, "resilient", port))

    def kill(self) -> None:
        self._stack.close()

    def start_again(self) -> None:
        self.start(int(self.peer.origin.rpartition(":")[2]))


@asynccontextmanager
async def hosted_agent(directory: Path) -> AsyncIterator[Hosted]:
    hosted = Hosted(directory)
    hosted.start()
    try:
        yield hosted
    finally:
        hosted.kill()


def folded(frames: list[Frame]) -> str:
    """The answer for a reader of the stream: a new version of the artifact replaces the old one."""
    text = ""
    for frame in frames:
        task = frame.event.get("task")
        update = frame.event.get("artifactUpdate")
        if task is not None:
            text = text_of(task)
        elif update is not None:
            said = "".join(part.get("text", "") for part in update["artifact"]["parts"])
            text = text + said if update.get("append") else said
    return text


@pytest.mark.parametrize("killed", ["gateway", "backend", "both"])
async def test_whoever_is_killed_in_mid_stream_the_caller_ends_with_one_whole_answer(
    tmp_path: Path, killed: str
) -> None:
    async with hosted_agent(tmp_path / "hosted") as hosted:
        agent = f"hosted: {{type: openai-responses, model: m, base_url: '{hosted.peer.url}', background: true}}"
        async with child_gateways(agent, tmp_path) as start:
            child = await start()
            async with a2a_http(child.url) as http, A2A(http, "hosted").stream("slow") as stream:
                await stream.read_until(lambda frames: "tick5 " in streamed_text(frames))
                if killed != "backend":
                    await child.kill()
                if killed != "gateway":
                    await asyncio.to_thread(hosted.kill)
                    if killed == "backend":
                        await asyncio.to_thread(hosted.start_again)
                seen = await stream.rest()
            if killed != "backend":
                child = await start()
            if killed == "both":
                await asyncio.to_thread(hosted.start_again)
            async with a2a_http(child.url) as http:
                caller = A2A(http, "hosted")
                name = seen[0].event["task"]["id"]
                async with caller.subscribe(name, after=0) as stream:
                    whole = await stream.rest()
                task = await caller.get(name)
                following = await caller.send("and now", task["contextId"])
    assert why(task) == COMPLETED
    assert text_of(task) == WHOLE
    assert folded(whole) == WHOLE
    shown, logged = ([frame for frame in frames if frame.number] for frames in (seen, whole))
    assert logged[: len(shown)] == shown
    assert text_of(following) == "echo 'and now' history=2 conversation=None"
    assert violations(tmp_path / "gateway.db") == []
