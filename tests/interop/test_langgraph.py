"""The gateway in front of a real LangGraph Agent Server, with graphs of LangChain's agents and of single nodes."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from msgspec.structs import replace

from adapters.langgraph.adapter import LangGraphAdapter, factory
from gateway.a2a.model import Part
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    ApprovalAsked,
    CallCompleted,
    CallStarted,
    Ending,
    ErrorClass,
    Progress,
    ReasoningDelta,
    ServiceRequest,
    TextDelta,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.capabilities import Fate, Ongoing, Tail
from gateway.ports.conversation import AssistantItem, CallItem, OutputItem, UserItem
from gateway.testing.adapter_scripts import collect, completed, message, of_type, only, request, text
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, a2a_http, text_of, why
from tests.emulators.langgraph_server import LangGraphServer
from tests.emulators.scripts import Ask, Conversation, Delay, Say, Step
from tests.interop import peer_processes
from tests.interop.peer_processes import Peer
from tests.running import StartLocal
from tests.support.rows import query

Build = Callable[..., LangGraphAdapter]
UNKNOWN = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
async def build(langgraph_peer: Peer) -> AsyncIterator[Build]:
    made: list[LangGraphAdapter] = []

    def built(graph: str, **values: Any) -> LangGraphAdapter:
        settings = {"url": langgraph_peer.url, "assistant": graph} | values
        adapter = factory.build(factory.settings.model_validate(settings))
        assert isinstance(adapter, LangGraphAdapter)
        made.append(adapter)
        return adapter

    yield built
    for adapter in made:
        await adapter.aclose()


@pytest.fixture
async def agent(build: Build) -> LangGraphAdapter:
    return build("agent")


async def thread_of(peer: Peer, handle: str | None) -> list[tuple[str, Any]]:
    """What the thread holds."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        state = (await client.get(f"{peer.url}/threads/{handle}/state")).raise_for_status().json()
    return [(each["type"], each["content"]) for each in state["values"]["messages"]]


def after(end: CallCompleted, words: str, *items: OutputItem, said: bool = True) -> ServiceRequest:
    """The next request of the thread, in the same task."""
    users = (UserItem(message(words)),) if said else ()
    return request(words, handle=end.handle, state=end.state, items=(*items, *users))


def decisions(events: list[AdapterEvent], *approved: bool) -> list[OutputItem]:
    asked = of_type(events, ApprovalAsked)
    reason = "The user rejected this call."
    return [
        OutputItem(each.call_id, {"approved": True} if yes else reason, not yes, yes)
        for each, yes in zip(asked, approved, strict=True)
    ]


def names_of(events: list[AdapterEvent]) -> Ongoing:
    started = of_type(events, CallStarted)
    handle = next((event.handle for event in started if event.handle), None)
    return Ongoing(handle, next(event.run for event in started if event.run))


async def begun(adapter: LangGraphAdapter, asked: ServiceRequest) -> list[AdapterEvent]:
    """The events up to the first text; then nobody listens any more."""
    events: list[AdapterEvent] = []
    stream: AsyncGenerator[AdapterEvent, None] = adapter.call(asked)
    async for event in stream:
        events.append(event)
        if isinstance(event, TextDelta):
            break
    await stream.aclose()
    return events


# --- conversations


async def test_a_context_is_a_thread_that_holds_each_message_once(
    langgraph_peer: Peer, start_local: StartLocal
) -> None:
    gateway = await start_local(f"graph: {{type: langgraph, url: '{langgraph_peer.url}'}}")
    async with a2a_http(gateway.url) as http:
        graph = A2A(http, "graph")
        first = await graph.send("one")
        second = await graph.send("two", first["contextId"])
        elsewhere = await graph.send("three")
    assert [text_of(task) for task in (first, second, elsewhere)] == [
        "echo one of 1",
        "echo two of 3",
        "echo three of 1",
    ]
    [(handle,), _] = query(gateway.database, "SELECT handle FROM thread ORDER BY id")
    assert await thread_of(langgraph_peer, handle) == [
        ("human", "one"),
        ("ai", "echo one of 1"),
        ("human", "two"),
        ("ai", "echo two of 3"),
    ]
    assert handle.encode() not in graph.seen


