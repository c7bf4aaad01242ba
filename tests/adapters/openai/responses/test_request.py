"""The requests of the Responses adapter, and its settings."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.openai.responses.adapter import factory
from gateway.a2a.model import Part
from gateway.ports.adapter import Adapter, ItemReady
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    HandleKind,
    Item,
    OpaqueItem,
    OutputItem,
    Ownership,
    ReasoningItem,
    StorageOwner,
    UserItem,
)
from gateway.testing.adapter_scripts import collect, message, request
from tests.adapters.emulator_support import KEY, Build, Start, plays, settings
from tests.adapters.openai.openai_support import finished, judge, parts, response_ids
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Say, Think
from tests.emulators.scripts import Item as Output
from tests.openapi import openai_validator


@pytest.fixture
def server() -> ResponsesServer:
    """Refuses requests that violate the vendor's API description, and any other key."""
    return ResponsesServer(api_key=KEY, validator=judge())


@pytest.fixture
async def plain(server: ResponsesServer, start: Start, build: Build) -> Adapter:
    """An adapter of the default settings in front of `server`."""
    return build(factory, await start(server))


@pytest.fixture
async def keeping(server: ResponsesServer, start: Start, build: Build) -> Adapter:
    """An adapter whose conversations the gateway keeps, in front of `server`."""
    return build(factory, await start(server), history={"owner": "gateway"})


def user(words: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}


async def test_a_chain_carries_the_last_id_only_new_input_and_instructions_and_tools_every_time(
    server: ResponsesServer, start: Start, build: Build
) -> None:
    tools = [{"type": "web_search"}]
    adapter = build(factory, await start(server), instructions="Be brief.", tools=tools)
    first = await finished(adapter, "one")
    second = await finished(adapter, "two", handle=first.handle)
    third = await finished(adapter, "three", handle=second.handle)
    ids = response_ids(server)
    assert [first.handle, second.handle, third.handle] == ids
    fixed = {"model": "m", "store": True, "stream": True, "instructions": "Be brief.", "tools": tools}
    assert server.requests == [
        fixed | {"input": [user("one")]},
        fixed | {"input": [user("two")], "previous_response_id": ids[0]},
        fixed | {"input": [user("three")], "previous_response_id": ids[1]},
    ]


async def test_outputs_that_the_backend_waits_for_go_before_the_message(
    server: ResponsesServer, plain: Adapter
) -> None:
    server.script = plays(Call("lookup", {"q": "x"}, call_id="call_1"))
    first = await finished(plain)
    server.script = plays(Say("Well."))
    earlier = (OutputItem("call_1", "not run"),)
    await finished(plain, "never mind", earlier=earlier, handle=first.handle)
    assert server.requests[1]["input"] == [
        {"type": "function_call_output", "call_id": "call_1", "output": "not run"},
        user("never mind"),
    ]


async def test_what_an_adapter_of_another_wire_has_kept_is_not_sent(server: ResponsesServer, keeping: Adapter) -> None:
    foreign = {"model": "m", "block": {"type": "thinking", "thinking": "hm", "signature": "sig"}}
    earlier = (UserItem(message("one")), ReasoningItem("hm", foreign), OpaqueItem("server_tool_use", foreign))
    await finished(keeping, "two", earlier=earlier)
    assert server.requests[0]["input"] == [user("one"), user("two")]


async def test_without_storage_the_whole_view_is_sent_and_no_id_of_the_backend(
    server: ResponsesServer, keeping: Adapter
) -> None:
    opaque = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAB"}
    earlier: tuple[Item, ...] = (
        UserItem(message("one")),
        ReasoningItem("hm", opaque),
        CallItem("call_1", "wx.get", '{"q":"x"}'),
        OutputItem("call_1", {"found": 3}),
        AssistantItem((Part(text="Three."), Part(data=[1, None]), Part(raw="aGk=", filename="a.png"))),
        OpaqueItem("compaction", {"type": "compaction", "encrypted_content": "gAAAAC"}),
    )
    done = await finished(keeping, "two", earlier=earlier, handle="resp_of_another_life")
    assert (done.handle, done.stored) == (None, False)
    assert server.requests == [
        {
            "model": "m",
            "store": False,
            "stream": True,
            "include": ["reasoning.encrypted_content"],
            "input": [
                user("one"),
                opaque,
                {"type": "function_call", "call_id": "call_1", "name": "wx_get", "arguments": '{"q":"x"}'},
                {"type": "function_call_output", "call_id": "call_1", "output": '{"found":3}'},
                {"type": "message", "role": "assistant", "content": "Three.\n\n[1,null]\n\n[a.png]"},
                {"type": "compaction", "encrypted_content": "gAAAAC"},
                user("two"),
            ],
        }
    ]


