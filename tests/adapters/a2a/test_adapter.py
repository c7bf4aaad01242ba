"""The A2A adapter in front of an emulated agent: errors first, then turns, waiting tasks, and tasks without a listener."""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.responses import HTMLResponse, JSONResponse, Response

from adapters.a2a.adapter import A2AAdapter
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    ArtifactReady,
    CallCompleted,
    CallStarted,
    ConsentAsked,
    Ending,
    ErrorClass,
    Processed,
    ServiceRequest,
    TextDelta,
)
from gateway.ports.capabilities import Fate, Fetched, Ongoing, Tail
from gateway.ports.conversation import UserItem
from gateway.testing.adapter_scripts import collect, completed, failure, message, request, text
from gateway.testing.checks import BOUND, bounded
from gateway.testing.serving import serve
from tests.adapters.a2a.conftest import Reach, adapter_at, left_in
from tests.adapters.emulator_support import KEY, plays
from tests.emulators import a2a_events
from tests.emulators.a2a_agent import A2AAgent
from tests.emulators.scripts import Cut, Fail, Item, NoTerminal, Pause, Raw, Say, Status, Step

SPOKEN = pytest.mark.parametrize(
    ("version", "values"),
    [("1.0", {}), ("1.0", {"transport": "HTTP+JSON"}), ("0.3", {})],
    ids=["JSON-RPC", "HTTP+JSON", "0.3"],
)
BINDINGS = pytest.mark.parametrize("values", [{}, {"transport": "HTTP+JSON"}], ids=["JSON-RPC", "HTTP+JSON"])


async def turn(adapter: A2AAdapter, words: str, before: CallCompleted | None = None, **more: Any) -> list[AdapterEvent]:
    if before is not None:
        more = {"handle": before.handle, "state": before.state, **more}
    return await collect(adapter, request(words, **more))


async def failed(adapter: A2AAdapter, before: CallCompleted, **more: Any) -> AdapterError:
    with pytest.raises(AdapterError) as error:
        await turn(adapter, "And now?", before, **more)
    return error.value


async def until_it_fails(events: AsyncGenerator[AdapterEvent, None]) -> tuple[list[AdapterEvent], ErrorClass | None]:
    """What comes before the error, and what that is."""
    seen: list[AdapterEvent] = []
    try:
        async for event in events:
            seen.append(event)  # they count, whatever follows
    except AdapterError as error:
        return seen, error.kind
    return seen, None


# --- how it fails -----------------------------------------------------------------------------------------------------


async def test_without_a_card_nothing_is_sent(agent: A2AAgent) -> None:
    async with serve(agent.app) as url:
        nowhere = adapter_at(f"{url}/nowhere")
        error = await failure(nowhere)
        await nowhere.aclose()
    assert agent.called == []
    assert (error.kind, "no agent card" in error.detail) == (ErrorClass.NOT_SERVED, True)


