"""Requests to the Messages API: the conversation, files, tools, thinking, and marks for the cache."""

import base64
import json
from typing import Any

import pytest

from adapters.anthropic.adapter import factory
from gateway.a2a.model import Json, Part
from gateway.ports.adapter import Adapter, AdapterError, ErrorClass
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    Item,
    OpaqueItem,
    OutputItem,
    ReasoningItem,
    UserItem,
)
from gateway.ports.tools import ToolDeclaration
from gateway.testing.adapter_scripts import collect, message, request
from tests.adapters.anthropic.anthropic_support import MARK, model, parts, result, unmarked, used, user
from tests.adapters.emulator_support import KEY, Build, Start, plays
from tests.anthropic_types import violations
from tests.emulators.anthropic import MessagesServer
from tests.emulators.scripts import Say

ONE = UserItem(message("one"))
HELLO = AssistantItem((Part(text="Hello"),))
C1, C2, O1, O2 = (
    CallItem("call_1", "f", "{}"),
    CallItem("call_2", "g", '{"a":1}'),
    OutputItem("call_1", "1"),
    OutputItem("call_2", {"n": 2}),
)
F = ToolDeclaration("f", "Does f.", {"type": "object", "properties": {}})
F_ON_THE_WIRE = {"name": "f", "description": "Does f.", "input_schema": {"type": "object", "properties": {}}}


DEEP, DEEPER = (f'{{"a":{"[" * depth}{"]" * depth}}}' for depth in (99, 100))


def thinking(text: str, signature: str) -> Json:
    return {"type": "thinking", "thinking": text, "signature": signature}


def thought(block: Json, of: str = "m") -> ReasoningItem:
    return ReasoningItem(block.get("thinking", ""), {"model": of, "block": block})


def kept(block: Json, of: str = "m", *, boundary: bool = False) -> OpaqueItem:
    return OpaqueItem(block["type"], {"model": of, "block": block}, boundary)


HM = thinking("hm", "sig_1")
HIDDEN = {"type": "redacted_thinking", "data": "x1y2"}
USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
MCP_USE = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "look", "server_name": "wx", "input": {}}
MCP_FOUND = {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": False, "content": "3C"}
OWN_CALL = CallItem("srvtoolu_1", "web_search", '{"query":"x"}', handled=True)
OWN_RESULT = OutputItem("srvtoolu_1", "")


@pytest.fixture
def server() -> MessagesServer:
    """Refuses requests that violate the vendor's types, and any other key."""
    server = MessagesServer(plays(Say("Hello")), api_key=KEY, validator=violations)
    server.given.blocks += [("m", block) for block in (HM, HIDDEN, USE, FOUND, MCP_USE, MCP_FOUND)]
    return server


@pytest.fixture
async def plain(server: MessagesServer, start: Start, build: Build) -> Adapter:
    """An adapter of the default settings in front of `server`."""
    return build(factory, await start(server))


def sent(server: MessagesServer) -> list[Json]:
    """The messages of the first request."""
    return unmarked(server.requests[0]["messages"])


async def refusal(adapter: Adapter, *items: Item, **options: Any) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        await collect(adapter, request("Hi", items=items, **options))
    return caught.value


# --- the conversation -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "items",
    [
        pytest.param((parts(),), id="nothing"),
        pytest.param((parts(Part(text="")),), id="an empty text"),
        pytest.param((ONE, HELLO, parts(Part(text=" \n"))), id="a text of spaces"),
    ],
)
async def test_a_message_without_content_is_refused_before_it_is_sent(
    server: MessagesServer, plain: Adapter, items: tuple[Item, ...]
) -> None:
    error = await refusal(plain, *items)
    assert (error.kind, error.hint) == (ErrorClass.UNSENDABLE, "The message has no text but blanks, and no file.")
    assert server.requests == []


