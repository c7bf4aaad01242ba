"""Two gateways on one database: whatever began at one goes on at the other."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

from gateway.testing.serving import serve
from tests.a2a_client import COMPLETED, Frame, streamed_text, text_of, user_message, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Say, in_rounds
from tests.faults.paused_agents import AGENTS, paused_agents
from tests.faults.postgres.replicas import Replica, replicas
from tests.receiver import LOOPBACK, receiving
from tests.support.polling import until

_TOOL = '''
def book(hotel: str) -> str:
    """Books a room."""
    return f"booked {hotel}"
'''

_TOOL_CALLS = "https://a2a-gateway.dev/extensions/tool-calls/v1"


def _numbers(frames: list[Frame]) -> list[int]:
    return [frame.number for frame in frames if frame.number is not None and "task" not in frame.event]


async def test_a_stream_is_resumed_at_the_other_replica_without_gap_or_repeat(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        asyncio.timeout(60),
        paused_agents(tmp_path) as held,
        replicas(tmp_path, f"url: '{database_url}'", held.agents) as start,
    ):
        one, two = await start(), await start()
        for agent in AGENTS:
            text = f"talking {agent}"
            async with one.agent(agent).stream(text) as whole:
                await whole.read_until(lambda frames: streamed_text(frames) == "one two ")
                task = whole.frames[0].event["task"]["id"]
                begun = list(whole.frames)
                async with two.agent(agent).subscribe(task, after=begun[1].number) as resumed:
                    await resumed.read_until(lambda frames: bool(_numbers(frames)))
                    held.go_on[text].set()
                    await resumed.rest()
                await whole.rest()
            tail = [frame for frame in resumed.frames if "task" not in frame.event]
            expected = [frame for frame in whole.frames[2:] if "task" not in frame.event]
            assert tail == expected
            numbers = _numbers(whole.frames)
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
            assert streamed_text(whole.frames) == "one two three"
            assert await one.agent(agent).get(task) == await two.agent(agent).get(task)


async def test_a_turn_is_cancelled_at_the_other_replica(tmp_path: Path, database_url: str) -> None:
    async with (
        asyncio.timeout(60),
        paused_agents(tmp_path) as held,
        replicas(tmp_path, f"url: '{database_url}'", held.agents) as start,
    ):
        one, two = await start(), await start()
        for agent in AGENTS:
            async with one.agent(agent).stream(f"talking {agent}", agent) as stream:
                await stream.read_until(lambda frames: streamed_text(frames) == "one two ")
                task = stream.frames[0].event["task"]["id"]
                cancelled = await two.agent(agent).call("CancelTask", id=task)
                await stream.rest()
            assert cancelled["status"]["state"] == "TASK_STATE_CANCELED"
            assert stream.frames[-1].event["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
            assert await one.agent(agent).get(task) == await two.agent(agent).get(task)
            assert why(await two.agent(agent).send("next", agent)) == COMPLETED


async def test_a_call_that_one_replica_asked_about_is_approved_at_the_other(tmp_path: Path, database_url: str) -> None:
    (tmp_path / "desk.py").write_text(_TOOL)
    server = ResponsesServer(in_rounds([Call("book", {"hotel": "Ritz"})], [Say("All done.")]))
    async with asyncio.timeout(60), serve(server.app) as backend:
        agents = (
            f"hotel: {{type: openai-responses, model: m, base_url: '{backend}/v1', tools: [desk], "
            "approvals: [{tool: 'desk.*'}]}"
        )
        tools = "tools: {desk: {type: python, ref: './desk.py:book'}}"
        async with replicas(tmp_path, f"url: '{database_url}'", agents, settings=tools) as start:
            one, two = await start(), await start()
            asked = await one.agent("hotel").send("Book the Ritz.", "c")
            assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
            [call] = asked["status"]["message"]["metadata"][_TOOL_CALLS]["approval"]["tools"]
            decision = {"approvals": [{"id": call["id"], "approved": True}]}
            async with one.agent("hotel").subscribe(asked["id"]) as stream:
                await stream.read(1)
                answer = await two.agent("hotel").send("", "c", taskId=asked["id"], parts=[{"data": decision}])
                await stream.rest()
            assert (why(answer), text_of(answer)) == (COMPLETED, "All done.")
            assert stream.frames[-1].event["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"


async def test_each_event_is_posted_once_whichever_replica_runs_the_turn(tmp_path: Path, database_url: str) -> None:
    push = f"push: {{{LOOPBACK}}}"
    async with (
        asyncio.timeout(60),
        receiving() as receiver,
        paused_agents(tmp_path) as held,
        replicas(tmp_path, f"url: '{database_url}'", held.agents, settings=push) as start,
    ):
        one, two = await start(), await start()
        text = "talking function"
        sent = await one.agent("function").call(
            "SendMessage", message=user_message(text), configuration={"returnImmediately": True}
        )
        task = sent["task"]["id"]
        await held.arrived[text].wait()
        config: dict[str, Any] = {"taskId": task, "id": "hook", "url": f"{receiver.url}/hook"}
        await two.agent("function").call("CreateTaskPushNotificationConfig", **config)
        held.go_on[text].set()
        letters = await receiver.ended(30)
        assert len({letter.body for letter in letters}) == len(letters)
        await until(partial(_is_delivered, one))


async def _is_delivered(replica: Replica) -> bool:
    return not (await replica.http.get("/admin/api/v1/push")).json()["configs"]