async def test_a_card_that_leads_to_another_host_says_what_to_set(agent: A2AAgent, reach: Reach) -> None:
    other = [{"url": "http://elsewhere.example/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}]
    agent.card = {"supportedInterfaces": other}
    error = await failure(await reach(agent))
    assert error.kind is ErrorClass.NOT_SERVED
    assert "http://elsewhere.example/rpc" in error.detail
    assert "`endpoint`" in error.detail


@BINDINGS
async def test_a_wrong_key_is_not_authorised(agent: A2AAgent, reach: Reach, values: dict[str, Any]) -> None:
    adapter = await reach(agent, **{**values, "api_key": "sk-proj-wrong-0000000000"})
    assert (await failure(adapter)).kind is ErrorClass.UNAUTHORISED
    with pytest.raises(AdapterError) as error:
        await adapter.probe()
    assert error.value.kind is ErrorClass.UNAUTHORISED


@BINDINGS
async def test_a_task_that_fails_fails_the_call_with_the_agents_words(
    agent: A2AAgent, reach: Reach, values: dict[str, Any]
) -> None:
    agent.script = plays(Say("par"), Fail(message="out of ink"))
    error = await failure(await reach(agent, **values))
    assert (error.kind, error.detail) == (ErrorClass.BACKEND_FAILED, "the task is failed: out of ink")


@pytest.mark.parametrize(("named", "told"), [(90, 90), (1.5, 1.5), ("90", None), (True, None), (None, None)])
async def test_the_wait_that_a_gateway_names_with_a_failure_is_passed_on(
    agent: A2AAgent, reach: Reach, named: object, told: float | None
) -> None:
    agent.script = plays(left_in("FAILED", "out of ink", retryAfter=named))
    error = await failure(await reach(agent))
    assert (error.kind, error.retry_after) == (ErrorClass.BACKEND_FAILED, told)


async def test_a_task_that_another_cancels_fails_the_call(agent: A2AAgent, reach: Reach) -> None:
    agent.script = plays(left_in("CANCELED", "stopped"))
    assert (await failure(await reach(agent))).kind is ErrorClass.BACKEND_FAILED


async def test_the_tokens_of_a_task_that_fails_are_told(agent: A2AAgent, reach: Reach) -> None:
    end = {"status": {"state": "TASK_STATE_FAILED"}, "metadata": {"usage_metadata": {"total_token_count": 7}}}
    agent.script = plays(Item({"statusUpdate": end}))
    assert (await failure(await reach(agent))).usage == {"total_token_count": 7}


async def test_an_error_in_the_stream_counts_behind_what_came_before_it(agent: A2AAgent, reach: Reach) -> None:
    broken = b'data: {"jsonrpc":"2.0","id":"1","error":{"code":-32603,"message":"boom"}}\n\n'
    agent.script = plays(Say("par"), Raw(broken), NoTerminal())
    adapter = await reach(agent)
    seen, kind = await until_it_fails(adapter.call(request("Hi")))
    assert (seen[1:], kind) == ([TextDelta("par")], ErrorClass.BACKEND_FAILED)


@pytest.mark.parametrize("broken", [b"data: {}\n\n", b"data: <html>\n\n", b'data: {"result": {"task": {}}}\n\n'])
async def test_an_event_that_is_none_of_a2a_breaks_the_contract(agent: A2AAgent, reach: Reach, broken: bytes) -> None:
    agent.script = plays(Raw(broken), NoTerminal())
    assert (await failure(await reach(agent))).kind is ErrorClass.CONTRACT_BROKEN


@pytest.mark.parametrize("result", [{}, {"kind": "poem"}, {"poem": {"taskId": "t"}}, {"metadata": {}}])
async def test_an_event_of_a_kind_that_no_version_has_is_passed_over(
    agent: A2AAgent, reach: Reach, result: dict[str, Any]
) -> None:
    event = b"data: %b\n\n" % json.dumps({"jsonrpc": "2.0", "id": "1", "result": result}).encode()
    agent.script = plays(Raw(event), Say("Hello"))
    assert text(await turn(await reach(agent), "Hi")) == "Hello"


async def test_a_stream_of_nothing_but_events_of_no_known_kind_is_interrupted(agent: A2AAgent, reach: Reach) -> None:
    agent.script = plays(Raw(b'data: {"jsonrpc":"2.0","id":"1","result":{"kind":"poem"}}\n\n'), Cut())
    assert (await failure(await reach(agent))).kind is ErrorClass.INTERRUPTED


async def test_a_busy_agent_names_the_time_to_come_back(agent: A2AAgent, reach: Reach) -> None:
    body = {"jsonrpc": "2.0", "id": "1", "error": {"code": -32603, "message": "Busy"}}
    agent.script = plays(Status(503, body, {"Retry-After": "3"}))
    error = await failure(await reach(agent))
    assert (error.kind, error.retry_after) == (ErrorClass.RATE_LIMITED, 3)


async def test_a_stream_that_is_cut_is_interrupted(agent: A2AAgent, reach: Reach) -> None:
    agent.script = plays(Say("par"), Cut(), Pause(asyncio.Event()))
    assert (await failure(await reach(agent))).kind is ErrorClass.INTERRUPTED


async def test_an_agent_that_no_longer_speaks_as_its_card_said_is_found_anew(agent: A2AAgent, reach: Reach) -> None:
    agent.script = plays(Say("Hello"))
    adapter = await reach(agent)
    await turn(adapter, "Hi")
    agent.version = "0.3"
    assert text(await turn(adapter, "Hi")) == "Hello"
    assert agent.cards == 2


@pytest.mark.parametrize("status", [308, 404, 405, 410])
async def test_an_agent_that_has_moved_gets_the_message_where_its_card_leads(
    agent: A2AAgent, reach: Reach, status: int
) -> None:
    agent.script = plays(Say("Hello"))
    adapter = await reach(agent)
    first = completed(await turn(adapter, "Hi"))
    agent.faults["SendStreamingMessage"].append(Response("moved", status))
    agent.rpc = "v1/rpc"
    assert text(await turn(adapter, "And now?", first)) == "Hello"
    assert (len(agent.sent), agent.cards) == (2, 2)


async def test_an_agent_that_refuses_and_has_the_same_card_is_asked_once(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    agent.faults["SendStreamingMessage"].append(Response("gone", 410))
    assert (await failure(adapter)).kind is ErrorClass.NOT_SERVED
    assert (agent.called, agent.cards) == (["SendStreamingMessage"], 2)


@pytest.mark.parametrize("operation", ["GetTask", "card"])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, ErrorClass.NOT_SERVED),
        (413, ErrorClass.NOT_SERVED),
        (429, ErrorClass.RATE_LIMITED),
        (500, ErrorClass.UNREACHABLE),
        (503, ErrorClass.UNREACHABLE),
    ],
)
async def test_the_failure_of_a_request_before_the_message_is_not_about_the_message(
    agent: A2AAgent, reach: Reach, operation: str, status: int, kind: ErrorClass
) -> None:
    adapter = await reach(agent)
    first = completed(await turn(adapter, "Hi"))
    if operation == "card":
        adapter = await reach(agent)
    agent.faults[operation].append(Response("{}", status))
    error = await failed(adapter, first)
    assert (error.kind, error.kind.meaning.processed) == (kind, Processed.NO)
    assert len(agent.sent) == 1