async def test_a_failed_message_that_comes_again_with_the_next_is_in_the_thread_once(
    build: Build, langgraph_peer: Peer
) -> None:
    node = build("node")
    first = completed(await collect(node, request("one")))
    with pytest.raises(AdapterError) as caught:
        await collect(node, request("boom", handle=first.handle, state=first.state))
    assert (caught.value.kind, caught.value.detail) == (ErrorClass.BACKEND_FAILED, "the run failed: ValueError: boom")
    again = request("two", handle=first.handle, state=first.state, earlier=(UserItem(message("boom")),))
    assert text(await collect(node, again)) == "plain two of 4"
    assert [said for kind, said in await thread_of(langgraph_peer, first.handle) if kind == "human"] == [
        "one",
        "boom",
        "two",
    ]


async def test_a_conversation_is_told_to_a_new_thread_with_its_calls(
    agent: LangGraphAdapter, langgraph_peer: Peer
) -> None:
    call = CallItem("c1", "weather", '{"city": "Oslo"}', handled=True)
    earlier = (UserItem(message("one")), call, OutputItem("c1", "3C"), AssistantItem((Part(text="It is 3C."),)))
    events = await collect(agent, request("two", earlier=earlier))
    assert text(events) == "echo two of 5"
    kinds = [kind for kind, _ in await thread_of(langgraph_peer, completed(events).handle)]
    assert kinds == ["human", "ai", "tool", "ai", "human", "ai"]


async def test_an_unknown_thread_and_an_unknown_graph_are_told_apart(build: Build, agent: LangGraphAdapter) -> None:
    handle = completed(await collect(agent, request("one"))).handle
    asked = [(agent, UNKNOWN), (build("nothing"), handle), (build(UNKNOWN), handle)]
    kinds = []
    for adapter, name in asked:
        with pytest.raises(AdapterError) as caught:
            await collect(adapter, request("two", handle=name))
        kinds.append(caught.value.kind)
    assert kinds == [ErrorClass.HANDLE_NOT_FOUND, ErrorClass.NOT_SERVED, ErrorClass.NOT_SERVED]


async def test_a_thread_is_deleted_once_and_again(agent: LangGraphAdapter) -> None:
    handle = completed(await collect(agent, request("one"))).handle
    assert handle is not None
    for _ in range(2):
        await agent.forget(handle)  # type: ignore[attr-defined]
    with pytest.raises(AdapterError) as caught:
        await agent.tail(request("two", handle=handle))
    assert caught.value.kind is ErrorClass.HANDLE_NOT_FOUND


async def test_the_server_and_the_graph_are_found(agent: LangGraphAdapter, build: Build) -> None:
    with pytest.raises(AdapterError) as caught:
        await build("nothing").probe()
    assert caught.value.kind is ErrorClass.NOT_SERVED
    assert (await agent.probe()).notes == ("it is version 0.16.7 of langgraph-api",)


async def test_files_reach_the_graph(agent: LangGraphAdapter) -> None:
    sent = message("look")
    picture = Part(raw="aGk=", media_type="image/png", filename="a.png")
    page = Part(url="http://host.example/a.pdf", media_type="application/pdf", filename="a.pdf")
    item = UserItem(type(sent)(message_id="m", role=sent.role, parts=(*sent.parts, picture, page)))
    assert text(await collect(agent, request("look", items=(item,)))) == "echo text image_url file of 1"


# --- what a run shows


async def test_text_comes_in_pieces_with_the_tokens_of_all_messages(agent: LangGraphAdapter) -> None:
    events = await collect(agent, request("hello there"))
    assert [event.text for event in of_type(events, TextDelta)] == ["echo ", "hello ", "there ", "of ", "1"]
    assert completed(events).usage == {"input_tokens": 1, "output_tokens": 3, "total_tokens": 4}


async def test_reasoning_is_told_apart_from_the_answer(agent: LangGraphAdapter) -> None:
    events = await collect(agent, request("think"))
    assert ([event.text for event in of_type(events, ReasoningDelta)], text(events)) == (
        ["Step by step."],
        "Thought over.",
    )


async def test_two_tool_calls_are_told_with_their_results_and_what_the_tools_say_meanwhile(
    agent: LangGraphAdapter,
) -> None:
    events = await collect(agent, request("weather Oslo Rome"))
    calls = [(event.name, event.arguments, event.handled) for event in of_type(events, ToolCallReady)]
    assert sorted(calls) == [("weather", '{"city": "Oslo"}', True), ("weather", '{"city": "Rome"}', True)]
    assert sorted(str(event.output) for event in of_type(events, ToolResultReady)) == ["3C in Oslo", "3C in Rome"]
    assert sorted(event.text for event in of_type(events, Progress)) == ["looking at Oslo", "looking at Rome"]