@pytest.mark.parametrize(
    ("earlier", "wanted"),
    [
        pytest.param((ONE,), [user("one", "two")], id="a turn without an answer"),
        pytest.param((ONE, HELLO), [user("one"), model("Hello"), user("two")], id="a turn"),
        pytest.param((HELLO, HELLO), [model("Hello", "Hello"), user("two")], id="two messages"),
        pytest.param((ONE, AssistantItem((Part(text=" "),))), [user("one", "two")], id="an answer of spaces"),
        pytest.param(
            (ONE, C1, O1),
            [user("one"), model(used("call_1", "f")), user(result("call_1", "1"), "two")],
            id="a tool round without an answer",
        ),
        pytest.param(
            (ONE, C1, C2, O2, O1, HELLO),
            [
                user("one"),
                model(used("call_1", "f"), used("call_2", "g", a=1)),
                user(result("call_1", "1"), result("call_2", '{"n":2}')),
                model("Hello"),
                user("two"),
            ],
            id="parallel calls, answered in another order",
        ),
        pytest.param(
            (ONE, C1, O1, C2, O2, HELLO),
            [
                user("one"),
                model(used("call_1", "f")),
                user(result("call_1", "1")),
                model(used("call_2", "g", a=1)),
                user(result("call_2", '{"n":2}')),
                model("Hello"),
                user("two"),
            ],
            id="two rounds",
        ),
        pytest.param(
            (ONE, HELLO, C1, HELLO, O1),
            [user("one"), model("Hello", used("call_1", "f"), "Hello"), user(result("call_1", "1"), "two")],
            id="text around a call",
        ),
        pytest.param(
            (ONE, C1, C2, O1, HELLO, O2),
            [
                user("one"),
                model(used("call_1", "f"), used("call_2", "g", a=1)),
                user(result("call_1", "1"), result("call_2", '{"n":2}')),
                model("Hello"),
                user("two"),
            ],
            id="a result that came late",
        ),
        pytest.param(
            (ONE, C1, O1, HELLO, ONE, C1, OutputItem("call_1", "again"), HELLO),
            [
                user("one"),
                model(used("call_1", "f")),
                user(result("call_1", "1")),
                model("Hello"),
                user("one"),
                model(used("call_1_2", "f")),
                user(result("call_1_2", "again")),
                model("Hello"),
                user("two"),
            ],
            id="an id used again",
        ),
        pytest.param(
            (ONE, CallItem("call_1", "a.b", ""), OutputItem("call_1", "no such file", error=True), HELLO),
            [
                user("one"),
                model(used("call_1", "a_b")),
                user(result("call_1", "no such file", is_error=True)),
                model("Hello"),
                user("two"),
            ],
            id="a tool that failed, of a name that the wire does not know",
        ),
        pytest.param(
            (ONE, CallItem("call_1", "f", "[1"), O1, HELLO),
            [
                user("one"),
                model(used("call_1", "f", raw="[1")),
                user(result("call_1", "1")),
                model("Hello"),
                user("two"),
            ],
            id="arguments that are no object",
        ),
        pytest.param(
            (ONE, CallItem("call_1", "f", DEEP), O1, CallItem("call_2", "f", DEEPER), O2, HELLO),
            [
                user("one"),
                model(used("call_1", "f", **json.loads(DEEP))),
                user(result("call_1", "1")),
                model(used("call_2", "f", raw=DEEPER)),
                user(result("call_2", '{"n":2}')),
                model("Hello"),
                user("two"),
            ],
            id="arguments that are nested too deep",
        ),
        pytest.param(
            (ONE, CallItem("ask_1", "f", "{}", asking="wx"), OutputItem("ask_1", "", approved=True), HELLO),
            [user("one"), model("Hello"), user("two")],
            id="what another backend asked",
        ),
        pytest.param(
            (ONE, ReasoningItem("hm"), ReasoningItem("hm", {"type": "reasoning"}), OpaqueItem("x", {}), HELLO),
            [user("one"), model("Hello"), user("two")],
            id="what another backend has kept",
        ),
        pytest.param(
            (ONE, CallItem("ws_1", "search", "{}", handled=True), OutputItem("ws_1", "x"), HELLO),
            [user("one"), model(used("ws_1", "search")), user(result("ws_1", "x")), model("Hello"), user("two")],
            id="a tool that another backend ran",
        ),
    ],
)
async def test_roles_alternate_and_results_follow_their_calls_at_once(
    server: MessagesServer, plain: Adapter, earlier: tuple[Item, ...], wanted: list[Json]
) -> None:
    await collect(plain, request("two", earlier=earlier))
    assert sent(server) == wanted


