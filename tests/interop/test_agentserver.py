"""The gateway in front of a Foundry hosted agent, the server library that those agents run on.

Known limitation: this server accepts a `previous_response_id` that it does not know, starts afresh, and repeats the id in
its answer. The adapter notices a chain that was ignored only where the answer says so, by naming another id or none; from
this server's answer nothing can tell an agent that forgot from one that remembers.
"""

import httpx2
import pytest

from gateway.core.failures import UNKNOWN_TOOL
from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, text_of, why
from tests.emulators.responses_dialects import RESPONSES_DIALECTS
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Say
from tests.interop.peer_processes import Peer
from tests.interop.recording_proxy import RecordingProxy
from tests.interop.responses_bodies import output, response_id, response_ids, steps, user
from tests.running import AT_ONCE, StartLocal


def _agent(url: str, more: str = "unknown_tool: error_result") -> str:
    return f"hosted: {{type: openai-responses, model: m, base_url: '{url}', {more}}}"


def _echo(text: str, history: int) -> str:
    return f"echo {text!r} history={history} conversation=None"


async def test_each_request_goes_on_from_the_last_completed_response_with_the_new_input_alone(
    agentserver_proxy: RecordingProxy, start_local: StartLocal
) -> None:
    gateway = await start_local(_agent(agentserver_proxy.url))
    async with a2a_http(gateway.url) as http:
        hosted = A2A(http, "hosted")
        first = await hosted.send("one")
        second = await hosted.send("two", first["contextId"])
        third = await hosted.send("three", first["contextId"])

    assert [text_of(task) for task in (first, second, third)] == [_echo("one", 0), _echo("two", 2), _echo("three", 4)]
    ids = response_ids(agentserver_proxy)
    assert len(set(ids)) == 3
    same = {"model": "m", "store": True, "stream": True}
    session = {"agent_session_id": agentserver_proxy.exchanges[0].events[-1]["response"]["agent_session_id"]}
    assert [exchange.body for exchange in agentserver_proxy.exchanges] == [
        {**same, "input": [user("one")]},
        {**same, "input": [user("two")], "previous_response_id": ids[0], **session},
        {**same, "input": [user("three")], "previous_response_id": ids[1], **session},
    ]
    assert not any(each.encode() in hosted.seen for each in ids)


@pytest.mark.parametrize("events", [1, 6], ids=["after created", "in mid-text"])
async def test_a_dropped_stream_does_not_move_the_handle(
    agentserver_proxy: RecordingProxy, start_local: StartLocal, events: int
) -> None:
    gateway = await start_local(_agent(agentserver_proxy.url, "repeat_unknown: false"))
    async with a2a_http(gateway.url) as http:
        hosted = A2A(http, "hosted")
        first = await hosted.send("one")
        agentserver_proxy.cut_stream(after_events=events)
        dropped = await hosted.send("slow", first["contextId"])
        third = await hosted.send("three", first["contextId"])
        fourth = await hosted.send("four", first["contextId"])

    assert why(dropped) == failed(ErrorClass.INTERRUPTED)
    assert (why(third), why(fourth)) == (COMPLETED, COMPLETED)
    ids = response_ids(agentserver_proxy)
    assert steps(agentserver_proxy) == [
        (None, [user("one")]),
        (ids[0], [user("slow")]),
        (ids[0], [user("slow"), user("three")]),
        (ids[2], [user("four")]),
    ]


async def test_a_crash_of_the_agent_fails_the_task_and_the_chain_goes_on(
    agentserver_proxy: RecordingProxy, start_local: StartLocal
) -> None:
    gateway = await start_local(_agent(agentserver_proxy.url))
    async with a2a_http(gateway.url) as http:
        hosted = A2A(http, "hosted")
        first = await hosted.send("one")
        crashed = await hosted.send("boom", first["contextId"])

    assert why(crashed) == failed(ErrorClass.BACKEND_FAILED)
    # Each repeat starts from the same response.
    assert steps(agentserver_proxy)[1:] == [(response_id(agentserver_proxy.exchanges[0]), [user("boom")])] * 3


async def test_a_call_of_a_tool_that_is_not_attached_is_answered_with_the_next_message(
    agentserver_proxy: RecordingProxy, start_local: StartLocal
) -> None:
    gateway = await start_local(_agent(agentserver_proxy.url, "unknown_tool: fail"))
    async with a2a_http(gateway.url) as http:
        hosted = A2A(http, "hosted")
        asked = await hosted.send("weather")
        second = await hosted.send("two", asked["contextId"])
        third = await hosted.send("three", asked["contextId"])

    assert why(asked) == failed(UNKNOWN_TOOL)
    assert (why(second), why(third)) == (COMPLETED, COMPLETED)
    ids = response_ids(agentserver_proxy)
    assert steps(agentserver_proxy) == [
        (None, [user("weather")]),
        (ids[0], [output("call_1", "Error: This tool is not available."), user("two")]),
        (ids[1], [user("three")]),
    ]


async def test_a_hosted_agent_that_forgot_the_chain_cannot_be_told_from_one_that_knows_it(
    agentserver_proxy: RecordingProxy, agentserver_peer: Peer, start_local: StartLocal
) -> None:
    gateway = await start_local(_agent(agentserver_proxy.url))
    async with a2a_http(gateway.url) as http:
        hosted = A2A(http, "hosted")
        first = await hosted.send("one")
        lost = response_id(agentserver_proxy.exchanges[0])
        async with httpx2.AsyncClient(trust_env=False) as client:
            (await client.delete(f"{agentserver_peer.url}/responses/{lost}")).raise_for_status()
        second = await hosted.send("two", first["contextId"])

    assert (why(second), text_of(second)) == (COMPLETED, _echo("two", 0))
    assert agentserver_proxy.exchanges[1].events[-1]["response"]["previous_response_id"] == lost


async def test_a_server_that_says_it_did_not_go_on_from_the_response_fails_the_task(start_local: StartLocal) -> None:
    forgetful = ResponsesServer(lambda _: [Say("fresh")], dialect=RESPONSES_DIALECTS["litellm"])
    async with serve(forgetful.app) as url:
        gateway = await start_local(_agent(f"{url}/v1"), pace=AT_ONCE)
        async with a2a_http(gateway.url) as http:
            hosted = A2A(http, "hosted")
            first = await hosted.send("one")
            (kept,) = forgetful.stored
            forgetful.stored.clear()
            second = await hosted.send("two", first["contextId"])
            third = await hosted.send("three", first["contextId"])

    assert why(second) == failed(ErrorClass.HANDLE_NOT_FOUND)
    assert why(third) == failed(ErrorClass.HANDLE_EXPIRED)
    assert [body.get("previous_response_id") for body in forgetful.requests] == [None, kept, kept]
