"""`kill -9` of a gateway whose agent may answer with a bare message: who was told of a task finds it, also while another
process still waits for the lease of the dead one."""

import asyncio
from pathlib import Path

import httpx2
import pytest

from gateway.ledger.calls import RESTARTED
from tests.a2a_client import A2A, Json, a2a_http, failed, text_of, user_message, why
from tests.running import child_gateways
from tests.support.polling import until

pytestmark = [pytest.mark.xdist_group("kill"), pytest.mark.fault("K5")]

SHY = """
import asyncio
from pathlib import Path
from gateway.agent import DirectMessage, Status

async def reply(turn):
    if turn.text == "hello":
        yield DirectMessage("hi")
        return
    if turn.text == "works":
        yield Status("looking")
        await asyncio.Event().wait()
    if turn.text == "talks":
        yield "one "
        await asyncio.Event().wait()
    Path(__file__).with_name("called").touch()
    await asyncio.Event().wait()
"""
AGENTS = "shy: {type: python, ref: './shy.py:reply', direct_replies: true}"


@pytest.mark.parametrize(("message", "said"), [("works", ""), ("talks", "one ")])
async def test_a_task_that_was_told_is_found_in_every_process_and_after_a_kill(
    tmp_path: Path, message: str, said: str
) -> None:
    (tmp_path / "shy.py").write_text(SHY)
    async with child_gateways(AGENTS, tmp_path, lease="4s") as start:
        dying, other = await start(), await start()
        async with a2a_http(dying.url) as http:
            at_once = {"returnImmediately": True}
            sent = await A2A(http, "shy").call("SendMessage", message=user_message(message), configuration=at_once)
        task = sent["task"]["id"]
        async with a2a_http(other.url) as http:
            shy = A2A(http, "shy")
            await _finds(shy, sent["task"], said)
            await dying.kill()
            await _finds(shy, sent["task"], said)
            async with shy.subscribe(task) as stream:
                frames = await stream.rest()
            assert frames[-1].event["statusUpdate"]["status"]["state"] == "TASK_STATE_FAILED"
            ended = await shy.get(task)
            assert (why(ended), text_of(ended)) == (failed(RESTARTED), said)
            assert (await shy.call("SendMessage", message=user_message("hello")))["message"]["parts"] == [
                {"text": "hi"}
            ]
            assert [each["id"] for each in (await shy.call("ListTasks"))["tasks"]] == [task]


async def _finds(shy: A2A, told: dict[str, str], said: str) -> None:
    found = await shy.get(told["id"])
    assert (found["status"]["state"], text_of(found)) == ("TASK_STATE_WORKING", said)
    assert [each["id"] for each in await shy.tasks(told["contextId"])] == [told["id"]]


async def test_a_task_of_which_nobody_was_told_is_found_when_it_has_failed(tmp_path: Path) -> None:
    (tmp_path / "shy.py").write_text(SHY)
    async with child_gateways(AGENTS, tmp_path, lease="4s") as start:
        dying, other = await start(), await start()
        async with a2a_http(dying.url) as http, a2a_http(other.url) as http_other:
            message, shy = user_message("thinks"), A2A(http_other, "shy")
            async with asyncio.TaskGroup() as group:
                sending = group.create_task(_sent_until_cut(A2A(http, "shy"), message))
                await until((tmp_path / "called").exists)
                for each in (A2A(http, "shy"), shy):
                    assert (await each.call("ListTasks"))["tasks"] == []
                await dying.kill()
            assert sending.result() is None
            http_other.headers["Idempotency-Key"] = "k"
            task = (await shy.call("SendMessage", message=message))["task"]
            assert why(task) == failed(RESTARTED)
            assert [each["id"] for each in (await shy.call("ListTasks"))["tasks"]] == [task["id"]]


async def _sent_until_cut(shy: A2A, message: Json) -> Json | None:
    shy.http.headers["Idempotency-Key"] = "k"
    try:
        return await shy.call("SendMessage", message=message)
    except httpx2.TransportError:
        return None