async def test_ids_of_other_services_are_given_the_form_of_this_one(server: MessagesServer, plain: Adapter) -> None:
    given = ("call:1|x", "c" * 100, "")
    calls = [item for each in given for item in (CallItem(each, "f", "{}"), OutputItem(each, ""))]
    await collect(plain, request("two", earlier=(ONE, *calls)))
    ids = [b["id"] for m in sent(server) for b in m["content"] if b["type"] == "tool_use"]
    assert len(set(ids)) == len(given)
    assert all(each.startswith("toolu_") for each in ids)


async def test_an_empty_result_is_a_result(server: MessagesServer, plain: Adapter) -> None:
    await collect(plain, request("two", items=(ONE, C1, OutputItem("call_1", ""))))
    assert sent(server)[-1] == user({"type": "tool_result", "tool_use_id": "call_1"})


async def test_citations_and_files_of_an_answer_do_not_go_back(server: MessagesServer, plain: Adapter) -> None:
    beside = Part(data={"citations": []}, metadata={"beside_answer": True})
    said = AssistantItem((Part(text="Look: "), Part(url="https://x.example/a.png"), beside))
    await collect(plain, request("two", earlier=(ONE, said)))
    assert sent(server)[1] == model("Look: [https://x.example/a.png]")


# --- what the model has signed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("earlier", "wanted"),
    [
        pytest.param(
            (ONE, thought(HM), thought(HIDDEN), HELLO),
            [user("one"), model(HM, HIDDEN, "Hello"), user("two")],
            id="before an answer",
        ),
        pytest.param(
            (ONE, thought(HM), HELLO, C1, O1),
            [user("one"), model(HM, "Hello", used("call_1", "f")), user(result("call_1", "1"), "two")],
            id="before a call",
        ),
        pytest.param(
            (ONE, thought(HM, "other"), thought(HIDDEN, "other"), HELLO),
            [user("one"), model("Hello"), user("two")],
            id="of another model",
        ),
        pytest.param((ONE, thought(HM), thought(HIDDEN)), [user("one", "two")], id="before nothing"),
        pytest.param(
            (ONE, HELLO, thought(HM), kept(USE)),
            [user("one"), model("Hello"), user("two")],
            id="before what is left out",
        ),
        pytest.param(
            (ONE, kept(USE), OWN_CALL, kept(FOUND), OWN_RESULT, HELLO),
            [user("one"), model(USE, FOUND, "Hello"), user("two")],
            id="a tool of the service",
        ),
        pytest.param(
            (ONE, kept(MCP_USE), kept(MCP_FOUND), HELLO),
            [user("one"), model(MCP_USE, MCP_FOUND, "Hello"), user("two")],
            id="a tool of an MCP server",
        ),
        pytest.param(
            (ONE, kept(USE), HELLO), [user("one"), model("Hello"), user("two")], id="a use without its result"
        ),
        pytest.param(
            (ONE, kept(USE), OWN_CALL, C1, O1),
            [user("one"), model(used("call_1", "f")), user(result("call_1", "1"), "two")],
            id="a use that waited for a round whose answer the user did not want",
        ),
        pytest.param(
            (ONE, kept(USE), OWN_CALL, C1, O1, kept(FOUND), HELLO),
            [
                user("one"),
                model(USE, used("call_1", "f")),
                user(result("call_1", "1")),
                model(FOUND, "Hello"),
                user("two"),
            ],
            id="a tool of the service that ran after a round",
        ),
        pytest.param(
            (ONE, kept(FOUND), HELLO), [user("one"), model("Hello"), user("two")], id="a result without its use"
        ),
        pytest.param(
            (kept({"type": "compaction", "content": "They said one."}, boundary=True), HELLO),
            [model({"type": "compaction", "content": "They said one."}, "Hello"), user("two")],
            id="what stands for all before it",
        ),
    ],
)
async def test_what_the_service_has_signed_goes_back_as_it_came_and_where_it_belongs(
    server: MessagesServer, plain: Adapter, earlier: tuple[Item, ...], wanted: list[Json]
) -> None:
    await collect(plain, request("two", earlier=earlier))
    assert sent(server) == wanted


