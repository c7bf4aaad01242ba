"""The adapter of the Messages API passes the conformance suite; the events of answers, and its errors."""

import json
from typing import Any, ClassVar

import pytest

from adapters.anthropic.adapter import factory
from gateway.a2a.model import Artifact, Json, Part
from gateway.ports.adapter import (
    Adapter,
    AdapterError,
    AnswerPaused,
    ArtifactReady,
    CallCompleted,
    CallStarted,
    ErrorClass,
    ItemReady,
    PartReady,
    Progress,
    ReasoningDelta,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.capabilities import Backend, CanProbe, ProbeReport
from gateway.ports.conversation import HandleKind, OpaqueItem, Ownership, ReasoningItem, StorageOwner
from gateway.ports.tools import ToolDeclaration
from gateway.testing.adapter_scripts import collect, completed, failure, of_type, request, text
from tests.adapters.anthropic.anthropic_support import model, parts, roles_and_texts, user
from tests.adapters.emulator_suite import EmulatorSuite
from tests.adapters.emulator_support import KEY, Build, Start, plays
from tests.adapters.raw_server import Exchange, StartRaw
from tests.adapters.raw_server import plain as answered
from tests.anthropic_types import violations
from tests.emulators.anthropic import DIALECTS, EXPIRES, MessagesServer
from tests.emulators.scripts import (
    Call,
    Cite,
    Conversation,
    Cut,
    ErrorEvent,
    Fail,
    Html,
    Incomplete,
    Item,
    NoTerminal,
    Raw,
    Refuse,
    Say,
    ServerTool,
    Status,
    Step,
    Stop,
    Think,
)


@pytest.fixture
def server() -> MessagesServer:
    """Refuses requests that violate the vendor's types, and any other key."""
    return MessagesServer(plays(Say("Hello")), api_key=KEY, validator=violations)


@pytest.fixture
async def plain(server: MessagesServer, start: Start, build: Build) -> Adapter:
    """An adapter of the default settings in front of `server`."""
    return build(factory, await start(server))


# --- the conformance suite --------------------------------------------------------------------------------------------


class _Suite(EmulatorSuite):
    factory = factory
    emulator = MessagesServer

    async def backend_runs_tool(self, name: str, arguments: dict[str, Any], output: str) -> None:
        self.server.script = plays(ServerTool("mcp", name, arguments, output), Say("There it is."))

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        return [roles_and_texts(body["messages"]) for body in self.server.requests]

    async def backend_offered(self) -> list[list[ToolDeclaration]]:
        return [
            [ToolDeclaration(tool["name"], tool["description"], tool["input_schema"]) for tool in body.get("tools", ())]
            for body in self.server.requests
        ]

    async def backend_outputs(self) -> list[list[tuple[str, str]]]:
        blocks = [[b for message in body["messages"] for b in message["content"]] for body in self.server.requests]
        return [
            [(b["tool_use_id"].split("_")[3], b.get("content", "")) for b in of_body if b["type"] == "tool_result"]
            for of_body in blocks
        ]


class TestConformance(_Suite):
    """Against a server of Anthropic's own dialect."""


class TestThinking(_Suite):
    """With thinking, which a conversation of tool calls without any has to do without."""

    values: ClassVar = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "instructions": "Be brief."}


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_text_is_its_deltas_and_usage_comes_in_the_end(plain: Adapter, server: MessagesServer) -> None:
    server.script = plays(Say("Hello world", chunks=2))
    events = await collect(plain, request("Hi"))
    usage = completed(events).usage
    assert events == [CallStarted(), TextDelta("Hello "), TextDelta("world"), CallCompleted(usage=usage)]
    assert usage == {
        "input_tokens": usage["input_tokens"],
        "output_tokens": usage["output_tokens"],
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
    }
    assert usage["output_tokens"] > 1


