"""A background response in a conversation whose name was not read: where the service lists responses it is found, and listened
to or ended; where it does not, the conversation is in use until it ends, and callers are told so."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.core.failures import safe_text
from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, text_of, why
from tests.emulators.foundry import AGENT, PROJECT, FoundryServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Conversation, Pause, Say, Step
from tests.running import AT_ONCE, local_gateway
from tests.support.core import until

HELD = "conversation: true, background: true"


class Slow:
    """A server whose answer to `slow` is held back, and whose name nobody reads."""

    def __init__(self, kind: type[ResponsesServer]) -> None:
        self.going_on = asyncio.Event()
        self.server = kind(self._script)

    async def _script(self, conversation: Conversation) -> AsyncGenerator[Step]:
        yield Say("Well, ")
        if conversation.text == "slow":
            yield Pause(self.going_on)
        yield Say("yes.")

    def statuses(self) -> list[str]:
        return [stored.body["status"] for stored in self.server.stored.values()]


@asynccontextmanager
async def talking(slow: Slow, directory: Path) -> AsyncIterator[A2A]:
    foundry = isinstance(slow.server, FoundryServer)
    async with serve(slow.server.app) as url:
        where = f"endpoint: '{url}{PROJECT}', agent: {AGENT}" if foundry else f"model: m, base_url: '{url}/v1'"
        kind = "foundry" if foundry else "openai-responses"
        agents = f"a: {{type: {kind}, {where}, api_key: key-of-the-test, {HELD}}}"
        async with local_gateway(agents, directory, pace=AT_ONCE) as gateway, a2a_http(gateway.url) as http:
            yield A2A(http, "a")


@pytest.mark.parametrize("turn", [1, 2])
async def test_a_response_in_a_list_is_listened_to_in_the_same_turn(tmp_path: Path, turn: int) -> None:
    slow = Slow(FoundryServer)
    async with talking(slow, tmp_path) as agent:
        for _ in range(turn - 1):
            await agent.send("one", "c")
        slow.server.unheard = True
        async with agent.stream("slow", "c") as stream:
            await stream.read_until(lambda frames: "Well" in str(frames))
            slow.going_on.set()
            frames = await stream.rest()
        task = await agent.get(frames[0].event["task"]["id"])
        slow.server.unheard = False
        assert (why(task), text_of(task)) == (COMPLETED, "Well, yes.")
        assert why(await agent.send("two", "c")) == COMPLETED
    assert slow.statuses() == ["completed"] * (turn + 1)


async def test_a_response_in_no_list_locks_its_conversation_until_it_ends_and_is_then_a_part_of_it(
    tmp_path: Path,
) -> None:
    slow = Slow(ResponsesServer)
    async with talking(slow, tmp_path) as agent:
        await agent.send("one", "c")
        slow.server.unheard = True
        assert why(await agent.send("slow", "c")) == failed(ErrorClass.INTERRUPTED)
        slow.server.unheard = False
        locked = await agent.send("two", "c")
        assert why(locked) == failed(ErrorClass.LOCKED)
        [part] = locked["status"]["message"]["parts"]
        assert part["text"].startswith(safe_text(ErrorClass.LOCKED, "").partition(" (")[0])
        assert "when what runs in it has ended" in part["text"]
        assert slow.statuses() == ["completed", "in_progress"]
        slow.going_on.set()
        await until(lambda: "in_progress" not in slow.statuses())
        assert text_of(await agent.send("three", "c")) == "Well, yes."
    last = slow.server.requests[-1]["input"]
    assert "two" in str(last)
    assert "slow" not in str(last)