# --- turns ------------------------------------------------------------------------------------------------------------


async def test_the_card_is_read_once(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    for _ in range(3):
        await turn(adapter, "Hi")
    assert agent.cards == 1


@BINDINGS
async def test_a_request_says_version_extensions_and_modes(
    agent: A2AAgent, reach: Reach, values: dict[str, Any]
) -> None:
    adapter = await reach(agent, extensions=["https://x.example"], **values)
    await turn(adapter, "Hi", accepted_output_modes=("text/plain",))
    headers = agent.headers[-1]
    assert (headers["a2a-version"], headers["a2a-extensions"]) == ("1.0", "https://x.example")
    assert agent.sent[0]["configuration"]["acceptedOutputModes"] == ["text/plain"]


async def test_tool_calls_are_asked_for_where_the_agent_shows_them(agent: A2AAgent, reach: Reach) -> None:
    uri = "https://a2a-gateway.dev/extensions/tool-calls/v1"
    agent.card = {"capabilities": {"streaming": True, "extensions": [{"uri": uri}]}}
    await turn(await reach(agent), "Hi")
    assert agent.headers[-1]["a2a-extensions"] == uri


async def test_other_credentials_and_a_tenant_go_with_every_request(agent: A2AAgent, reach: Reach) -> None:
    auth = {"type": "api_key", "key": KEY}
    adapter = await reach(agent, api_key=None, auth=auth, tenant="acme", headers={"x-team": "a"})
    await turn(adapter, "Hi")
    assert agent.sent[0]["tenant"] == "acme"
    assert agent.headers[-1]["x-team"] == "a"


async def test_a_later_turn_goes_on_in_the_context_with_a_task_of_its_own(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    first = completed(await turn(adapter, "one"))
    events = await turn(adapter, "two", first, task_id="task-2")
    names = [event for event in events if isinstance(event, CallStarted)]
    assert (names[0].handle, completed(events).handle) == (first.handle, first.handle)
    assert [sent["message"].get("contextId") for sent in agent.sent] == [None, first.handle]
    assert completed(events).state["tasks"] == {"task-1": "task-2", "task-2": names[0].run}


async def test_an_agent_that_has_forgotten_the_context_is_found_out_before_anything_is_said(
    agent: A2AAgent, reach: Reach
) -> None:
    adapter = await reach(agent)
    first = completed(await turn(adapter, "one"))
    agent.forget_everything()
    assert (await failed(adapter, first)).kind is ErrorClass.HANDLE_NOT_FOUND
    assert len(agent.sent) == 1


async def test_that_it_remembers_may_be_taken_for_granted(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent, verify_context=False)
    first = completed(await turn(adapter, "one"))
    agent.forget_everything()
    await turn(adapter, "two", first)
    assert agent.called == ["SendStreamingMessage"] * 2


async def test_a_bare_message_is_an_answer_and_its_context_goes_on(agent: A2AAgent, reach: Reach) -> None:
    agent.script = plays(Item({"message": {"parts": [{"text": "Hello"}]}}))
    adapter = await reach(agent)
    first = await turn(adapter, "one")
    second = await turn(adapter, "two", completed(first))
    assert (text(first), text(second)) == ("Hello", "Hello")
    assert agent.sent[1]["message"]["contextId"] == completed(first).handle


# --- a whole answer where a stream was asked for ----------------------------------------------------------------------


@SPOKEN
async def test_a_task_in_the_place_of_a_stream_is_the_answer(
    reach: Reach, version: str, values: dict[str, Any]
) -> None:
    agent = A2AAgent(plays(Say("Hello", chunks=2)), api_key=KEY, version=version)
    agent.documents = True
    adapter = await reach(agent, **values)
    first = await turn(adapter, "one")
    second = await turn(adapter, "two", completed(first))
    assert (text(first), text(second)) == ("Hello", "Hello")
    assert [sent["message"]["parts"][0]["text"] for sent in agent.sent] == ["one", "two"]


@SPOKEN
async def test_a_message_in_the_place_of_a_stream_is_the_answer(
    reach: Reach, version: str, values: dict[str, Any]
) -> None:
    agent = A2AAgent(plays(Item({"message": {"parts": [{"text": "Hello"}]}})), api_key=KEY, version=version)
    agent.documents = True
    assert text(await turn(await reach(agent, **values), "one")) == "Hello"


@SPOKEN
async def test_a_question_in_the_place_of_a_stream_is_asked_each_time(
    reach: Reach, version: str, values: dict[str, Any]
) -> None:
    agent = A2AAgent(plays(left_in("INPUT_REQUIRED", "Where?")), api_key=KEY, version=version)
    agent.documents = True
    adapter = await reach(agent, **values)
    first = completed(await turn(adapter, "Go"))
    agent.script = plays(left_in("INPUT_REQUIRED", "When?"))
    second = completed(await turn(adapter, "Oslo", first))
    agent.script = plays(Say("There."))
    assert text(await turn(adapter, "Now", second)) == "There."
    assert [end.message and end.message[0].text for end in (first, second)] == ["Where?", "When?"]
    assert {first.ending, second.ending} == {Ending.INPUT_REQUIRED}


@SPOKEN
async def test_a_task_at_work_in_the_place_of_a_stream_counts_as_a_stream_that_ended(
    reach: Reach, version: str, values: dict[str, Any]
) -> None:
    agent = A2AAgent(plays(Say("par"), NoTerminal()), api_key=KEY, version=version)
    agent.documents = True
    adapter = await reach(agent, **values)
    seen, kind = await until_it_fails(adapter.call(request("Hi")))
    assert (seen[1:], kind) == ([TextDelta("par")], ErrorClass.INTERRUPTED)


async def test_a_large_answer_with_half_a_character_in_the_place_of_a_stream_is_read_whole(
    agent: A2AAgent, reach: Reach
) -> None:
    body = b'{"id":"1","result":{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"%b\\ud83d"}]}}}'
    answer = Response(body % (b"a" * 300_000), media_type="application/json; charset=utf-8")
    agent.faults["SendStreamingMessage"].append(answer)
    assert text(await turn(await reach(agent), "Hi")) == f"{'a' * 300_000}\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"error": {"code": -32603, "message": "boom"}}, ErrorClass.BACKEND_FAILED),
        ({"error": {"code": -32005, "message": "no such type"}}, ErrorClass.REJECTED),
        ({"result": {"poem": {}}}, ErrorClass.CONTRACT_BROKEN),
        ({"result": {"task": {}}}, ErrorClass.CONTRACT_BROKEN),
        ({"ok": True}, ErrorClass.CONTRACT_BROKEN),
    ],
)
async def test_a_document_that_is_no_answer_in_the_place_of_a_stream_is_a_failure(
    agent: A2AAgent, reach: Reach, body: dict[str, Any], kind: ErrorClass
) -> None:
    agent.faults["SendStreamingMessage"].append(JSONResponse({"jsonrpc": "2.0", "id": "1", **body}))
    assert (await failure(await reach(agent))).kind is kind