async def test_encrypted_reasoning_goes_back_as_it_came_but_without_its_id(
    server: ResponsesServer, keeping: Adapter
) -> None:
    server.script = plays(Think("Let me see.", encrypted="gAAAA-and-more"), Say("Hello"))
    events = await collect(keeping, request("one"))
    [remembered] = [event for event in events if isinstance(event, ItemReady)]
    item = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "Let me see."}],
        "encrypted_content": "gAAAA-and-more",
    }
    assert remembered == ItemReady(ReasoningItem("Let me see.", item), remembered.provider_id)
    earlier = (UserItem(message("one")), remembered.item, AssistantItem((Part(text="Hello"),)))
    await finished(keeping, "two", earlier=earlier)
    assert server.requests[1]["input"][1] == item
    assert "resp_" not in json.dumps(server.requests[1])


async def test_what_the_service_compacted_is_a_boundary_and_is_taken_back(
    server: ResponsesServer, keeping: Adapter
) -> None:
    """The server refuses fields that the vendor's description of a request does not have."""
    server.script = plays(
        Output({"type": "compaction", "encrypted_content": "gAAAAC", "created_by": "m"}), Say("Hello")
    )
    events = await collect(keeping, request("one"))
    [remembered] = [event.item for event in events if isinstance(event, ItemReady)]
    assert remembered == OpaqueItem("compaction", {"type": "compaction", "encrypted_content": "gAAAAC"}, boundary=True)
    await finished(keeping, "two", earlier=(remembered, AssistantItem((Part(text="Hello"),))))
    assert server.requests[1]["input"][0] == {"type": "compaction", "encrypted_content": "gAAAAC"}


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        pytest.param((Part(text="a"), Part(text="b")), [("input_text", "a"), ("input_text", "b")], id="texts"),
        pytest.param((Part(data={"a": [1, "é"]}),), [("input_text", '{"a":[1,"é"]}')], id="data"),
        pytest.param((Part(data=None),), [("input_text", "null")], id="null is data"),
        pytest.param(
            (Part(raw="aGk=", media_type="image/png"),),
            [{"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"}],
            id="a picture",
        ),
        pytest.param(
            (Part(url="https://x.example/a.jpg"),),
            [{"type": "input_image", "image_url": "https://x.example/a.jpg", "detail": "auto"}],
            id="a picture elsewhere",
        ),
        pytest.param(
            (Part(raw="aGk=", media_type="application/pdf", filename="a.pdf"),),
            [{"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}],
            id="a file",
        ),
        pytest.param(
            (Part(raw="aGk=", media_type="application/pdf"), Part(raw="aGk=")),
            [
                {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,aGk="},
                {
                    "type": "input_file",
                    "filename": "file.bin",
                    "file_data": "data:application/octet-stream;base64,aGk=",
                },
            ],
            id="files without name or type",
        ),
        pytest.param(
            (Part(url="https://x.example/a.pdf", media_type="application/pdf"),),
            [{"type": "input_file", "file_url": "https://x.example/a.pdf"}],
            id="a file elsewhere",
        ),
    ],
)
async def test_every_kind_of_part_is_sent(
    server: ResponsesServer, plain: Adapter, given: tuple[Part, ...], sent: list[Any]
) -> None:
    await collect(plain, request("and this", earlier=(parts(*given),)))
    content = [{"type": part[0], "text": part[1]} if isinstance(part, tuple) else part for part in sent]
    assert server.requests[0]["input"][0] == {"type": "message", "role": "user", "content": content}


def test_what_is_sent_here_is_judged_by_the_vendors_description() -> None:
    assert openai_validator()("CreateResponse", {"model": "m", "input": 7})
    assert judge() is not None


async def test_all_settings_reach_the_wire(server: ResponsesServer, start: Start, build: Build) -> None:
    values = {
        "max_output_tokens": 99,
        "temperature": 0.5,
        "top_p": 0.9,
        "reasoning": {"effort": "low", "summary": "auto"},
        "tools": [
            {"type": "mcp", "server_label": "wx", "server_url": "https://x.example/mcp", "require_approval": "never"}
        ],
        "include": ["web_search_call.action.sources"],
        "truncation": "auto",
        "metadata": {"team": "blue"},
    }
    adapter = build(factory, await start(server), **values, extra_body={"service_tier": "flex"})
    await finished(adapter)
    fixed = {"model": "m", "store": True, "stream": True, "service_tier": "flex"}
    assert server.requests == [fixed | values | {"input": [user("Hi")]}]


async def test_encrypted_reasoning_need_not_be_asked_for(server: ResponsesServer, start: Start, build: Build) -> None:
    adapter = build(factory, await start(server), history={"owner": "gateway"}, encrypted_reasoning=False)
    await finished(adapter)
    assert "include" not in server.requests[0]


async def test_without_a_key_none_is_sent(start: Start, build: Build) -> None:
    server = ResponsesServer()
    await finished(build(factory, await start(server), api_key=None))
    assert "authorization" not in server.headers[0]


async def test_a_call_id_longer_than_the_wire_takes_is_replaced_by_the_same_one_everywhere(
    server: ResponsesServer, keeping: Adapter
) -> None:
    long = "call_" + "x" * 400
    await finished(keeping, earlier=(CallItem(long, "f", "{}"), OutputItem(long, "")))
    call, output, _ = server.requests[0]["input"]
    assert call["call_id"] == output["call_id"]
    assert len(call["call_id"]) <= 64


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"tools": [{"type": "function", "name": "f"}]}, "tools of type 'function' run at the client"),
        ({"tools": [{"type": "local_shell"}]}, "tools of type 'local_shell' run at the client"),
        ({"tools": [{"name": "f"}]}, "a tool needs a `type`"),
        ({"extra_body": {"stream": False}}, "extra_body must not set 'stream'"),
        ({"extra_body": {"model": "x"}}, "extra_body must not set 'model'"),
        ({"base_url": "https://x.example/v1?a=b"}, "must have no query"),
        ({"base_url": "https://me:secret@x.example"}, "must have no user or password in it"),
        ({"base_url": "ftp://x.example"}, "must be an address"),
        ({"api_key": "two\nlines"}, "must be one line"),
        ({"model": ""}, "at least 1 character"),
        ({"timeouts": {"connect": "0s"}}, "greater than or equal to 0.1"),
        ({"previous_response_id": "resp_1"}, "Extra inputs are not permitted"),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValidationError, match=problem):
        factory.settings.model_validate(settings("https://x.example/v1", **values))


