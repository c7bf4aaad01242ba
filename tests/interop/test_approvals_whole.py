"""A Responses server that asks before it runs a tool of its own, and a caller who answers, all over the wire."""

from typing import Any

import pytest

from gateway.a2a.tool_calls import URI
from tests.a2a_client import A2A, COMPLETED, a2a_http, text_of, why
from tests.interop.peer_processes import Peer
from tests.running import StartLocal

_REPORT = "Oslo 3C, Rome 18C."
_HELLO = "Hello from aimock, a longer reply so that several chunks are streamed."
WAITS = "TASK_STATE_INPUT_REQUIRED"


def _agents(ogx: Peer, mcp: Peer, owner: str) -> str:
    tool = f"{{type: mcp, server_label: wx, server_url: '{mcp.url}', require_approval: always}}"
    return (
        f"asking: {{type: openai-responses, model: openai/gpt-4, base_url: '{ogx.url}', "
        f"history: {{owner: {owner}}}, service_tools: [{tool}]}}"
    )


def _asked(task: dict[str, Any]) -> list[dict[str, Any]]:
    approval: dict[str, Any] = task["status"]["message"]["metadata"][URI]["approval"]
    tools: list[dict[str, Any]] = approval["tools"]
    return tools


def _decisions(*decided: tuple[str, bool]) -> dict[str, Any]:
    answers = [{"id": call, "approved": yes, "reason": "because"} for call, yes in decided]
    return {"parts": [{"data": {"approvals": answers}}]}


def _ran(task: dict[str, Any]) -> list[str]:
    parts = [part for message in task["history"] for part in message["parts"] if "response" in part.get("data", {})]
    return sorted(
        part["data"]["response"].get("result", "")
        for part in parts
        if part["metadata"][URI]["phase"] == "succeeded" and part["metadata"][URI]["server"] == "mcp:wx"
    )


@pytest.fixture(params=["backend", "gateway"])
async def agents(request: pytest.FixtureRequest, ogx_peer: Peer, mcp_peer: Peer) -> str:
    return _agents(ogx_peer, mcp_peer, request.param)


async def test_what_is_allowed_runs_at_the_backend_and_the_answer_follows(agents: str, start_local: StartLocal) -> None:
    gateway = await start_local(agents)
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, "asking")
        asked = await caller.send("weather")
        assert asked["status"]["state"] == WAITS
        assert [(tool["name"], tool["args"]) for tool in _asked(asked)] == [
            ("get_weather", {"city": "Oslo"}),
            ("get_weather", {"city": "Rome"}),
        ]
        yes = _decisions(*((tool["id"], True) for tool in _asked(asked)))
        done = await caller.send("", asked["contextId"], taskId=asked["id"], **yes)
    assert (why(done), text_of(done)) == (COMPLETED, _REPORT)


async def test_decisions_may_come_one_by_one_and_differ(agents: str, start_local: StartLocal) -> None:
    gateway = await start_local(agents)
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, "asking")
        asked = await caller.send("weather")
        oslo, rome = (tool["id"] for tool in _asked(asked))
        half = await caller.send("", asked["contextId"], taskId=asked["id"], **_decisions((oslo, False)))
        assert half["status"]["state"] == WAITS
        assert [tool["id"] for tool in _asked(half)] == [rome]
        done = await caller.send("", asked["contextId"], taskId=asked["id"], **_decisions((rome, True)))
    assert why(done) == COMPLETED


async def test_what_is_rejected_does_not_run_and_the_context_goes_on(agents: str, start_local: StartLocal) -> None:
    gateway = await start_local(agents)
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, "asking")
        asked = await caller.send("weather")
        no = _decisions(*((tool["id"], False) for tool in _asked(asked)))
        done = await caller.send("", asked["contextId"], taskId=asked["id"], **no)
        after = await caller.send("two", asked["contextId"])
    assert (why(done), _ran(done)) == (COMPLETED, [])
    assert (why(after), text_of(after)) == (COMPLETED, _HELLO)


async def test_another_message_abandons_the_question_and_nothing_runs(agents: str, start_local: StartLocal) -> None:
    gateway = await start_local(agents)
    async with a2a_http(gateway.url) as http:
        caller = A2A(http, "asking")
        asked = await caller.send("weather")
        done = await caller.send("never mind", asked["contextId"], taskId=asked["id"])
    assert (why(done), text_of(done), _ran(done)) == (COMPLETED, _HELLO, [])
