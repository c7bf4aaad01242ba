"""A gateway in front of a gateway: a caller of the first sees what a caller of the second would see."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.a2a.tool_calls import URI
from gateway.ports.adapter import ErrorClass
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, Frame, a2a_http, failed, streamed_text, text_of, why
from tests.emulators.a2a_agent import A2AAgent
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Call, Conversation, Cut, Fail, Item, Pause, Say, Script, Step
from tests.interop.echo_agent import knows
from tests.running import AT_ONCE, Local, local_gateway
from tests.support.polling import until

ECHO = "echo: {type: python, ref: 'tests.interop.echo_agent:reply'}"
BINDINGS = {"JSON-RPC": "", "HTTP+JSON": ", transport: HTTP+JSON", "0.3": ", version: '0.3'"}


@dataclass(frozen=True, slots=True)
class Pair:
    """Callers of the gateway in front (`front`) and of the one behind it (`direct`)."""

    front: A2A
    direct: A2A


Behind: TypeAlias = Callable[..., Awaitable[Pair]]


@pytest.fixture
async def behind(tmp_path: Path) -> AsyncGenerator[Behind]:
    """Runs the agent `echo` of one gateway, and a gateway with the agent `front` that has it for its backend."""
    async with AsyncExitStack() as stack:

        async def run(agents: str = ECHO, more: str = "", *, settings: str = "") -> Pair:
            gateways: list[Local] = []
            for name in ("back", "front"):
                (tmp_path / name).mkdir()
            gateways.append(
                await stack.enter_async_context(local_gateway(agents, tmp_path / "back", settings=settings))
            )
            front = f"front: {{type: a2a, url: '{gateways[0].url}/a2a/echo', poll: 100ms{more}}}"
            gateways.append(await stack.enter_async_context(local_gateway(front, tmp_path / "front", pace=AT_ONCE)))
            http = [await stack.enter_async_context(a2a_http(each.url)) for each in gateways]
            return Pair(A2A(http[1], "front"), A2A(http[0], "echo"))

        yield run


@pytest.fixture(params=list(BINDINGS.values()), ids=list(BINDINGS))
async def pair(behind: Behind, request: pytest.FixtureRequest) -> Pair:
    return await behind(more=request.param)


def without_id(part: dict[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in (part.get("data") or part).items() if name != "id"}


def phase_of(update: Any) -> Any:
    return update.get("metadata", {}).get(URI, {}).get("phase")


def shown(frames: list[Frame]) -> list[Any]:
    """The events without what differs between two gateways: ids, times."""
    found: list[Any] = []
    for frame in frames:
        match frame.event:
            case {"artifactUpdate": {"artifact": {"parts": said}, **update}}:
                found.append(("artifact", update.get("append", False), said))
            case {"statusUpdate": {"status": status, **changed}}:
                parts: list[dict[str, Any]] = status.get("message", {}).get("parts", [])
                data = [without_id(part) for part in parts]
                found.append(("status", status["state"], data, phase_of(changed)))
    return found


async def streamed(caller: A2A, text: str, context: str | None = None, **message: Any) -> list[Frame]:
    async with caller.stream(text, context, **message) as stream:
        return await stream.rest()


@pytest.mark.parametrize("text", ["one", "tool", "ask"])
async def test_a_caller_of_the_front_sees_the_events_of_the_agent_behind_it(pair: Pair, text: str) -> None:
    assert shown(await streamed(pair.front, text)) == shown(await streamed(pair.direct, text))


async def test_the_conversation_goes_on_under_ids_that_the_agent_behind_does_not_know(pair: Pair) -> None:
    first = await pair.front.send("one")
    second = await pair.front.send("two", first["contextId"])
    assert text_of(second) == knows("one", "two")
    behind = await pair.direct.call("ListTasks")
    ids = {task["id"] for task in behind["tasks"]} | {task["contextId"] for task in behind["tasks"]}
    assert len({task["contextId"] for task in behind["tasks"]}) == 1
    assert ids.isdisjoint({first["id"], second["id"], first["contextId"]})


async def test_a_question_and_its_answer_belong_to_one_task_on_either_side(pair: Pair) -> None:
    asked = await pair.front.send("ask")
    assert why(asked) == ("TASK_STATE_INPUT_REQUIRED", "Which city?")
    done = await pair.front.send("Oslo", asked["contextId"], taskId=asked["id"])
    assert (done["id"], why(done), text_of(done)) == (asked["id"], COMPLETED, knows("ask", "Oslo"))
    assert len((await pair.direct.call("ListTasks"))["tasks"]) == 1


async def test_a_message_instead_of_the_answer_is_a_task_of_its_own_on_either_side(pair: Pair) -> None:
    asked = await pair.front.send("ask")
    done = await pair.front.send("something else", asked["contextId"])
    assert done["id"] != asked["id"]
    assert text_of(done) == knows("ask", "something else")
    assert len((await pair.direct.call("ListTasks"))["tasks"]) == 2


async def test_a_reference_to_an_earlier_task_is_one_to_the_task_behind_it(behind: Behind) -> None:
    pair = await behind()
    first = await pair.front.send("one")
    second = await pair.front.send("two", first["contextId"], referenceTaskIds=[first["id"]])
    assert why(second) == COMPLETED
    [latest, earliest] = (await pair.direct.call("ListTasks"))["tasks"]
    whole = await pair.direct.get(latest["id"])
    assert whole["history"][0]["referenceTaskIds"] == [earliest["id"]]


async def test_a_cancelled_task_is_cancelled_behind(pair: Pair) -> None:
    text = f"hold {uuid4()}"
    async with pair.front.stream(text) as stream:
        frames = await stream.read_until(lambda seen: "before " in streamed_text(seen))
        task = frames[0].event["task"]["id"]
        await pair.front.call("CancelTask", id=task)
        last = (await stream.rest())[-1]
    assert last.event["statusUpdate"]["status"]["state"] == "TASK_STATE_CANCELED"
    [behind] = (await pair.direct.call("ListTasks"))["tasks"]
    assert behind["status"]["state"] == "TASK_STATE_CANCELED"


async def test_a_later_task_is_cancelled_behind_too_and_the_context_goes_on(pair: Pair) -> None:
    first = await pair.front.send("one")
    text = f"hold {uuid4()}"
    async with pair.front.stream(text, first["contextId"]) as stream:
        frames = await stream.read_until(lambda seen: "before " in streamed_text(seen))
        await pair.front.call("CancelTask", id=frames[0].event["task"]["id"])
    after = await pair.front.send("two", first["contextId"])
    # The agent has the message whose task was cancelled, and is not told it again.
    assert text_of(after) == knows("one", text, "two")
    states = [task["status"]["state"] for task in (await pair.direct.call("ListTasks"))["tasks"]]
    assert states == ["TASK_STATE_COMPLETED", "TASK_STATE_CANCELED", "TASK_STATE_COMPLETED"]


async def test_a_question_that_is_cancelled_is_cancelled_behind_too(pair: Pair) -> None:
    asked = await pair.front.send("ask")
    await pair.front.call("CancelTask", id=asked["id"])
    await canceled(pair.direct)
    after = await pair.front.send("two", asked["contextId"])
    assert (why(after), text_of(after)) == (COMPLETED, knows("ask", "two"))
    assert [task["status"]["state"] for task in await all_of(pair.direct)] == [COMPLETED[0], "TASK_STATE_CANCELED"]


async def all_of(caller: A2A) -> list[dict[str, Any]]:
    """The tasks of the agent, the latest first."""
    found: list[dict[str, Any]] = (await caller.call("ListTasks"))["tasks"]
    return found


async def canceled(caller: A2A) -> None:
    """Returns when the latest task of the agent is cancelled."""

    async def is_canceled() -> bool:
        return bool((await all_of(caller))[0]["status"]["state"] == "TASK_STATE_CANCELED")

    await until(is_canceled)


async def test_contexts_at_the_same_time_do_not_mix(pair: Pair) -> None:
    firsts = await asyncio.gather(*(pair.front.send(f"first {name}") for name in "abc"))
    seconds = await asyncio.gather(*(pair.front.send("second", first["contextId"]) for first in firsts))
    assert [text_of(task) for task in seconds] == [knows(f"first {name}", "second") for name in "abc"]


async def test_a_file_goes_there_and_comes_back(behind: Behind) -> None:
    modes = "card: {input_modes: ['*/*'], output_modes: ['*/*']}"
    pair = await behind(f"echo: {{type: python, ref: 'tests.support.file_agent:reply', {modes}}}")
    file = {"raw": "AAEC", "filename": "x.bin", "mediaType": "image/png"}
    task = await pair.front.send("", parts=[{"text": "look"}, file])
    parts = [part for artifact in task["artifacts"] for part in artifact["parts"]]
    assert parts == [{"text": "look"}, file]


# --- tools, approvals, consent ----------------------------------------------------------------------------------------


def paying(conversation: Conversation) -> Iterable[Step]:
    if conversation.text == "pay" and not conversation.tool_outputs:
        yield Call("pay", {"eur": 3}, "c1")
        yield Call("pay", {"eur": 4}, "c2")
    else:
        yield Say(" | ".join([*conversation.tool_outputs.values(), conversation.text]))


@asynccontextmanager
async def model(script: Script) -> AsyncIterator[str]:
    backend = ChatServer(script)
    async with serve(backend.app) as url:
        yield f"echo: {{type: openai-chat, model: m, base_url: '{url}/v1', tools: [bank], approvals: [{{tool: 'bank.*'}}]}}"


BANK = "tools: {bank: {type: python, ref: 'tests.support.bank_tool:pay'}}"


def decisions(task: dict[str, Any], *approved: bool) -> dict[str, Any]:
    tools = task["status"]["message"]["metadata"][URI]["approval"]["tools"]
    answers = [{"id": tool["id"], "approved": yes} for tool, yes in zip(tools, approved, strict=True)]
    return {"parts": [{"data": {"approvals": answers}}], "taskId": task["id"]}


def outcomes(task: dict[str, Any]) -> list[tuple[str, Any]]:
    parts = [part for message in task["history"] for part in message["parts"] if "response" in part.get("data", {})]
    return [(part["metadata"][URI]["phase"], part["data"]["response"]) for part in parts]


async def test_an_approval_is_asked_of_the_caller_and_the_decision_goes_behind(behind: Behind) -> None:
    async with model(paying) as agents:
        pair = await behind(agents, settings=BANK)
        asked = await pair.front.send("pay")
        tools = asked["status"]["message"]["metadata"][URI]["approval"]["tools"]
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert [(tool["name"], tool["args"]) for tool in tools] == [("pay", {"eur": 3}), ("pay", {"eur": 4})]
        done = await pair.front.send("", asked["contextId"], **decisions(asked, True, False))
    assert why(done) == COMPLETED
    assert "paid 3" in text_of(done)
    assert "paid 4" not in text_of(done)
    assert ("succeeded", {"result": "paid 3"}) in outcomes(done)


async def test_an_approval_that_is_cancelled_is_cancelled_behind_and_the_next_message_is_a_task_of_its_own(
    behind: Behind,
) -> None:
    async with model(paying) as agents:
        pair = await behind(agents, settings=BANK)
        asked = await pair.front.send("pay")
        await pair.front.call("CancelTask", id=asked["id"])
        after = await pair.front.send("never mind", asked["contextId"])
        latest, earliest = await all_of(pair.direct)
        whole = await pair.direct.get(latest["id"])
    assert why(after) == COMPLETED
    assert "paid" not in text_of(after)
    assert (latest["status"]["state"], earliest["status"]["state"]) == (COMPLETED[0], "TASK_STATE_CANCELED")
    assert whole["history"][0]["parts"] == [{"text": "never mind"}]


async def test_another_message_abandons_the_question_behind_too(behind: Behind) -> None:
    async with model(paying) as agents:
        pair = await behind(agents, settings=BANK)
        asked = await pair.front.send("pay")
        done = await pair.front.send("never mind", asked["contextId"], taskId=asked["id"])
        [behind_it] = (await pair.direct.call("ListTasks"))["tasks"]
    assert why(done) == COMPLETED
    assert "paid" not in text_of(done)
    assert behind_it["status"]["state"] == "TASK_STATE_COMPLETED"


def counting(conversation: Conversation) -> Iterable[Step]:
    if conversation.tool_outputs:
        yield Say(f"It is {next(iter(conversation.tool_outputs.values()))}.")
    else:
        yield Call("clock", {"zone": "Oslo"}, "c1")


CLOCK = {"name": "clock", "description": "The time.", "parameters": {"type": "object"}}


async def test_a_tool_of_the_caller_is_called_through_both_gateways(behind: Behind) -> None:
    async with serve(ChatServer(counting).app) as url:
        pair = await behind(f"echo: {{type: openai-chat, model: m, base_url: '{url}/v1'}}")
        asked = await pair.front.send("What time is it?", metadata={URI: {"tools": [CLOCK]}})
        [call] = [part for part in asked["status"]["message"]["parts"] if "data" in part]
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        assert (call["data"]["name"], call["data"]["args"]) == ("clock", {"zone": "Oslo"})
        result = {"data": {"id": call["data"]["id"], "name": "clock", "response": {"result": "noon"}}}
        answer = [{**result, "metadata": {"type": "function_response"}}]
        done = await pair.front.send("", asked["contextId"], taskId=asked["id"], parts=answer)
    assert (why(done), text_of(done)) == (COMPLETED, "It is noon.")


async def test_a_consent_that_the_agent_needs_is_one_of_the_front(behind: Behind) -> None:
    pair = await behind("echo: {type: python, ref: 'tests.support.consenting_agent:reply'}")
    asked = await pair.front.send("Read my mail")
    [link] = asked["status"]["message"]["metadata"][URI]["consent"]["links"]
    assert (asked["status"]["state"], link["url"]) == ("TASK_STATE_AUTH_REQUIRED", "https://login.example/x")
    done = await pair.front.send("done", asked["contextId"], taskId=asked["id"])
    assert (why(done), text_of(done)) == (COMPLETED, "Thank you.")


async def test_the_tokens_of_the_agent_are_those_of_the_front(behind: Behind) -> None:
    async with serve(ChatServer(lambda _: [Say("Hello")]).app) as url:
        pair = await behind(f"echo: {{type: openai-chat, model: m, base_url: '{url}/v1'}}")
        front, direct = await pair.front.send("Hi"), await pair.direct.send("Hi")
    assert front["metadata"]["usage"] == direct["metadata"]["usage"]
    assert front["metadata"]["usage"]["turn"]["outputTokens"] > 0


async def test_the_card_of_the_front_says_what_the_agent_behind_it_says(behind: Behind) -> None:
    skill = "{id: remember, name: Remember, description: 'Says it again.', tags: [memory]}"
    pair = await behind(ECHO.replace("}", f", card: {{description: 'An echo.', skills: [{skill}]}}}}"))

    async def described() -> bool:
        card = (await pair.front.http.get("/a2a/front/.well-known/agent-card.json")).json()
        return bool(card["description"] == "An echo." and card["skills"][0]["id"] == "remember")

    await until(described)


# --- an agent that forgets, one that fails, and loops -----------------------------------------------------------------


@dataclass(slots=True)
class Restarted:
    """The gateway in front of an agent that is started again with nothing in its memory."""

    front: A2A
    agent: A2AAgent


@asynccontextmanager
async def forgetful(tmp_path: Path, more: str, script: Script) -> AsyncIterator[Restarted]:
    agent = A2AAgent(script)
    async with serve(agent.app) as url:
        front = f"front: {{type: a2a, url: '{url}', poll: 100ms{more}}}"
        async with local_gateway(front, tmp_path, pace=AT_ONCE) as gateway, a2a_http(gateway.url) as http:
            yield Restarted(A2A(http, "front"), agent)


REBUILD = ", on_lost_handle: rebuild"


def remembers(conversation: Conversation) -> Iterable[Step]:
    if conversation.text == "ask":
        message = {"messageId": "q", "role": "ROLE_AGENT", "parts": [{"text": "Which city?"}]}
        yield Item({"statusUpdate": {"status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": message}}})
    elif conversation.text == "boom":
        yield Fail(message="out of ink")
    else:
        yield Say(f"{len(conversation.items)} known, {conversation.text}")


async def test_a_context_goes_on_when_the_agent_has_forgotten_it(tmp_path: Path) -> None:
    async with forgetful(tmp_path, REBUILD, remembers) as restarted:
        front = restarted.front
        first = await front.send("one")
        asked = await front.send("ask", first["contextId"])
        await front.send("Oslo", first["contextId"], taskId=asked["id"])
        await front.send("boom", first["contextId"])
        await front.send("go on", first["contextId"])
        restarted.agent.forget_everything()
        after = await front.send("two", first["contextId"])
        again = await front.send("three", first["contextId"])
    assert why(after) == COMPLETED
    [told, then] = [sent["message"]["parts"] for sent in restarted.agent.sent[-2:]]
    lines = told[0]["text"].split("\n\n")
    assert lines[1:-1] == [
        "User: one",
        "Agent: 1 known, one",
        "User: ask",
        "Agent: Which city?",
        "User: Oslo",
        "Agent: 3 known, Oslo",
        "User: boom",
        "Agent: (the task is failed: out of ink)",
        "User: go on",
        "Agent: 5 known, go on",
    ]
    assert told[1:] == [{"text": "two"}]
    assert then == [{"text": "three"}]
    # The text that tells it, "two", and "three".
    assert text_of(again) == "3 known, three"


async def test_without_leave_to_tell_it_again_a_context_that_was_forgotten_ends(tmp_path: Path) -> None:
    async with forgetful(tmp_path, "", remembers) as restarted:
        first = await restarted.front.send("one")
        restarted.agent.forget_everything()
        lost = await restarted.front.send("two", first["contextId"])
    assert why(lost) == failed(ErrorClass.HANDLE_NOT_FOUND)
    assert len(restarted.agent.sent) == 1


async def test_a_message_whose_task_failed_is_not_said_again(tmp_path: Path) -> None:
    async with forgetful(tmp_path, "", remembers) as restarted:
        broken = await restarted.front.send("boom")
        after = await restarted.front.send("two", broken["contextId"])
    assert why(broken) == failed(ErrorClass.BACKEND_FAILED)
    assert text_of(after) == "2 known, two"


async def test_a_stream_that_was_cut_is_listened_to_again_and_says_nothing_twice(tmp_path: Path) -> None:
    goes_on = asyncio.Event()
    steps: list[Step] = [Say("one "), Cut(), Pause(goes_on), Say("two "), Say("three")]
    async with forgetful(tmp_path, "", lambda _: steps) as restarted, restarted.front.stream("count") as stream:
        await stream.read_until(lambda frames: "one " in streamed_text(frames))
        await restarted.agent.left.wait()
        goes_on.set()
        frames = await stream.rest()
    assert streamed_text(frames) == "one two three"
    assert len(restarted.agent.sent) == 1
    assert "SubscribeToTask" in restarted.agent.called


class Mirror:
    """An address that leads back to where the request came from."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app(scope, receive, send)