@pytest.mark.parametrize("words", ["raise", "weather Nowhere"])
async def test_a_model_or_a_tool_that_raises_fails_the_run(agent: LangGraphAdapter, words: str) -> None:
    with pytest.raises(AdapterError) as caught:
        await collect(agent, request(words))
    assert caught.value.kind is ErrorClass.BACKEND_FAILED


# --- runs without a listener


@pytest.mark.parametrize("turn", [1, 2])
async def test_a_run_that_nobody_hears_goes_on_and_gives_all_its_events_again(
    agent: LangGraphAdapter, turn: int
) -> None:
    end = completed(await collect(agent, request("one"))) if turn == 2 else CallCompleted()
    asked = request("slow two", handle=end.handle, state=end.state)
    names = names_of(await begun(agent, asked))
    call = Ongoing(names.handle or end.handle, names.run)
    assert (await agent.fetch(call)).fate is Fate.RUNNING
    with pytest.raises(AdapterError) as caught:
        await collect(agent, request("three", handle=call.handle))
    assert caught.value.kind is ErrorClass.LOCKED
    again = [event async for event in agent.resume(asked, call)]
    assert text(again) == f"echo slow two of {2 * turn - 1}"
    found = await agent.fetch(call)
    assert (found.fate, text(found.events)) == (Fate.COMPLETED, text(again))
    assert completed(found.events) == completed(again)


@pytest.mark.parametrize("turn", [1, 2])
async def test_a_cancelled_run_frees_its_thread(agent: LangGraphAdapter, turn: int) -> None:
    end = completed(await collect(agent, request("one"))) if turn == 2 else CallCompleted()
    asked = request("slow two", handle=end.handle, state=end.state)
    names = names_of(await begun(agent, asked))
    call = Ongoing(names.handle or end.handle, names.run)
    assert [await agent.cancel(call) for _ in range(2)] == [True, True]
    assert (await agent.fetch(call)).fate is Fate.FAILED
    now = request("slow two", handle=call.handle, state=end.state)
    assert await agent.tail(now) == Tail(1)
    assert text(await collect(agent, request("three", handle=call.handle))) == f"echo three of {2 * turn}"


async def test_a_run_whose_name_is_lost_is_ended_for_the_next_message_of_its_context_only(
    agent: LangGraphAdapter, langgraph_peer: Peer
) -> None:
    asked = request("slow two")
    call = names_of(await begun(agent, asked))
    for context in ("another", asked.context_id):
        assert (await agent.fetch(call)).fate is Fate.RUNNING
        with pytest.raises(AdapterError) as caught:
            await agent.tail(request("slow two", handle=call.handle, context_id=context))
        assert caught.value.kind is ErrorClass.LOCKED
    async with httpx2.AsyncClient(trust_env=False) as client:
        await client.get(f"{langgraph_peer.url}/threads/{call.handle}/runs/{call.run}/join")
    assert (await agent.fetch(call)).fate is Fate.FAILED
    assert await agent.tail(request("slow two", handle=call.handle)) == Tail(1)
    assert text(await collect(agent, request("three", handle=call.handle))) == "echo three of 2"


async def test_the_thread_tells_what_became_of_a_call_without_a_name(agent: LangGraphAdapter) -> None:
    first = completed(await collect(agent, request("one")))
    asked = request("weather Oslo", handle=first.handle, state=first.state)
    assert await agent.tail(asked) == Tail(0)
    events = await collect(agent, asked)
    found = await agent.tail(asked)
    assert found is not None
    assert (found.held, text(found.answer)) == (1, text(events))
    assert completed(list(found.answer)).state == completed(events).state


async def test_a_run_whose_events_are_gone_is_read_off_its_thread(
    agent: LangGraphAdapter, langgraph_peer: Peer
) -> None:
    handle = completed(await collect(agent, request("one"))).handle
    body = {"assistant_id": "agent", "input": {"messages": [{"role": "user", "content": "weather Oslo"}]}}
    async with httpx2.AsyncClient(trust_env=False) as client:
        made = await client.post(f"{langgraph_peer.url}/threads/{handle}/runs", json=body)
        run = made.raise_for_status().json()["run_id"]
        await client.get(f"{langgraph_peer.url}/threads/{handle}/runs/{run}/join")
    found = await agent.fetch(Ongoing(handle, run))
    assert (found.fate, text(found.events)) == (Fate.COMPLETED, "I look. It is 3C in Oslo.")
    assert only(found.events, ToolResultReady).output == "3C in Oslo"


