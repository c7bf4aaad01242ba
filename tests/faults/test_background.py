"""`kill -9` of the gateway, of its backend's stream and of both, in the middle of an answer that continues in the
background."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, Frame, a2a_http, failed, streamed_text, text_of, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Conversation, Cut, Pause, Restarted, Say, ServerTool, Step
from tests.faults.unfinished import expire_leases
from tests.invariants import violations
from tests.running import Child, child_gateways

pytestmark = [pytest.mark.xdist_group("kill"), pytest.mark.fault("K5", "K9")]


class Backend:
    """Says "one two ", then what its text asks for, then the rest when `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.server = ResponsesServer(self._script)

    def _script(self, conversation: Conversation) -> Iterator[Step]:
        text = conversation.text
        if text == "next":
            yield Say(" | ".join(conversation.user_texts))
            return
        yield Say("one ")
        yield Say("two ")
        if "tool" in text:
            yield ServerTool("mcp", "lookup", {"city": "Oslo"}, "3C", during=Pause(self.go_on))
        else:
            yield Pause(self.go_on)
        if "cut" in text:
            yield Cut()
        if "other" in text:
            yield Restarted()
            yield Say("uno ")
            yield Say("due ")
        yield Say("three")


ANSWERS = {
    "plain": "one two three",
    "tool": "one two three",
    "cut and other": "uno due three",
}


def folded(frames: list[Frame]) -> str:
    """The answer of who follows the log: a new version of the artifact takes the place of the old one."""
    text = ""
    for frame in frames:
        update = frame.event.get("artifactUpdate")
        if update is not None:
            said = "".join(part.get("text", "") for part in update["artifact"]["parts"])
            text = text + said if update.get("append") else said
    return text


def requested(frames: list[Frame]) -> list[str]:
    """The id of each event that shows a tool call with all arguments."""
    told = []
    for frame in frames:
        message = frame.event.get("statusUpdate", {}).get("status", {}).get("message", {})
        parts = [part for part in message.get("parts", ()) if part.get("metadata", {}).get("type") == "function_call"]
        told += [part["data"]["id"] for part in parts]
    return told


async def _until_killed(backend: Backend, child: Child, text: str) -> list[Frame]:
    async with a2a_http(child.url) as http, A2A(http, "hosted").stream(text) as stream:
        await stream.read_until(
            lambda frames: (
                streamed_text(frames) == "one two " and ("tool" not in text or "executing" in str(frames[-1]))
            )
        )
        await child.kill()
        return await stream.rest()


@pytest.mark.parametrize("text", ANSWERS)
async def test_a_turn_outlives_its_process_with_one_whole_answer(tmp_path: Path, text: str) -> None:
    backend = Backend()
    async with serve(backend.server.app) as url:
        agent = f"hosted: {{type: openai-responses, model: m, base_url: '{url}/v1', background: true}}"
        async with child_gateways(agent, tmp_path) as start:
            seen = await _until_killed(backend, await start(), text)
            child = await start()
            backend.go_on.set()
            async with a2a_http(child.url) as http:
                caller = A2A(http, "hosted")
                name = seen[0].event["task"]["id"]
                async with caller.subscribe(name, after=0) as stream:
                    log = [frame for frame in await stream.rest() if frame.number]
                task = await caller.get(name)
                following = await caller.send("next", task["contextId"])
    assert why(task) == COMPLETED
    assert text_of(task) == folded(log) == ANSWERS[text]
    assert log[: len(seen) - 1] == [frame for frame in seen if frame.number]
    assert [frame.number for frame in log] == list(range(1, len(log) + 1))
    assert len(requested(log)) == ("tool" in text)
    assert text_of(following) == f"{text} | next"
    [first, second] = backend.server.requests
    assert second["previous_response_id"] in backend.server.stored
    assert first["background"] is True
    assert violations(tmp_path / "gateway.db") == []


@pytest.mark.parametrize("text", ["plain", "tool"])
async def test_a_response_that_is_gone_when_its_process_comes_back_fails_the_task(tmp_path: Path, text: str) -> None:
    backend = Backend()
    async with serve(backend.server.app) as url:
        agent = f"hosted: {{type: openai-responses, model: m, base_url: '{url}/v1', background: true}}"
        async with child_gateways(agent, tmp_path) as start:
            seen = await _until_killed(backend, await start(), text)
            backend.server.stored.clear()
            child = await start()
            async with a2a_http(child.url) as http:
                caller = A2A(http, "hosted")
                name = seen[0].event["task"]["id"]
                async with caller.subscribe(name, after=0) as stream:
                    await stream.rest()
                task = await caller.get(name)
    assert why(task) == failed(ErrorClass.BACKEND_FAILED)
    assert text_of(task) == "one two "
    assert violations(tmp_path / "gateway.db") == []


async def test_a_call_of_the_backends_has_an_outcome_when_its_task_is_cancelled_behind_a_kill(tmp_path: Path) -> None:
    backend = Backend()
    async with serve(backend.server.app) as url:
        agent = f"hosted: {{type: openai-responses, model: m, base_url: '{url}/v1', background: true}}"
        async with child_gateways(agent, tmp_path, lease="10s") as start:
            seen = await _until_killed(backend, await start(), "tool")
            # A cancel waits for as long as two leases last for what has become of the dead process.
            expire_leases(tmp_path / "gateway.db")
            child = await start()
            async with a2a_http(child.url) as http:
                caller = A2A(http, "hosted")
                task = await caller.call("CancelTask", id=seen[0].event["task"]["id"])
                ended = await caller.get(task["id"])
    facts = [
        fact for entry in ended["history"] for part in entry["parts"] for fact in part.get("metadata", {}).values()
    ]
    phases = [fact["phase"] for fact in facts if isinstance(fact, dict) and "phase" in fact]
    assert (ended["status"]["state"], phases) == ("TASK_STATE_CANCELED", ["requested", "interrupted"])
    assert violations(tmp_path / "gateway.db") == []