async def test_thinking_comes_before_the_answer_and_is_kept_as_it_came(plain: Adapter, server: MessagesServer) -> None:
    hidden = {"type": "redacted_thinking", "data": "x1y2"}
    server.script = plays(Think("Let me see", "sig_1", chunks=2), Item(hidden), Say("Hello"))
    block = {"type": "thinking", "thinking": "Let me see", "signature": "sig_1"}
    assert (await collect(plain, request("Hi")))[1:-1] == [
        ReasoningDelta("Let m"),
        ReasoningDelta("e see"),
        ItemReady(ReasoningItem("Let me see", {"model": "m", "block": block})),
        ItemReady(ReasoningItem("", {"model": "m", "block": hidden})),
        TextDelta("Hello"),
    ]


@pytest.mark.parametrize("dialect", sorted(DIALECTS))
async def test_calls_are_the_same_in_every_dialect(start: Start, build: Build, dialect: str) -> None:
    script = plays(Say("Well, "), Call("f", {"a": 1}, "call_1"), Call("g", {"b": 2}, "call_2"))
    server = MessagesServer(script, dialect=DIALECTS[dialect])
    events = await collect(build(factory, await start(server)), request("Hi"))
    deltas = of_type(events, ToolCallArguments)
    joined = {call: "".join(e.delta for e in deltas if e.call_id == call) for call in ("call_1", "call_2")}
    ready = of_type(events, ToolCallReady)
    assert [(call.call_id, call.name, call.arguments.replace(" ", "")) for call in ready] == [
        ("call_1", "f", '{"a":1}'),
        ("call_2", "g", '{"b":2}'),
    ]
    assert [call.handled for call in ready] == [None, None]
    assert all(joined[call.call_id] in ("", call.arguments) for call in ready)
    assert of_type(events, ToolCallAnnounced) == [ToolCallAnnounced("call_1", "f"), ToolCallAnnounced("call_2", "g")]
    assert text(events) == "Well, "
    assert completed(events).finish is None


async def test_a_tool_of_the_service_is_shown_with_its_result_and_kept_as_it_came(
    plain: Adapter, server: MessagesServer
) -> None:
    server.script = plays(ServerTool("web_search", "web_search", {"query": "x"}, "Found"), Say("There."))
    events = await collect(plain, request("Hi"))
    _, use, found = server.given.blocks[0], *(block for _, block in server.given.blocks)
    call_id = use["id"]
    assert [event for event in events[1:-1] if not isinstance(event, ToolCallArguments)] == [
        ToolCallAnnounced(call_id, "web_search", True, "web_search"),
        ItemReady(OpaqueItem("server_tool_use", {"model": "m", "block": use})),
        ToolCallReady(call_id, "web_search", '{"query": "x"}', True, "web_search"),
        ItemReady(OpaqueItem("web_search_tool_result", {"model": "m", "block": found})),
        ToolResultReady(
            call_id, [{"type": "web_search_result", "title": "Found", "url": "https://x.example", "page_age": None}]
        ),
        TextDelta("There."),
    ]