@pytest.mark.parametrize(
    ("items", "wanted"),
    [
        pytest.param(
            (ONE, thought(HM), kept(USE), OWN_CALL, C1, O1),
            [user("one"), model(HM, USE, used("call_1", "f")), user(result("call_1", "1"))],
            id="before the other call",
        ),
        pytest.param(
            (ONE, C1, C2, kept(USE), OWN_CALL, O1, O2),
            [
                user("one"),
                model(used("call_1", "f"), used("call_2", "g", a=1), USE),
                user(result("call_1", "1"), result("call_2", '{"n":2}')),
            ],
            id="behind the other calls",
        ),
        pytest.param(
            (ONE, kept(USE), OWN_CALL, C1, O1, C2, O2),
            [
                user("one"),
                model(USE, used("call_1", "f")),
                user(result("call_1", "1")),
                model(used("call_2", "g", a=1)),
                user(result("call_2", '{"n":2}')),
            ],
            id="over two rounds",
        ),
        pytest.param(
            (ONE, kept(USE), HELLO, ONE, kept(MCP_USE), C1, O1),
            [
                user("one"),
                model("Hello"),
                user("one"),
                model(MCP_USE, used("call_1", "f")),
                user(result("call_1", "1")),
            ],
            id="but not that of an earlier turn",
        ),
    ],
)
async def test_a_tool_of_the_service_that_waits_goes_back_with_the_results_of_the_other_tools(
    server: MessagesServer, plain: Adapter, items: tuple[Item, ...], wanted: list[Json]
) -> None:
    await collect(plain, request("two", items=items))
    assert sent(server) == wanted


BUDGET = {"type": "enabled", "budget_tokens": 1024}


@pytest.mark.parametrize(
    ("items", "thinks"),
    [
        pytest.param((ONE,), True, id="a first message"),
        pytest.param((ONE, thought(HM), C1, O1), True, id="a round that began with thinking"),
        pytest.param((ONE, thought(HIDDEN), C1, O1, C2, O2), True, id="two rounds that began with it"),
        pytest.param((ONE, C1, O1, HELLO, ONE), True, id="a next message after a round without it"),
        pytest.param((ONE, C1, O1), False, id="a round without it"),
        pytest.param((ONE, thought(HM, "other"), C1, O1), False, id="a round that another model began"),
    ],
)
async def test_thinking_within_a_budget_is_not_asked_for_in_the_middle_of_an_answer_that_has_none(
    server: MessagesServer, start: Start, build: Build, items: tuple[Item, ...], thinks: bool
) -> None:
    adapter = build(factory, await start(server), thinking=BUDGET)
    await collect(adapter, request("two", items=items, tools=(F,)))
    assert server.requests[0].get("thinking") == (BUDGET if thinks else None)


async def test_a_model_that_decides_for_itself_may_always_think(
    server: MessagesServer, start: Start, build: Build
) -> None:
    adapter = build(factory, await start(server), thinking={"type": "adaptive", "display": "summarized"})
    await collect(adapter, request("two", items=(ONE, C1, O1)))
    assert server.requests[0]["thinking"] == {"type": "adaptive", "display": "summarized"}


# --- files ------------------------------------------------------------------------------------------------------------


def document(source: Json, **more: Any) -> Json:
    return {"type": "document", "source": source, **more}