def test_the_key_may_end_with_a_line_end_and_is_not_shown() -> None:
    read = factory.settings.model_validate(settings("https://x.example/v1/", api_key=f"{KEY}\n"))
    assert (read.key, read.base_url) == (KEY, "https://x.example/v1")
    assert KEY not in f"{read} {read!r}"


def test_the_owner_of_the_conversation_is_declared() -> None:
    def ownership(**history: str) -> Ownership:
        return factory.build(factory.settings.model_validate({"model": "m", "history": history})).ownership

    kept = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING, repeatable=True, either=True)
    assert ownership() == ownership(owner="backend") == kept
    assert ownership(owner="gateway") == Ownership(
        StorageOwner.GATEWAY, HandleKind.NONE, opaque_replay=True, repeatable=True, either=True
    )


@pytest.mark.parametrize(
    ("more", "repeats"),
    [
        ({}, True),
        ({"history": {"owner": "gateway"}}, True),
        ({"background": True}, True),
        ({"extra_body": {"seed": 1}}, True),
        ({"service_tools": [{"type": "web_search"}]}, False),
        ({"service_tools": [{"type": "mcp", "server_label": "s"}]}, False),
        ({"history": {"owner": "gateway"}, "service_tools": [{"type": "web_search"}]}, False),
        ({"extra_body": {"prompt": {"id": "pmpt_1"}}}, False),
        ({"extra_body": {"agent_reference": {"name": "a"}}}, False),
        ({"repeat_unknown": False}, False),
        ({"repeat_unknown": True, "service_tools": [{"type": "web_search"}]}, True),
    ],
    ids=str,
)
def test_a_request_of_unknown_outcome_is_repeated_unless_the_service_may_run_a_tool(
    more: dict[str, Any], repeats: bool
) -> None:
    values = {"model": "m", **more}
    assert factory.build(factory.settings.model_validate(values)).ownership.may_repeat is repeats


def test_a_conversation_is_never_sent_to_again_unread() -> None:
    values = {"model": "m", "conversation": True}
    assert not factory.build(factory.settings.model_validate(values)).ownership.may_repeat
    with pytest.raises(ValidationError, match="'conversation: true' and 'repeat_unknown: true' exclude each other"):
        factory.settings.model_validate(values | {"repeat_unknown": True})