# --- interrupts


@pytest.mark.parametrize("graph", ["gated", "each_call"])
async def test_calls_are_approved_and_refused_one_by_one(build: Build, langgraph_peer: Peer, graph: str) -> None:
    adapter = build(graph)
    asked = await collect(adapter, request("weather Oslo Rome"))
    questions = of_type(asked, ApprovalAsked)
    assert [(each.name, each.arguments) for each in questions] == [
        ("weather", '{"city":"Oslo"}'),
        ("weather", '{"city":"Rome"}'),
    ]
    assert of_type(asked, ToolCallReady) == []
    events = await collect(adapter, after(completed(asked), "x", *decisions(asked, True, False), said=False))
    ran = only(events, ToolCallReady)
    assert (ran.arguments, ran.question, ran.handled) == ('{"city": "Oslo"}', questions[0].call_id, True)
    assert only(events, ToolResultReady).output == "3C in Oslo"
    results = [said for kind, said in await thread_of(langgraph_peer, completed(asked).handle) if kind == "tool"]
    refusal = "User rejected the tool call for `weather` with reason: The user rejected this call."
    assert sorted(results) == ["3C in Oslo", refusal]


@pytest.mark.parametrize(("subgraphs", "pieces"), [(False, 1), (True, 6)])
async def test_an_agent_inside_of_a_graph_asks_and_speaks_too(build: Build, subgraphs: bool, pieces: int) -> None:
    adapter = build("nested", subgraphs=subgraphs)
    asked = await collect(adapter, request("weather Oslo"))
    assert len(of_type(asked, ApprovalAsked)) == 1
    events = await collect(adapter, after(completed(asked), "x", *decisions(asked, True), said=False))
    assert (text(events)[-17:], only(events, ToolResultReady).output) == ("It is 3C in Oslo.", "3C in Oslo")
    end = completed(events)
    again = await collect(adapter, after(end, "hello to you"))
    assert (text(again), len(of_type(again, TextDelta))) == ("echo hello to you of 5", pieces)


async def test_words_beside_a_yes_are_heard_when_the_call_has_run(build: Build, langgraph_peer: Peer) -> None:
    adapter = build("gated")
    asked = await collect(adapter, request("weather Oslo"))
    events = await collect(adapter, after(completed(asked), "thanks", *decisions(asked, True)))
    assert text(events) == "It is 3C in Oslo.echo thanks of 5"
    kinds = [kind for kind, _ in await thread_of(langgraph_peer, completed(asked).handle)]
    assert kinds == ["human", "ai", "tool", "ai", "human", "ai"]


async def test_words_instead_of_a_decision_leave_no_call_open(build: Build, langgraph_peer: Peer) -> None:
    adapter = build("gated")
    asked = await collect(adapter, request("weather Oslo"))
    events = await collect(adapter, after(completed(asked), "never mind", *decisions(asked, False)))
    assert text(events) == "echo never mind of 4"
    kinds = [kind for kind, _ in await thread_of(langgraph_peer, completed(asked).handle)]
    assert kinds == ["human", "ai", "tool", "human", "ai"]


@pytest.mark.parametrize(("approved", "answer"), [(True, "accept"), (False, "ignore")])
async def test_the_questions_of_the_agent_inbox_are_approvals(build: Build, approved: bool, answer: str) -> None:
    adapter = build("node")
    asked = await collect(adapter, request("mail"))
    assert [(each.name, each.arguments) for each in of_type(asked, ApprovalAsked)] == [("send", '{"to":"bob"}')]
    events = await collect(adapter, after(completed(asked), "x", *decisions(asked, approved), said=False))
    assert text(events) == answer


async def test_a_question_is_answered_by_the_next_message(build: Build) -> None:
    adapter = build("node")
    end = completed(await collect(adapter, request("ask")))
    assert (end.ending, end.message) == (Ending.INPUT_REQUIRED, (Part(text="Which city?"),))
    assert text(await collect(adapter, after(end, "Oslo"))) == "Oslo"


