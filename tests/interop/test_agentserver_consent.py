"""A Foundry hosted agent that needs its user's consent at a third party, asked as Microsoft's hosting library asks: from the
link to the answer, with somebody who opens the page."""

from typing import Any

import httpx2
import pytest

from gateway.a2a.tool_calls import URI
from tests.a2a_client import A2A, COMPLETED, a2a_http, text_of, why
from tests.interop.recording_proxy import RecordingProxy
from tests.interop.responses_bodies import response_ids, steps, user
from tests.running import StartLocal

WAITS = "TASK_STATE_AUTH_REQUIRED"


def _page(task: dict[str, Any]) -> str:
    assert task["status"]["state"] == WAITS
    message = task["status"]["message"]
    [link] = message["metadata"][URI]["consent"]["links"]
    assert link["server"] == "mcp:mail"
    assert message["parts"][-1]["text"] == link["url"]
    return str(link["url"])


async def _open(page: str) -> None:
    async with httpx2.AsyncClient(trust_env=False) as browser:
        (await browser.get(page)).raise_for_status()


@pytest.mark.parametrize("name", ["incomplete", "complete"])
async def test_the_answer_follows_once_the_page_was_opened(
    agentserver_proxy: RecordingProxy, start_local: StartLocal, name: str
) -> None:
    who = f"ada-{name.replace('incomplete', 'cut')}"
    gateway = await start_local(f"hosted: {{type: openai-responses, model: m, base_url: '{agentserver_proxy.url}'}}")
    async with a2a_http(gateway.url) as http:
        hosted = A2A(http, "hosted")
        async with hosted.stream(f"mail as {who}") as stream:
            last = (await stream.rest())[-1].event["statusUpdate"]
        assert last["status"]["state"] == WAITS
        asked = await hosted.get(last["taskId"])
        again = await hosted.send("I have not, but go on", asked["contextId"], taskId=asked["id"])
        assert _page(again) == _page(asked)
        await _open(_page(again))
        done = await hosted.send("I have consented", asked["contextId"], taskId=asked["id"])

    closed = [exchange.events[-1]["type"] for exchange in agentserver_proxy.exchanges]
    assert closed[:2] == [f"response.{'completed' if name == 'complete' else 'incomplete'}"] * 2
    assert why(done) == COMPLETED
    assert text_of(done).startswith("echo 'I have consented' history=")
    ids = response_ids(agentserver_proxy)
    assert steps(agentserver_proxy) == [
        (None, [user(f"mail as {who}")]),
        (ids[0], [user("I have not, but go on")]),
        (ids[1], [user("I have consented")]),
    ]
    assert not any(each.encode() in hosted.seen for each in ids)
    assert b"oauth_" not in hosted.seen