def base(media_type: str) -> Json:
    return {"type": "base64", "media_type": media_type, "data": "aGk="}


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (Part(data={"b": [1]}), {"type": "text", "text": '{"b":[1]}'}),
        (Part(raw="aGk=", media_type="image/png"), {"type": "image", "source": base("image/png")}),
        (Part(raw="aGk=", filename="a.jpg"), {"type": "image", "source": base("image/jpeg")}),
        (Part(raw="aGk=", media_type="image/jpg"), {"type": "image", "source": base("image/jpeg")}),
        (
            Part(url="https://x.example/a.webp"),
            {"type": "image", "source": {"type": "url", "url": "https://x.example/a.webp"}},
        ),
        (
            Part(raw="aGk=", media_type="application/pdf", filename="a.pdf"),
            document(base("application/pdf"), title="a.pdf"),
        ),
        (Part(url="https://x.example/a.pdf"), document({"type": "url", "url": "https://x.example/a.pdf"})),
        (
            Part(raw="aGk=", media_type="text/csv; charset=utf-8", filename="a.csv"),
            document({"type": "text", "media_type": "text/plain", "data": "hi"}, title="a.csv"),
        ),
        (
            Part(url="https://x.example/a.zip"),
            {"type": "text", "text": "https://x.example/a.zip: https://x.example/a.zip"},
        ),
    ],
)
async def test_a_file_has_the_form_that_its_type_needs(
    server: MessagesServer, plain: Adapter, part: Part, block: Json
) -> None:
    await collect(plain, request("Hi", items=(parts(Part(text="a"), part),)))
    assert sent(server) == [user("a", block)]


async def test_a_file_that_the_model_cannot_take_is_refused_by_its_type(server: MessagesServer, plain: Adapter) -> None:
    raw = base64.b64encode(b"\xff\xfe\x00").decode()
    error = await refusal(plain, parts(Part(raw=raw, media_type="audio/wav")))
    assert (error.kind, error.hint) == (
        ErrorClass.UNSENDABLE,
        "A file is neither text nor of a type that the model takes.",
    )
    assert "'audio/wav'" in error.detail
    assert server.requests == []


@pytest.mark.parametrize("media_type", ["text/plain", "text/csv; charset=latin1", "application/json"])
async def test_a_file_of_text_that_is_not_utf_8_is_refused_as_such(
    server: MessagesServer, plain: Adapter, media_type: str
) -> None:
    error = await refusal(plain, parts(Part(text="x"), Part(raw="//79", media_type=media_type)))
    assert (error.kind, error.hint) == (ErrorClass.UNSENDABLE, "A file of text is not in UTF-8.")
    assert error.detail == f"a file of type {media_type.partition(';')[0]!r} is not in UTF-8"
    assert server.requests == []


@pytest.mark.parametrize("media_type", ["image/png", "application/pdf", "text/plain"])
async def test_an_empty_file_is_refused_before_it_is_sent(
    server: MessagesServer, plain: Adapter, media_type: str
) -> None:
    error = await refusal(plain, parts(Part(text="x"), Part(raw="", media_type=media_type)))
    assert (error.kind, error.hint) == (ErrorClass.UNSENDABLE, "A file is empty.")
    assert server.requests == []


async def test_citations_are_asked_for_where_the_settings_say_so(
    server: MessagesServer, start: Start, build: Build
) -> None:
    adapter = build(factory, await start(server), citations=True)
    await collect(adapter, request("Hi", items=(parts(Part(raw="aGk=", media_type="text/plain")),)))
    [block] = sent(server)[0]["content"]
    assert block["citations"] == {"enabled": True}


# --- tools ------------------------------------------------------------------------------------------------------------

SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}


async def test_tools_stand_next_to_those_of_the_service(server: MessagesServer, start: Start, build: Build) -> None:
    adapter = build(factory, await start(server), service_tools=[SEARCH])
    await collect(adapter, request("one", tools=(F,)))
    await collect(adapter, request("two"))
    assert [body["tools"] for body in server.requests] == [[SEARCH, F_ON_THE_WIRE | MARK], [SEARCH | MARK]]


async def test_a_tool_that_the_model_has_to_look_for_bears_no_mark(
    server: MessagesServer, start: Start, build: Build
) -> None:
    later = {"type": "code_execution_20250825", "name": "code_execution", "defer_loading": True}
    adapter = build(factory, await start(server), service_tools=[SEARCH, later])
    await collect(adapter, request("one"))
    alone = build(factory, await start(server), service_tools=[later])
    await collect(alone, request("one"))
    assert [body["tools"] for body in server.requests] == [[SEARCH | MARK, later], [later]]