async def test_a_node_may_ask_twice(build: Build) -> None:
    adapter = build("node")
    first = completed(await collect(adapter, request("twice")))
    second = completed(await collect(adapter, after(first, "A")))
    assert [end.message and end.message[0].text for end in (first, second)] == ["First?", "Second?"]
    assert text(await collect(adapter, after(second, "B"))) == "A and B"


async def test_of_three_questions_at_once_each_gets_its_own_answer(build: Build) -> None:
    adapter = build("branches")
    asked = await collect(adapter, request("go"))
    paid = await collect(adapter, after(completed(asked), "x", *decisions(asked, True), said=False))
    assert text(paid) == "pay: approve"
    end = completed(paid)
    for _ in range(2):
        assert end.message is not None
        question = (end.message[0].text or "").rstrip("?").lower()
        events = await collect(adapter, after(end, f"answer to {question}"))
        assert text(events) == f"{question}: answer to {question}"
        end = completed(events)
    assert end.ending is Ending.COMPLETED


async def test_the_gateway_asks_for_the_approval_and_tells_the_decision(
    langgraph_peer: Peer, start_local: StartLocal
) -> None:
    gateway = await start_local(f"graph: {{type: langgraph, url: '{langgraph_peer.url}', assistant: gated}}")
    async with a2a_http(gateway.url) as http:
        graph = A2A(http, "graph")
        asked = await graph.send("weather Oslo")
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        parts = [{"data": {"decision": "approve"}}]
        told = await graph.send("", asked["contextId"], taskId=asked["id"], messageId="m2", parts=parts)
        assert (why(told), text_of(told)) == (COMPLETED, "I look. It is 3C in Oslo.")
        later = await graph.send("hello", asked["contextId"], messageId=str(uuid4()))
    assert text_of(later) == "echo hello of 5"


@pytest.mark.parametrize(("graph", "words"), [("gated", "weather Oslo"), ("node", "ask"), ("branches", "go")])
async def test_what_a_thread_waits_for_is_withdrawn_once_and_the_next_message_begins_anew(
    build: Build, langgraph_peer: Peer, graph: str, words: str
) -> None:
    adapter = build(graph)
    asked = await collect(adapter, request(words))
    end = completed(asked)
    assert await waits(langgraph_peer, end.handle)
    for _ in range(2):
        await adapter.withdraw(names_of(asked), ())
        assert not await waits(langgraph_peer, end.handle)
    refused = [OutputItem(each.call_id, "", error=True, approved=False) for each in of_type(asked, ApprovalAsked)]
    items = (*refused, UserItem(replace(message(words), message_id="m2")))
    again = await collect(
        adapter, request(words, handle=end.handle, state=end.state, items=items, task_id="another", context_id="c")
    )
    assert await waits(langgraph_peer, end.handle)
    await adapter.withdraw(names_of(asked), ())
    assert await waits(langgraph_peer, end.handle)
    assert len(of_type(again, ApprovalAsked)) == len(refused)


async def waits(peer: Peer, handle: str | None) -> bool:
    """Whether the graph of the thread has anything to go on with."""
    async with httpx2.AsyncClient(trust_env=False) as client:
        thread = (await client.get(f"{peer.url}/threads/{handle}")).raise_for_status().json()
        state = (await client.get(f"{peer.url}/threads/{handle}/state")).raise_for_status().json()
    assert (thread["status"] == "interrupted") == bool(state["next"]) == bool(thread["interrupts"])
    return bool(state["next"])


# --- the official client and the emulator of the adapter's tests


async def test_the_official_client_sees_in_the_emulator_what_it_sees_in_the_server(tmp_path: Path) -> None:
    def script(conversation: Conversation) -> list[Step]:
        if "command" in conversation.request:
            return [Say("Paid.")]
        steps: dict[str, list[Step]] = {"pay": [Ask("pay", {"to": "a"})], "slow": [Say("Hm"), Delay(600)]}
        return steps.get(conversation.text, [Say("Hello.", chunks=3)])

    server = LangGraphServer(script, api_key="lsv2-0123456789")
    async with serve(server.app) as url:
        seen = await peer_processes.langgraph_sdk(tmp_path, url, "lsv2-0123456789")
    assert seen == {
        "text": "Hello.",
        "joined": "Hello.",
        "status": "success",
        "messages": ["human", "ai"],
        "asked": "pay",
        "interrupted": "interrupted",
        "resumed": "Paid.",
        "busy": "ConflictError",
        "cancelled": "interrupted",
        "history": True,
        "deleted": "NotFoundError",
    }