# --- a task that waits ------------------------------------------------------------------------------------------------


async def asked(adapter: A2AAdapter, agent: A2AAgent, state: str = "INPUT_REQUIRED") -> CallCompleted:
    agent.script = plays(left_in(state, "https://login.example/x" if state == "AUTH_REQUIRED" else "Which?"))
    found = completed(await turn(adapter, "Go"))
    agent.script = plays(Say("There."))
    return found


@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("streaming", [True, False], ids=["streams", "whole"])
async def test_the_answer_to_a_question_goes_to_the_task_that_asked(
    reach: Reach, version: str, streaming: bool
) -> None:
    agent = A2AAgent(plays(), api_key=KEY, version=version, streaming=streaming)
    adapter = await reach(agent)
    question = await asked(adapter, agent)
    assert question.ending is Ending.INPUT_REQUIRED
    events = await bounded(turn(adapter, "Oslo", question), "the task goes on")
    assert text(events) == "There."
    assert agent.sent[1]["message"]["taskId"] == question.state["waiting"]["task"]
    assert "waiting" not in completed(events).state


async def test_any_other_message_of_the_context_begins_a_task(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    question = await asked(adapter, agent)
    await turn(adapter, "Something else", question, task_id="another")
    assert "taskId" not in agent.sent[1]["message"]
    assert agent.sent[1]["message"]["contextId"] == question.handle


async def test_a_task_that_no_longer_waits_is_left_and_the_context_goes_on(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    question = await asked(adapter, agent)
    await adapter.cancel(Ongoing(question.handle, question.state["waiting"]["task"]))
    assert text(await turn(adapter, "Oslo", question)) == "There."
    assert "taskId" not in agent.sent[1]["message"]


async def test_a_waiting_task_that_the_agent_has_forgotten_is_a_lost_context(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent, verify_context=False)
    question = await asked(adapter, agent)
    agent.forget_everything()
    assert (await failed(adapter, question)).kind is ErrorClass.HANDLE_NOT_FOUND


async def test_a_consent_is_asked_for_and_the_next_message_goes_to_its_task(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    agent.script = plays(left_in("AUTH_REQUIRED", "https://login.example/x"))
    events = await turn(adapter, "Go")
    assert events[1] == ConsentAsked("https://login.example/x")
    agent.script = plays(Say("There."))
    assert text(await turn(adapter, "done", completed(events))) == "There."
    assert agent.sent[1]["message"]["taskId"] == completed(events).state["waiting"]["task"]


async def test_what_an_agent_has_done_behind_a_consent_by_itself_is_the_answer(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    question = await asked(adapter, agent, "AUTH_REQUIRED")
    run = agent.runs[question.state["waiting"]["task"]]
    await run.add({"artifactUpdate": {"artifact": {"artifactId": "r", "parts": [{"text": "Read."}]}}})
    await run.add({"statusUpdate": {"status": {"state": "TASK_STATE_COMPLETED"}}})
    assert text(await turn(adapter, "done", question)) == "Read."
    assert len(agent.sent) == 1


# --- a task that nobody listens to ------------------------------------------------------------------------------------


async def begun(adapter: A2AAdapter, agent: A2AAgent, *rest: Step) -> tuple[Ongoing, asyncio.Event]:
    """A task whose listener has left behind its first words, and what lets it go on."""
    goes_on = asyncio.Event()
    agent.script = plays(Say("one "), Pause(goes_on), *rest)
    call = adapter.call(request("count"))
    started = await bounded(anext(call), "the task begins")
    await bounded(anext(call), "it speaks")
    await call.aclose()
    assert isinstance(started, CallStarted)
    return Ongoing(started.handle, started.run), goes_on


async def resumed(adapter: A2AAdapter, names: Ongoing, goes_on: asyncio.Event | None = None) -> list[AdapterEvent]:
    """All events of the task, which goes on when its first words were heard again."""
    events: list[AdapterEvent] = []
    async with asyncio.timeout(BOUND):
        async for event in adapter.resume(request("count"), names):
            events.append(event)
            if goes_on is not None and len(events) == 2:
                goes_on.set()
    return events


@BINDINGS
async def test_a_task_is_listened_to_again_from_its_beginning(
    agent: A2AAgent, reach: Reach, values: dict[str, Any]
) -> None:
    adapter = await reach(agent, **values)
    names, goes_on = await begun(adapter, agent, Say("two "), Say("three"))
    assert (await resumed(adapter, names, goes_on))[:-1] == [
        CallStarted(names.handle, names.run),
        TextDelta("one "),
        TextDelta("two "),
        TextDelta("three"),
    ]
    assert agent.called[-1] == "SubscribeToTask"


async def test_a_task_that_cannot_be_listened_to_is_looked_at_until_it_ends(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    agent.subscribes = False
    names, goes_on = await begun(adapter, agent, Say("two"))
    assert text(await resumed(adapter, names, goes_on)) == "one two"


@pytest.mark.parametrize("status", [200, 400, 404, 500])
async def test_a_subscription_that_does_not_work_is_replaced_by_looks(
    agent: A2AAgent, reach: Reach, status: int
) -> None:
    adapter = await reach(agent)
    agent.faults["SubscribeToTask"].append(HTMLResponse("<html>", status))
    names, goes_on = await begun(adapter, agent, Say("two"))
    assert text(await resumed(adapter, names, goes_on)) == "one two"
    assert "GetTask" in agent.called


async def test_a_subscription_that_says_nothing_is_followed_by_a_look(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    agent.faults["SubscribeToTask"].append(Response(media_type="text/event-stream"))
    names, goes_on = await begun(adapter, agent, Say("two"))
    goes_on.set()
    await agent.runs[names.run or ""].settle()
    assert text(await resumed(adapter, names)) == "one two"


def continued(names: Ongoing, words: str) -> Response:
    """A subscription that begins with these words of the task, and not with the task."""
    owner = {"taskId": names.run, "contextId": names.handle}
    update = a2a_events.artifact("answer", [{"text": words}], append=True)["artifactUpdate"]
    ended = a2a_events.status("TASK_STATE_COMPLETED")["statusUpdate"]
    events: list[dict[str, Any]] = [{"artifactUpdate": {**owner, **update}}, {"statusUpdate": {**owner, **ended}}]
    lines = [json.dumps({"jsonrpc": "2.0", "id": "1", "result": event}) for event in events]
    return Response("".join(f"data: {line}\n\n" for line in lines), media_type="text/event-stream")


async def test_a_subscription_that_does_not_begin_with_its_task_is_replaced_by_looks(
    agent: A2AAgent, reach: Reach
) -> None:
    adapter = await reach(agent)
    names, goes_on = await begun(adapter, agent, Say("two "), Say("three"))
    agent.faults["SubscribeToTask"].append(continued(names, "three"))
    assert text(await resumed(adapter, names, goes_on)) == "one two three"
    assert agent.called[-1] == "GetTask"


async def test_nothing_of_a_subscription_that_does_not_begin_with_its_task_is_told_where_a_look_fails(
    agent: A2AAgent, reach: Reach
) -> None:
    adapter = await reach(agent)
    names, _ = await begun(adapter, agent, Say("two "), Say("three"))
    agent.faults["SubscribeToTask"].append(continued(names, "three"))
    agent.faults["GetTask"].append(Response("{}", 500))
    assert await until_it_fails(adapter.resume(request("count"), names)) == ([], ErrorClass.INTERRUPTED)


@pytest.mark.parametrize("status", [404, 500, 502, 503])
async def test_a_look_that_fails_says_nothing_of_the_task(agent: A2AAgent, reach: Reach, status: int) -> None:
    adapter = await reach(agent)
    agent.subscribes = False
    names, _ = await begun(adapter, agent)
    agent.faults["GetTask"].append(Response("{}", status))
    with pytest.raises(AdapterError) as error:
        await resumed(adapter, names)
    assert error.value.kind is ErrorClass.INTERRUPTED


async def test_two_unreadable_answers_to_looks_are_passed_over_and_a_third_is_not(
    agent: A2AAgent, reach: Reach
) -> None:
    adapter = await reach(agent)
    agent.subscribes = False
    names, goes_on = await begun(adapter, agent, Say("two"))
    agent.faults["GetTask"] += [HTMLResponse("<html>")] * 2
    assert text(await resumed(adapter, names, goes_on)) == "one two"
    agent.faults["GetTask"] += [HTMLResponse("<html>")] * 3
    with pytest.raises(AdapterError) as error:
        await resumed(adapter, names)
    assert error.value.kind is ErrorClass.CONTRACT_BROKEN


async def test_a_task_of_0_3_is_looked_at_because_a_second_listener_misses_and_doubles(reach: Reach) -> None:
    agent = A2AAgent(plays(), api_key=KEY, version="0.3")
    adapter = await reach(agent)
    names, goes_on = await begun(adapter, agent, Say("two "), Say("three"))
    assert text(await resumed(adapter, names, goes_on)) == "one two three"
    assert "SubscribeToTask" not in agent.called


async def test_a_task_that_has_ended_meanwhile_gives_all_of_its_answer(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    names, goes_on = await begun(adapter, agent, Say("two"))
    goes_on.set()
    await agent.runs[names.run or ""].settle()
    assert text(await resumed(adapter, names)) == "one two"


async def test_a_task_that_is_gone_has_failed(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    names, _ = await begun(adapter, agent)
    agent.forget_everything()
    with pytest.raises(AdapterError) as error:
        await resumed(adapter, names)
    assert error.value.kind is ErrorClass.BACKEND_FAILED
    assert await adapter.fetch(names) == Fetched(Fate.GONE)


async def test_a_task_that_failed_is_looked_up_as_part_of_the_conversation(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    names, goes_on = await begun(adapter, agent, Fail(message="out of ink"))
    assert (await adapter.fetch(names)).fate is Fate.RUNNING
    goes_on.set()
    await agent.runs[names.run or ""].settle()
    found = await adapter.fetch(names)
    assert found.fate is Fate.COMPLETED
    assert found.events[1:] == (TextDelta("one "), CallCompleted(names.handle, state={"task": names.run}))


async def test_a_task_is_cancelled_and_one_that_has_ended_counts_as_that(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    names, _ = await begun(adapter, agent)
    assert await adapter.cancel(names)
    assert await adapter.cancel(names)
    agent.forget_everything()
    assert await adapter.cancel(names)


@pytest.mark.parametrize("code", [-32001, -32002])
async def test_a_task_that_goes_on_although_its_agent_refuses_to_cancel_it_is_not_cancelled(
    agent: A2AAgent, reach: Reach, code: int
) -> None:
    adapter = await reach(agent)
    names, _ = await begun(adapter, agent)
    refusal = {"jsonrpc": "2.0", "id": "1", "error": {"code": code, "message": "no"}}
    agent.faults["CancelTask"].append(JSONResponse(refusal))
    assert not await adapter.cancel(names)


# --- a message that nobody has heard of since -------------------------------------------------------------------------


async def unheard(adapter: A2AAdapter, agent: A2AAgent, *steps: Step) -> CallCompleted:
    """The end of a first turn; behind it "two" was said, and its sender has died before it heard of a task."""
    agent.script = plays(Say("Hello"))
    first = completed(await turn(adapter, "one"))
    agent.script = plays(*steps)
    call = adapter.call(request("two", handle=first.handle, state=first.state))
    await bounded(anext(call), "the task begins")
    await call.aclose()
    return first


def of_the_next(first: CallCompleted, *words: str) -> ServiceRequest:
    items = tuple(UserItem(message(each)) for each in words)
    return request("", handle=first.handle, state=first.state, items=items, message=items[-1].message)


@BINDINGS
async def test_a_message_that_arrived_is_found_by_its_id_with_the_answer(
    agent: A2AAgent, reach: Reach, values: dict[str, Any]
) -> None:
    adapter = await reach(agent, **values)
    first = await unheard(adapter, agent, Say("Two it is."))
    [*_, run] = agent.runs.values()
    await run.settle()
    tail = await adapter.tail(of_the_next(first, "two", "three"))
    assert tail is not None
    assert (tail.held, text(tail.answer), completed(tail.answer).handle) == (1, "Two it is.", first.handle)


async def test_of_a_task_that_waited_the_answer_is_what_it_has_said_since(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    agent.script = plays(Say("Before."), left_in("INPUT_REQUIRED"))
    asked = completed(await turn(adapter, "one", answer="the first answer"))
    agent.script = plays(Item(a2a_events.artifact("more", [{"text": "After."}])))
    call = adapter.call(request("two", handle=asked.handle, state=asked.state))
    await bounded(anext(call), "the task goes on")
    await call.aclose()
    [run] = agent.runs.values()
    await run.settle()
    tail = await adapter.tail(of_the_next(asked, "two"))
    assert tail is not None
    assert text(tail.answer) == "After."
    assert not [event for event in tail.answer if isinstance(event, ArtifactReady)]


@BINDINGS
async def test_the_first_message_of_a_conversation_is_found_with_the_names_that_the_agent_gave(
    agent: A2AAgent, reach: Reach, values: dict[str, Any]
) -> None:
    adapter = await reach(agent, **values)
    agent.script = plays(Say("One it is."))
    agent.unheard = 1
    assert (await failure(adapter)).kind is ErrorClass.INTERRUPTED
    [run] = agent.runs.values()
    assert await adapter.find(request("Hi")) == Ongoing(run.task["contextId"], run.task["id"])
    assert await adapter.find(request("another", context_id="other")) is None


async def test_a_message_that_did_not_arrive_is_not_found(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    first = await unheard(adapter, agent)
    assert await adapter.tail(of_the_next(first, "three")) == Tail(0)
    assert await adapter.tail(request("one")) == Tail(0)


async def test_a_task_that_is_still_at_work_locks_its_conversation(agent: A2AAgent, reach: Reach) -> None:
    adapter = await reach(agent)
    first = await unheard(adapter, agent, Pause(asyncio.Event()))
    with pytest.raises(AdapterError) as error:
        await adapter.tail(of_the_next(first, "two"))
    assert error.value.kind is ErrorClass.LOCKED


async def test_an_agent_that_lists_no_tasks_tells_nothing(reach: Reach) -> None:
    agent = A2AAgent(plays(), api_key=KEY, version="0.3")
    adapter = await reach(agent)
    assert await adapter.tail(of_the_next(await unheard(adapter, agent), "two")) is None


# --- before its first use ---------------------------------------------------------------------------------------------


@BINDINGS
async def test_a_probe_says_how_the_agent_is_spoken_to_and_leaves_no_trace(
    agent: A2AAgent, reach: Reach, values: dict[str, Any]
) -> None:
    report = await (await reach(agent, **values)).probe()
    assert report.streams is True
    assert report.notes[0].startswith(f"it speaks A2A 1.0 by {values.get('transport', 'JSONRPC')} at http://127.0.0.1")
    assert agent.runs == {}