@pytest.mark.parametrize(
    ("tool", "output"),
    [
        (ServerTool("mcp", "look", {}, error="no such city"), "no such city"),
        (
            ServerTool("web_search", "web_search", {}, error="max_uses_exceeded"),
            {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"},
        ),
    ],
)
async def test_a_tool_of_the_service_may_fail(
    plain: Adapter, server: MessagesServer, tool: ServerTool, output: Json
) -> None:
    server.script = plays(tool, Say("Sorry."))
    [found] = of_type(await collect(plain, request("Hi")), ToolResultReady)
    assert (found.output, found.error) == (output, True)


async def test_citations_are_an_artifact_beside_the_answer(plain: Adapter, server: MessagesServer) -> None:
    place = {
        "type": "web_search_result_location",
        "url": "https://x.example",
        "title": "X",
        "cited_text": "It is 3C in Oslo.",
    }
    server.script = plays(Say("In Oslo "), Say("it is 3C"), Cite({**place, "encrypted_index": "abc"}), Say("."))
    events = await collect(plain, request("Hi"))
    [beside] = of_type(events, ArtifactReady)
    cited = {"citations": [{"text": "In Oslo it is 3C", "citations": [place]}]}
    part = Part(data=cited, media_type="application/json", metadata={"beside_answer": True})
    assert beside == ArtifactReady(
        Artifact(artifact_id=beside.artifact.artifact_id, name="citations", parts=(part,)), last_chunk=True
    )
    assert text([event for event in events if event is not beside]) == "In Oslo it is 3C."


@pytest.mark.parametrize(
    ("step", "finish"),
    [
        (Incomplete("max_output_tokens"), "max_tokens"),
        (Stop("model_context_window_exceeded"), "model_context_window_exceeded"),
        (Stop("end_turn"), None),
        (Stop("stop_sequence"), None),
        (Stop("something_new"), "something_new"),
    ],
)
async def test_an_answer_that_is_not_whole_has_the_reason(
    server: MessagesServer, plain: Adapter, step: Step, finish: str | None
) -> None:
    server.script = plays(Say("Hel"), step)
    assert completed(await collect(plain, request("Hi"))).finish == finish


# --- pauses and containers --------------------------------------------------------------------------------------------


def pausing(conversation: Conversation) -> list[Step]:
    """Two pauses, the first between a tool of the service and its result."""
    last = conversation.request["messages"][-1]
    match [block["type"] for block in last["content"]][-1]:
        case "text":
            use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
            return [Think("Hm", "sig_1"), Say("Looking. "), Item(use), Stop("pause_turn")]
        case "server_tool_use":
            found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
            return [Item(found), Stop("pause_turn", container="container_1")]
    return [Say("Nothing found.")]


async def test_a_paused_answer_goes_on_in_the_same_call(server: MessagesServer, plain: Adapter) -> None:
    server.script = pausing
    events = await collect(plain, request("Hi"))
    assert text(events) == "Looking. Nothing found."
    assert len(of_type(events, CallStarted)) == len(of_type(events, AnswerPaused)) + 1 == 3
    assert of_type(events, ToolResultReady) == [ToolResultReady("srvtoolu_1", "")]
    first, both = server.given.paused
    asked = server.requests[0]["messages"]
    assert [body["messages"] for body in server.requests] == [
        asked,
        [*asked, model(*first)],
        [*asked, model(*both)],
    ]
    assert [block["type"] for block in both] == ["thinking", "text", "server_tool_use", "web_search_tool_result"]
    assert [body.get("container") for body in server.requests] == [None, None, "container_1"]


async def test_the_tokens_of_all_messages_of_an_answer_are_added_up(server: MessagesServer, plain: Adapter) -> None:
    server.script = pausing
    usage = completed(await collect(plain, request("Hi"))).usage
    counted = [len(str(body["messages"]).split()) for body in server.requests]
    assert usage["input_tokens"] == sum(counted)


async def test_a_call_that_is_made_again_behind_a_pause_gives_what_follows(
    server: MessagesServer, plain: Adapter
) -> None:
    server.script = pausing
    paused = of_type(await collect(plain, request("Hi")), AnswerPaused)
    sent = [body["messages"] for body in server.requests]
    server.requests.clear()
    events = await collect(plain, request("Hi", so_far=paused[0].so_far))
    assert [body["messages"] for body in server.requests] == sent[1:]
    assert of_type(events, ToolResultReady) == [ToolResultReady("srvtoolu_1", "")]
    assert text(events) == "Nothing found."
    server.requests.clear()
    events = await collect(plain, request("Hi", so_far=paused[1].so_far))
    [last] = server.requests
    assert (last["messages"], last["container"]) == (sent[2], "container_1")
    assert completed(events) == CallCompleted(
        usage=completed(events).usage, state={"container": {"id": "container_1", "expires_at": EXPIRES}}
    )
    assert completed(events).usage["input_tokens"] == len(json.dumps(sent[2]).split())


async def test_a_container_that_is_lost_before_a_pause_is_not_asked_for_behind_it(
    server: MessagesServer, plain: Adapter
) -> None:
    server.script = lambda conversation: (
        [Say("Found.")]
        if conversation.request["messages"][-1]["role"] == "assistant"
        else [Say("Looking. "), Stop("pause_turn")]
    )
    events = await collect(plain, request("Hi", state={"container": {"id": "container_9", "expires_at": EXPIRES}}))
    assert text(events) == "Looking. Found."
    assert [body.get("container") for body in server.requests] == ["container_9", None, None]


async def test_a_service_that_pauses_for_ever_is_left(server: MessagesServer, plain: Adapter) -> None:
    server.script = plays(Say("Hm. "), Stop("pause_turn"))
    done = completed(await collect(plain, request("Hi")))
    assert done.finish == "pause_turn"
    assert len(server.requests) == 21


async def test_the_container_of_the_conversation_is_used_again(
    server: MessagesServer, start: Start, build: Build
) -> None:
    skills = {"skills": [{"type": "anthropic", "skill_id": "pptx", "version": "latest"}]}
    adapter = build(factory, await start(server), extra_body={"container": skills})
    server.script = plays(Say("Done"), Stop("end_turn", container="container_1"))
    state = completed(await collect(adapter, request("Hi"))).state
    assert state == {"container": {"id": "container_1", "expires_at": EXPIRES}}
    await collect(adapter, request("And now?", state=state))
    assert [body["container"] for body in server.requests] == [skills, {**skills, "id": "container_1"}]


@pytest.mark.parametrize("until", ["2020-01-01T00:00:00Z", "2020-01-01T00:00:00", "soon"])
async def test_a_container_that_has_expired_is_not_asked_for(
    server: MessagesServer, plain: Adapter, until: str
) -> None:
    await collect(plain, request("Hi", state={"container": {"id": "container_1", "expires_at": until}}))
    assert "container" not in server.requests[0]


async def test_a_container_that_the_service_has_lost_is_forgotten(server: MessagesServer, plain: Adapter) -> None:
    events = await collect(plain, request("Hi", state={"container": {"id": "container_9", "expires_at": EXPIRES}}))
    assert text(events) == "Hello"
    assert completed(events).state == {}
    assert [body.get("container") for body in server.requests] == ["container_9", None]


async def test_skills_of_the_settings_stay_where_a_container_is_lost(
    server: MessagesServer, start: Start, build: Build
) -> None:
    skills = {"skills": [{"type": "anthropic", "skill_id": "pptx", "version": "latest"}]}
    adapter = build(factory, await start(server), extra_body={"container": skills})
    await collect(adapter, request("Hi", state={"container": {"id": "container_9", "expires_at": EXPIRES}}))
    assert [body["container"] for body in server.requests] == [{**skills, "id": "container_9"}, skills]


async def test_a_container_of_the_settings_that_is_lost_is_for_the_operator(
    server: MessagesServer, start: Start, build: Build
) -> None:
    adapter = build(factory, await start(server), extra_body={"container": "container_9"})
    assert (await failure(adapter)).kind is ErrorClass.NOT_SERVED


# --- files ------------------------------------------------------------------------------------------------------------


def program(*files: str) -> list[Step]:
    """A program of the model has written these files."""
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "bash_code_execution", "input": {"command": "ls"}}
    written = [{"type": "bash_code_execution_output", "file_id": name} for name in files]
    printed = {"type": "bash_code_execution_result", "stdout": "", "stderr": "", "return_code": 0, "content": written}
    done = {"type": "bash_code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": printed}
    return [Item(use), Item(done), Say("Written.")]


