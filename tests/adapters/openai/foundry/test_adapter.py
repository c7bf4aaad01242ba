"""Agents of a Foundry project: the conformance suite on both addresses, what is sent, sandboxes, credentials, errors."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from typing import Any, ClassVar

import pytest

from adapters.openai.foundry.adapter import factory
from gateway.ports.adapter import (
    Adapter,
    AdapterError,
    ApprovalAsked,
    CallStarted,
    ErrorClass,
    ToolCallReady,
)
from gateway.ports.capabilities import CanDescribe, CanListTail, CanProbe, Description, ProbeReport, Tail
from gateway.ports.conversation import OutputItem
from gateway.ports.tools import ToolDeclaration
from gateway.testing.adapter_scripts import collect, completed, failure, follow_up, request, text
from gateway.testing.serving import serve
from tests.adapters.emulator_support import KEY, Build, plays
from tests.adapters.openai.openai_support import judge
from tests.adapters.openai.responses_suite import ResponsesSuite
from tests.emulators.foundry import AGENT, PROJECT, FoundryServer
from tests.emulators.scripts import Ask, Call, Say, Script

Project = Callable[..., Awaitable[Adapter]]
_TOOL = ToolDeclaration("weather", "The weather.", {"type": "object", "properties": {}})


def settings(url: str, **values: Any) -> dict[str, Any]:
    return {"endpoint": f"{url}{PROJECT}", "agent": AGENT, "api_key": KEY} | values


class _Suite(ResponsesSuite):
    factory = factory
    emulator: ClassVar[Callable[..., FoundryServer]] = FoundryServer
    server: FoundryServer

    def built(self, build: Build, url: str) -> Adapter:
        return factory.build(factory.settings.model_validate(settings(url, **self.values)))


class TestChain(_Suite):
    async def backend_offered(self) -> list[list[ToolDeclaration]]:
        pytest.skip("an agent of a project takes no declarations")


class TestConversation(TestChain):
    values: ClassVar = {"conversation": True}


class TestBackground(TestChain):
    values: ClassVar = {"background": True}

    async def backend_is_released(self) -> None:
        await self.server.listener_left()


class TestBackgroundConversation(TestBackground):
    values: ClassVar = {"background": True, "conversation": True}


def _hosted(*args: Any, **options: Any) -> FoundryServer:
    return FoundryServer(*args, hosted=True, **options)


class TestHosted(_Suite):
    emulator = _hosted
    values: ClassVar = {"hosted": True, "declare_tools": True}


@pytest.fixture
async def project() -> AsyncGenerator[Project]:
    """Starts a project with this server, and gives the adapter for its agent."""
    async with AsyncExitStack() as stack:

        async def started(server: FoundryServer, **values: Any) -> Adapter:
            url = await stack.enter_async_context(serve(server.app))
            adapter = factory.build(factory.settings.model_validate(settings(url, **values)))
            stack.push_async_callback(adapter.aclose)
            return adapter

        yield started


def scripted(script: Script, **options: Any) -> FoundryServer:
    return FoundryServer(script, api_key=KEY, **options)


# --- what is sent


async def test_the_request_names_the_agent_and_no_model(project: Project) -> None:
    server = scripted(plays(Say("Hello")), validator=judge())
    adapter = await project(server, agent_version="3", metadata={"team": "a"})
    await collect(adapter, request("Hi", tools=(_TOOL,)))
    [body] = server.requests
    assert body["agent_reference"] == {"type": "agent_reference", "name": AGENT, "version": "3"}
    assert body["metadata"] == {"team": "a"}
    assert not body.keys() & {"model", "tools", "instructions"}
    assert server.paths == [f"{PROJECT}/openai/v1/responses"]


async def test_the_endpoint_of_a_hosted_agent_has_a_version_and_its_conversations_are_those_of_the_project(
    project: Project,
) -> None:
    server = scripted(plays(Say("Hello")), hosted=True)
    adapter = await project(server, hosted=True, conversation=True)
    end = completed(await collect(adapter, request("Hi")))
    assert end.handle is not None
    await adapter.forget(end.handle)  # type: ignore[attr-defined]  # it can
    own = f"{PROJECT}/agents/{AGENT}/endpoint/protocols/openai/responses?api-version=v1"
    conversations = f"{PROJECT}/openai/v1/conversations"
    assert server.paths[:2] == [conversations, own]
    assert server.paths[-1] == f"{conversations}/{end.handle}"
    assert "agent_reference" not in server.requests[-1]


async def test_a_function_of_the_agent_is_answered_by_the_gateway(project: Project) -> None:
    server = scripted(plays(Call("weather", {"city": "Oslo"}, "call_1")))
    adapter = await project(server)
    events = await collect(adapter, request("Hi", tools=(_TOOL,)))
    [call] = [event for event in events if isinstance(event, ToolCallReady)]
    assert (call.name, call.handled) == ("weather", None)
    server.script = plays(Say("Cold"))
    end = completed(events)
    answer = request("Hi", handle=end.handle, state=end.state, items=(OutputItem("call_1", "3C"),))
    assert text(await collect(adapter, answer)) == "Cold"
    assert server.requests[-1]["input"] == [{"type": "function_call_output", "call_id": "call_1", "output": "3C"}]


async def test_a_question_of_the_agent_is_an_approval(project: Project) -> None:
    server = scripted(plays(Ask("weather", {"city": "Oslo"})))
    [asked] = [
        event for event in await collect(await project(server), request("Hi")) if isinstance(event, ApprovalAsked)
    ]
    assert asked.name == "weather"


# --- sandboxes


@pytest.mark.parametrize("more", [{}, {"conversation": True}, {"background": True}], ids=str)
async def test_every_call_of_a_context_has_the_sandbox_of_the_first(project: Project, more: dict[str, Any]) -> None:
    server = scripted(plays(Say("Hello")), hosted=True)
    adapter = await project(server, hosted=True, **more)
    first = completed(await collect(adapter, request("Hi")))
    await collect(adapter, follow_up(adapter, first, "Hi", "Hello", "And now?"))
    assert server.sessions[0] == server.sessions[1]
    await collect(adapter, request("Somebody else"))
    assert server.sessions[2] != server.sessions[0]


async def test_a_conversation_that_was_made_elsewhere_gets_a_sandbox_of_its_own(project: Project) -> None:
    server = scripted(plays(Say("Hello")), hosted=True)
    adapter = await project(server, hosted=True)
    made = completed(await collect(adapter, request("Hi")))
    again = completed(await collect(adapter, request("Hi", handle=made.handle)))
    assert again.state == {"agent_session_id": server.sessions[1]}


# --- credentials


async def test_a_key_goes_in_the_header_of_foundry(project: Project) -> None:
    server = scripted(plays(Say("Hello")))
    await collect(await project(server), request("Hi"))
    [headers] = server.headers
    assert headers["api-key"] == KEY
    assert "authorization" not in headers


async def test_a_token_goes_as_a_bearer_token(project: Project) -> None:
    server = FoundryServer(plays(Say("Hello")), tokens=("token-0123456789",))
    auth = {"type": "api_key", "key": "token-0123456789"}
    assert text(await collect(await project(server, api_key=None, auth=auth), request("Hi"))) == "Hello"


# --- errors


async def test_an_agent_that_is_not_there_is_not_served(project: Project) -> None:
    error = await failure(await project(scripted(plays(Say("Hello"))), agent="nobody"), secret=KEY)
    assert error.kind is ErrorClass.NOT_SERVED


async def test_a_wrong_key_is_unauthorised_and_not_quoted(project: Project) -> None:
    wrong = "key-0123456789abcdef"
    error = await failure(await project(scripted(plays()), api_key=wrong), secret=wrong)
    assert error.kind is ErrorClass.UNAUTHORISED


async def test_a_handle_that_the_service_cannot_read_is_lost(project: Project) -> None:
    adapter = await project(scripted(plays(Say("Hello"))))
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, request("Hi", handle="resp_0123456789"))
    assert caught.value.kind is ErrorClass.HANDLE_NOT_FOUND


async def test_a_conversation_that_is_at_work_is_locked(project: Project) -> None:
    server = scripted(plays(Say("Hello")))
    adapter = await project(server, conversation=True)
    end = completed(await collect(adapter, request("Hi")))
    at_work = asyncio.Event()

    async def slow(_: Any) -> AsyncGenerator[Any]:
        at_work.set()
        await asyncio.Event().wait()
        yield Say("never")

    server.script = slow
    again = follow_up(adapter, end, "Hi", "Hello", "And now?")
    stalled = asyncio.ensure_future(anext(adapter.call(again)))  # noqa: TID251  # the test cancels it
    await at_work.wait()
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, again)
    assert caught.value.kind is ErrorClass.LOCKED
    stalled.cancel()


# --- before its first use


async def test_a_probe_asks_for_the_agent(project: Project) -> None:
    server = scripted(plays(Say("Hello")))
    adapter = await project(server)
    assert isinstance(adapter, CanProbe)
    assert await adapter.probe() == ProbeReport(model=True, streams=True, verifies_chain=True)
    assert server.paths[0] == f"{PROJECT}/agents/{AGENT}?api-version=v1"
    assert server.stored == {}


async def test_the_project_describes_the_agent(project: Project) -> None:
    adapter = await project(scripted(plays()))
    assert isinstance(adapter, CanDescribe)
    assert await adapter.describe() == Description(AGENT, "Says it again.", "3")


async def test_an_agent_that_is_not_there_has_no_description(project: Project) -> None:
    adapter = await project(scripted(plays()), agent="nobody")
    assert isinstance(adapter, CanDescribe)
    with pytest.raises(AdapterError) as caught:
        await adapter.describe()
    assert caught.value.kind is ErrorClass.NOT_SERVED


async def test_a_call_begins_with_its_response(project: Project) -> None:
    server = scripted(plays(Say("Hello")))
    [started, *_] = await collect(await project(server), request("Hi"))
    assert started == CallStarted(next(iter(server.stored)))
    assert next(iter(server.stored)).startswith("caresp_")


# --- responses whose name was not read


async def never_ending(_: Any) -> AsyncGenerator[Any]:
    yield Say("Well, ")
    await asyncio.Event().wait()


def statuses(server: FoundryServer) -> list[str]:
    return [stored.body["status"] for stored in server.stored.values()]


async def test_a_response_that_nobody_listens_to_is_ended_before_the_conversation_is_read(project: Project) -> None:
    server = scripted(plays(Say("Hello")))
    adapter = await project(server, conversation=True, background=True)
    end = completed(await collect(adapter, request("Hi")))
    server.script = never_ending
    again = follow_up(adapter, end, "Hi", "Hello", "And now?")
    async with aclosing(adapter.call(again)) as events:
        await anext(events)
    assert isinstance(adapter, CanListTail)
    with pytest.raises(AdapterError) as caught:
        await adapter.tail(again)
    assert caught.value.kind is ErrorClass.LOCKED
    assert statuses(server) == ["completed", "cancelled"]
    assert await adapter.tail(again) == Tail(0)
    server.script = plays(Say("Well"))
    assert text(await collect(adapter, again)) == "Well"


async def test_a_response_of_another_conversation_is_left_alone(project: Project) -> None:
    server = scripted(plays(Say("Hello")))
    adapter = await project(server, conversation=True, background=True)
    one, other = [completed(await collect(adapter, request("Hi"))) for _ in range(2)]
    busy, idle = (follow_up(adapter, end, "Hi", "Hello", "And now?") for end in (one, other))
    server.script = never_ending
    async with aclosing(adapter.call(busy)) as events:
        await anext(events)
        assert isinstance(adapter, CanListTail)
        assert await adapter.tail(idle) == Tail(0)
    assert statuses(server) == ["completed", "completed", "in_progress"]