async def test_gateways_that_form_a_loop_refuse_the_message_instead_of_passing_it_round(tmp_path: Path) -> None:
    mirror = Mirror()
    async with serve(mirror) as url, local_gateway(f"ring: {{type: a2a, url: '{url}/a2a/ring'}}", tmp_path) as gateway:
        mirror.app = gateway.gateway.app
        async with a2a_http(gateway.url) as http:
            ring = A2A(http, "ring")
            task = await ring.send("round")
            tasks = (await ring.call("ListTasks"))["tasks"]
    assert why(task) == failed(ErrorClass.BACKEND_FAILED)
    # It came back once, and went no further.
    assert sorted(why(each) for each in tasks) == sorted(
        [failed(ErrorClass.NOT_SERVED), failed(ErrorClass.BACKEND_FAILED)]
    )


# --- bare messages


def counting_in_words(said: Conversation) -> list[Step]:
    return [Item({"message": {"parts": [{"text": f"{len(said.user_texts)} so far"}]}})]


async def bare(caller: A2A, text: str, context: str | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"messageId": text, "role": "ROLE_USER", "parts": [{"text": text}]}
    found = await caller.call("SendMessage", message=message | ({"contextId": context} if context else {}))
    return dict(found["message"])


@pytest.mark.parametrize("more", list(BINDINGS.values()), ids=list(BINDINGS))
async def test_a_bare_message_is_passed_on_and_its_context_is_kept(tmp_path: Path, more: str) -> None:
    version = "0.3" if "0.3" in more else "1.0"
    agent = A2AAgent(counting_in_words, version=version)
    async with serve(agent.app) as url:
        settings = f"type: a2a, url: '{url}', poll: 100ms, direct_replies: true{more}"
        async with local_gateway(f"front: {{{settings}}}", tmp_path) as gateway, a2a_http(gateway.url) as http:
            front = A2A(http, "front")
            first = await bare(front, "one")
            second = await bare(front, "two", first["contextId"])
            agent.script = lambda _: [Say("a task")]
            task = await front.send("three", first["contextId"])
            listed = (await front.call("ListTasks"))["tasks"]
    assert [message["parts"] for message in (first, second)] == [[{"text": "1 so far"}], [{"text": "2 so far"}]]
    assert [each["id"] for each in listed] == [task["id"]]
    assert [len(sent["message"]["parts"]) for sent in agent.sent] == [1, 1, 1]
    assert [sent["message"].get("contextId") for sent in agent.sent] == [None, "context-1", "context-1"]


async def test_a_bare_message_in_a_task_that_its_caller_knows_is_the_answer_of_that_task(tmp_path: Path) -> None:
    agent = A2AAgent(lambda _: [Item({"statusUpdate": {"status": {"state": "TASK_STATE_INPUT_REQUIRED"}}})])
    async with serve(agent.app) as url:
        settings = f"type: a2a, url: '{url}', direct_replies: true"
        async with local_gateway(f"front: {{{settings}}}", tmp_path) as gateway, a2a_http(gateway.url) as http:
            front = A2A(http, "front")
            asked = await front.send("one")
            agent.script = lambda _: [Item({"message": {"parts": [{"text": "so be it"}]}})]
            done = await front.send("two", asked["contextId"], taskId=asked["id"])
    assert (why(done), text_of(done)) == (COMPLETED, "so be it")