async def test_files_that_a_program_of_the_model_has_written_are_parts_of_the_answer(
    server: MessagesServer, plain: Adapter
) -> None:
    server.files["file_1"] = b"a,b\n1,2\n"
    server.script = plays(*program("file_1"))
    [part] = of_type(await collect(plain, request("Hi")), PartReady)
    assert part == PartReady(Part(raw="YSxiCjEsMgo=", filename="file_1.csv", media_type="text/csv"))


@pytest.mark.parametrize(
    ("name", "title"),
    [("a" * 600, {"title": "a" * 255}), ("a.txt", {"title": "a.txt"}), ("", {})],
    ids=["long", "short", "none"],
)
async def test_the_name_of_a_file_is_a_title_that_the_service_takes(
    server: MessagesServer, plain: Adapter, name: str, title: Json
) -> None:
    sent = parts(Part(text="Read"), Part(raw="aGk=", media_type="text/plain", filename=name))
    assert text(await collect(plain, request("Read", items=(sent,)))) == "Hello"
    [_, document] = server.requests[0]["messages"][0]["content"]
    assert {key: value for key, value in document.items() if key == "title"} == title


async def test_a_file_that_cannot_be_fetched_fails_no_answer(server: MessagesServer, plain: Adapter) -> None:
    server.script = plays(*program("file_9"))
    events = await collect(plain, request("Hi"))
    assert of_type(events, Progress) == [Progress("A file that the agent has written could not be fetched.")]
    assert text(events) == "Written."
    assert completed(events).finish is None