async def test_a_mark_of_the_settings_takes_the_place_of_ours(
    server: MessagesServer, start: Start, build: Build
) -> None:
    marked = SEARCH | {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    adapter = build(factory, await start(server), service_tools=[marked])
    await collect(adapter, request("one", tools=(F,)))
    assert server.requests[0]["tools"] == [marked, F_ON_THE_WIRE]


async def test_two_tools_of_one_name_are_for_the_operator(server: MessagesServer, plain: Adapter) -> None:
    assert (await refusal(plain, ONE, tools=(F, F))).kind is ErrorClass.NOT_SERVED
    assert server.requests == []


async def test_a_choice_among_no_tools_is_not_sent(server: MessagesServer, start: Start, build: Build) -> None:
    adapter = build(factory, await start(server), extra_body={"tool_choice": {"type": "any"}})
    await collect(adapter, request("one", tools=(F,)))
    await collect(adapter, request("two"))
    assert [body.get("tool_choice") for body in server.requests] == [{"type": "any"}, None]


async def test_without_tools_a_conversation_of_calls_names_those_that_were_called_and_allows_none(
    server: MessagesServer, plain: Adapter
) -> None:
    await collect(plain, request("two", items=(ONE, C1, C2, C1, O1, O2, OutputItem("call_1", ""))))
    body = server.requests[0]
    named = [{"name": name, "input_schema": {"type": "object"}} for name in ("f", "g")]
    assert (body["tools"], body["tool_choice"]) == (named, {"type": "none"})


async def test_mcp_servers_of_the_settings_bring_their_tools(
    server: MessagesServer, start: Start, build: Build
) -> None:
    servers = [
        {"name": "wx", "url": "https://wx.example/mcp", "authorization_token": "tok-0123456789"},
        {"name": "fs", "url": "https://fs.example/mcp"},
    ]
    chosen = {"type": "mcp_toolset", "mcp_server_name": "fs", "default_config": {"enabled": False}}
    adapter = build(factory, await start(server), mcp_servers=servers, service_tools=[chosen], cache="none")
    await collect(adapter, request("one"))
    body = server.requests[0]
    assert body["mcp_servers"] == [{"type": "url", **each} for each in servers]
    assert body["tools"] == [chosen, {"type": "mcp_toolset", "mcp_server_name": "wx"}]
    assert server.headers[0]["anthropic-beta"] == "mcp-client-2025-11-20"


# --- all requests -----------------------------------------------------------------------------------------------------


async def test_every_request_has_the_fields_and_headers_of_the_settings(
    server: MessagesServer, start: Start, build: Build
) -> None:
    adapter = build(
        factory,
        await start(server),
        instructions="Be brief.",
        max_tokens=100,
        temperature=0.5,
        top_k=4,
        stop_sequences=["END"],
        betas=["context-1m-2025-08-07", "x-1"],
        extra_body={"metadata": {"user_id": "u"}},
    )
    await collect(adapter, request("Hi"))
    assert server.requests == [
        {
            "model": "m",
            "max_tokens": 100,
            "stream": True,
            "system": [{"type": "text", "text": "Be brief.", **MARK}],
            "temperature": 0.5,
            "top_k": 4,
            "stop_sequences": ["END"],
            "metadata": {"user_id": "u"},
            "messages": [user({"type": "text", "text": "Hi", **MARK})],
        }
    ]
    [headers] = server.headers
    assert headers["anthropic-version"] == "2023-06-01"
    assert headers["anthropic-beta"] == "context-1m-2025-08-07,x-1"
    assert headers["x-api-key"] == KEY


@pytest.mark.parametrize(
    ("cache", "mark"),
    [("5m", {"type": "ephemeral"}), ("1h", {"type": "ephemeral", "ttl": "1h"}), ("none", None)],
)
async def test_what_the_next_request_begins_with_is_marked_for_the_cache(
    server: MessagesServer, start: Start, build: Build, cache: str, mark: Json
) -> None:
    adapter = build(factory, await start(server), cache=cache, instructions="Be brief.")
    earlier = (ONE, thought(HM), HELLO, ONE, C1, O1, HELLO)
    await collect(adapter, request("two", earlier=earlier, tools=(F,)))
    body = server.requests[0]
    said = [[block.get("cache_control") for block in message["content"]] for message in body["messages"]]
    assert said == [[None], [None, None], [None], [None], [mark], [None], [mark]]
    assert body["system"][0].get("cache_control") == mark
    assert body["tools"][0].get("cache_control") == mark