# --- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([ErrorEvent("invalid_request_error", "The container has expired")], ErrorClass.NOT_SERVED),
        ([Say("Hel"), Fail()], ErrorClass.BACKEND_FAILED),
        ([Say("Hel"), ErrorEvent("overloaded_error", "Overloaded")], ErrorClass.RATE_LIMITED),
        ([ErrorEvent("invalid_request_error", "prompt is too long: 9 tokens > 8 maximum")], ErrorClass.OVERFLOW),
        ([ErrorEvent("invalid_request_error", "no")], ErrorClass.REJECTED),
        ([Raw(b'data: {"error":{"message":"no"}}\n\n')], ErrorClass.BACKEND_FAILED),
        ([Say("Hel"), NoTerminal()], ErrorClass.INTERRUPTED),
        ([NoTerminal()], ErrorClass.INTERRUPTED),
        ([Say("Hel"), Cut()], ErrorClass.INTERRUPTED),
        ([Raw(b"data: {]\n\n")], ErrorClass.CONTRACT_BROKEN),
        ([Raw(b'data: {"type":"content_block_start","index":0}\n\n')], ErrorClass.CONTRACT_BROKEN),
        (
            [Raw(b'data: {"type":"content_block_delta","index":7,"delta":{"type":"input_json_delta"}}\n\n')],
            ErrorClass.CONTRACT_BROKEN,
        ),
        (
            [Raw(b'data: {"type":"content_block_start","index":7,"content_block":{"type":"tool_use","id":"1"}}\n\n')],
            ErrorClass.CONTRACT_BROKEN,
        ),
        ([Refuse("I cannot")], ErrorClass.POLICY),
        ([Stop("refusal")], ErrorClass.POLICY),
        ([Html()], ErrorClass.BACKEND_FAILED),
        ([Html(200)], ErrorClass.CONTRACT_BROKEN),
        (
            [Status(529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})],
            ErrorClass.RATE_LIMITED,
        ),
    ],
)
async def test_a_failure_has_its_class_and_nothing_is_completed(
    server: MessagesServer, plain: Adapter, steps: list[Step], kind: ErrorClass
) -> None:
    server.script = plays(*steps)
    assert (await failure(plain)).kind is kind
    server.script = plays(Say("Hello"))
    assert text(await collect(plain, request("Hi"))) == "Hello"


async def test_a_failure_brings_the_tokens_that_were_reported_before_it(server: MessagesServer, plain: Adapter) -> None:
    server.script = plays(Say("Hel"), Cut())
    usage = (await failure(plain)).usage
    assert usage["output_tokens"] == 1


async def test_another_key_is_not_authorised(server: MessagesServer, start: Start, build: Build) -> None:
    other = build(factory, await start(server), api_key="sk-ant-another-key")
    assert (await failure(other)).kind is ErrorClass.UNAUTHORISED


async def test_a_bearer_token_takes_the_place_of_the_key(server: MessagesServer, start: Start, build: Build) -> None:
    adapter = build(factory, await start(server), api_key=None, auth={"type": "api_key", "key": KEY})
    assert text(await collect(adapter, request("Hi"))) == "Hello"
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "x-api-key" not in server.headers[0]


async def test_a_model_that_is_not_served_is_for_the_operator(start: Start, build: Build) -> None:
    adapter = build(factory, await start(MessagesServer(models=("other",))))
    assert (await failure(adapter)).kind is ErrorClass.NOT_SERVED


# --- what it declares -------------------------------------------------------------------------------------------------


async def test_the_gateway_owns_the_conversation_and_gets_opaque_items_back(plain: Adapter) -> None:
    assert plain.ownership == Ownership(StorageOwner.GATEWAY, HandleKind.NONE, opaque_replay=True, repeatable=True)


async def test_agents_of_one_address_and_key_share_a_backend(build: Build) -> None:
    one, other = (build(factory, "http://x.example/v1", model=name) for name in ("m", "n"))
    assert one.backend == other.backend  # type: ignore[attr-defined]
    assert isinstance(one.backend, Backend)  # type: ignore[attr-defined]
    assert build(factory, "http://x.example", headers={"x-tenant": "a"}).backend != one.backend  # type: ignore[attr-defined]


async def probed(adapter: Adapter) -> ProbeReport:
    assert isinstance(adapter, CanProbe)
    return await adapter.probe()


@pytest.mark.parametrize(("models", "listed"), [((), None), (("m", "n"), True)])
async def test_a_probe_looks_for_the_model_and_asks_for_one_token(
    start: Start, build: Build, models: tuple[str, ...], listed: bool | None
) -> None:
    server = MessagesServer(models=models, validator=violations)
    report = await probed(build(factory, await start(server), thinking={"type": "adaptive"}))
    assert report == ProbeReport(model=listed, streams=True)
    [body] = server.requests
    assert (body["max_tokens"], body["messages"], "thinking" in body) == (1, [user("ping")], False)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [("404 Not Found", None), ("500 Oops", None), ("401 No", ErrorClass.UNAUTHORISED)],
)
async def test_a_probe_needs_no_list_of_models_but_the_right_key(
    raw: StartRaw, build: Build, answer: str, kind: ErrorClass | None
) -> None:
    async def serve(exchange: Exchange) -> None:
        if exchange.request.head.startswith("GET"):
            await exchange.send(answered(answer))
        else:
            await exchange.stream(b'data: {"type":"message_stop"}\n\n')

    adapter = build(factory, (await raw(serve)).url)
    if kind is None:
        assert await probed(adapter) == ProbeReport(model=None, streams=True)
    else:
        with pytest.raises(AdapterError) as caught:
            await probed(adapter)
        assert caught.value.kind is kind


async def test_a_probe_of_an_answer_without_an_end_fails(start: Start, build: Build) -> None:
    adapter = build(factory, await start(MessagesServer(plays(Say("Hel"), NoTerminal()))))
    with pytest.raises(AdapterError) as caught:
        await probed(adapter)
    assert caught.value.kind is ErrorClass.INTERRUPTED


@pytest.mark.parametrize(
    ("described", "more", "listed"),
    [
        pytest.param("m-20260101", False, True, id="another name"),
        pytest.param("m-20260101", True, True, id="another name, of a list that goes on"),
        pytest.param("m", False, False, id="a name that is not in the list"),
        pytest.param("m", True, None, id="a name that may be in the rest of the list"),
        pytest.param(None, False, False, id="a name that is not known"),
        pytest.param(None, True, False, id="a name that is not known, of a list that goes on"),
    ],
)
async def test_a_probe_compares_the_name_of_the_model_with_those_of_the_list(
    raw: StartRaw, build: Build, described: str | None, more: bool, listed: bool | None
) -> None:
    async def serve(exchange: Exchange) -> None:
        head = exchange.request.head
        if head.startswith("GET /v1/models?"):
            models = {"data": [{"id": "m-20260101"}, {"id": "n"}], "has_more": more}
            await exchange.send(answered("200 OK", json.dumps(models).encode()))
        elif head.startswith("GET /v1/models/m "):
            one = json.dumps({"id": described}).encode()
            await exchange.send(answered("404 Not Found") if described is None else answered("200 OK", one))
        else:
            await exchange.stream(b'data: {"type":"message_stop"}\n\n')

    report = await probed(build(factory, (await raw(serve)).url))
    assert report == ProbeReport(model=listed, streams=True)


async def test_a_probe_of_an_unknown_model_fails(start: Start, build: Build) -> None:
    adapter = build(factory, await start(MessagesServer(models=("n",))))
    with pytest.raises(AdapterError) as caught:
        await probed(adapter)
    assert caught.value.kind is ErrorClass.NOT_SERVED
