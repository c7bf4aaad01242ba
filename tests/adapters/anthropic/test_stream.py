"""Event by event: streams of real servers, and streams with what may be absent or late."""

import json
from typing import Any

import pytest

from adapters.anthropic.failures import AnthropicFailures
from adapters.anthropic.stream import MessageParser
from gateway.a2a.model import Json
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    CallCompleted,
    ErrorClass,
    ItemReady,
    ReasoningDelta,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import OpaqueItem, ReasoningItem


def parser() -> MessageParser:
    return MessageParser(AnthropicFailures(("hdrsecret777",)), "m")


def read(*stream: Json | bytes) -> list[AdapterEvent]:
    reading = parser()
    events: list[AdapterEvent] = []
    for data in stream:
        events.extend(reading.receive(data if isinstance(data, bytes) else json.dumps(data).encode()))
    return [*events, *reading.finish()]


def begin(index: int, **block: Any) -> Json:
    return {"type": "content_block_start", "index": index, "content_block": block}


def grow(index: int, kind: str, **delta: Any) -> Json:
    return {"type": "content_block_delta", "index": index, "delta": {"type": f"{kind}_delta", **delta}}


def end(index: int) -> Json:
    return {"type": "content_block_stop", "index": index}


def text(index: int, words: str) -> list[Json]:
    return [begin(index, type="text", text=""), grow(index, "text", text=words), end(index)]


def delta(reason: str | None, **usage: Any) -> Json:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage}


START = {"type": "message_start", "message": {"id": "msg_1", "content": [], "usage": {"input_tokens": 9}}}
PING = {"type": "ping"}
STOP = {"type": "message_stop"}

# --- real servers -----------------------------------------------------------------------------------------------------

OGX_PARALLEL = b"""
{"type":"message_start","message":{"id":"msg_ef59","type":"message","role":"assistant","content":[],"model":"gpt-4",\
"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0,"cache_creation_input_tokens":null,\
"cache_read_input_tokens":null}}}
{"type":"ping"}
{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"call_w1","name":"get_weather","input":{},\
"cache_control":null}}
{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\\"city\\":\\"O"}}
{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"slo\\"}"}}
{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"call_w2","name":"get_weather","input":{},\
"cache_control":null}}
{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\\"city\\":\\"R"}}
{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"ome\\"}"}}
{"type":"content_block_stop","index":0}
{"type":"ping"}
{"type":"content_block_stop","index":1}
{"type":"ping"}
{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":0,\
"output_tokens":0,"cache_creation_input_tokens":null,"cache_read_input_tokens":null}}
{"type":"message_stop"}
"""
"""OGX 1.5.0 over aimock: the second block begins before the first has ended."""

AIMOCK_THOUGHT = b"""
{"type":"message_start","message":{"id":"msg_jSB6","type":"message","role":"assistant","content":[],"model":"claude-x",\
"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0}}}
{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me "}}
{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"think."}}
{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"aimock-placeholder-signature"}}
{"type":"content_block_stop","index":0}
{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}
{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Thought answer."}}
{"type":"content_block_stop","index":1}
{"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},"usage":{"output_tokens":0}}
{"type":"message_stop"}
"""
"""aimock 1.43.0."""


def test_ogx_begins_a_block_before_the_one_before_it_has_ended() -> None:
    assert read(*OGX_PARALLEL.strip().splitlines()) == [
        ToolCallAnnounced("call_w1", "get_weather"),
        ToolCallArguments("call_w1", '{"city":"O'),
        ToolCallArguments("call_w1", 'slo"}'),
        ToolCallAnnounced("call_w2", "get_weather"),
        ToolCallArguments("call_w2", '{"city":"R'),
        ToolCallArguments("call_w2", 'ome"}'),
        ToolCallReady("call_w1", "get_weather", '{"city":"Oslo"}'),
        ToolCallReady("call_w2", "get_weather", '{"city":"Rome"}'),
        CallCompleted(
            usage={
                "input_tokens": 0,
                "output_tokens": 0,
                "cache_creation_input_tokens": None,
                "cache_read_input_tokens": None,
            }
        ),
    ]


def test_aimock_thinks_before_its_answer() -> None:
    block = {"type": "thinking", "thinking": "Let me think.", "signature": "aimock-placeholder-signature"}
    assert read(*AIMOCK_THOUGHT.strip().splitlines()) == [
        ReasoningDelta("Let me "),
        ReasoningDelta("think."),
        ItemReady(ReasoningItem("Let me think.", {"model": "m", "block": block})),
        TextDelta("Thought answer."),
        CallCompleted(usage={"input_tokens": 0, "output_tokens": 0}),
    ]


# --- blocks out of order ----------------------------------------------------------------------------------------------


def test_deltas_belong_to_the_block_of_their_index_whichever_began_last() -> None:
    events = read(
        begin(0, type="thinking", thinking="", signature=""),
        begin(1, type="tool_use", id="c1", name="f", input={}),
        begin(2, type="tool_use", id="c2", name="g", input={}),
        grow(1, "input_json", partial_json='{"a":'),
        grow(2, "input_json", partial_json="{}"),
        grow(0, "thinking", thinking="hm"),
        grow(1, "input_json", partial_json="1}"),
        grow(0, "signature", signature="sig"),
        end(2),
        end(0),
        end(1),
        delta("tool_use"),
        STOP,
    )
    block = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert [event for event in events if isinstance(event, ItemReady | ToolCallReady)] == [
        ItemReady(ReasoningItem("hm", {"model": "m", "block": block})),
        ToolCallReady("c1", "f", '{"a":1}'),
        ToolCallReady("c2", "g", "{}"),
    ]


def test_a_block_that_has_ended_waits_for_those_before_it_but_for_no_text() -> None:
    reading = parser()

    def ready(event: Json) -> list[AdapterEvent]:
        return list(reading.receive(json.dumps(event).encode()))

    ready(begin(0, type="text", text="Hi"))
    for index, (call_id, name) in enumerate([("c1", "f"), ("c2", "g"), ("c3", "h")], 1):
        ready(begin(index, type="tool_use", id=call_id, name=name, input={}))
    assert ready(end(2)) == []
    assert ready(end(1)) == [
        ToolCallReady("c1", "f", "{}"),
        ToolCallReady("c2", "g", "{}"),
    ]
    assert ready(STOP) == [ToolCallReady("c3", "h", "{}")]


def test_a_block_that_no_event_ends_ends_with_its_message() -> None:
    stream = [begin(0, type="tool_use", id="c1", name="f", input={}), grow(0, "input_json", partial_json="{}")]
    assert read(*stream, delta("tool_use"), STOP)[-2:] == [ToolCallReady("c1", "f", "{}"), CallCompleted(usage={})]


def test_a_block_that_is_ended_twice_is_one() -> None:
    stream = [begin(0, type="tool_use", id="c1", name="f", input={"a": 1}), end(0), end(0), end(7)]
    assert read(*stream, delta("tool_use"), STOP) == [
        ToolCallAnnounced("c1", "f"),
        ToolCallReady("c1", "f", '{"a":1}'),
        CallCompleted(usage={}),
    ]


def test_texts_that_follow_each_other_are_one_text() -> None:
    assert read(*text(0, "In Oslo"), *text(1, " it is 3C."), delta("end_turn"), STOP)[:2] == [
        TextDelta("In Oslo"),
        TextDelta(" it is 3C."),
    ]


def test_a_text_needs_neither_a_beginning_nor_an_index() -> None:
    stream = [
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hel"}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "lo"}},
    ]
    assert read(*stream, STOP) == [TextDelta("Hel"), TextDelta("lo"), CallCompleted()]


def test_what_a_block_begins_with_is_told() -> None:
    stream = [begin(0, type="thinking", thinking="hm", signature="s"), end(0), begin(1, type="text", text="Hi"), end(1)]
    assert [event for event in read(*stream, STOP) if not isinstance(event, ItemReady)] == [
        ReasoningDelta("hm"),
        TextDelta("Hi"),
        CallCompleted(),
    ]


# --- ids --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [{}, {"id": None}, {"id": ""}])
def test_a_call_without_an_id_gets_one(given: Json) -> None:
    ready = read(begin(0, type="tool_use", name="f", input={}, **given), end(0), STOP)[1]
    assert isinstance(ready, ToolCallReady)
    assert ready.call_id.startswith("toolu_")


def used(index: int, **given: Any) -> list[Json]:
    """A call with id, name and arguments, in two pieces."""
    block = {"type": "tool_use", "id": "c1", "name": "f", "input": {}} | given
    pieces = [grow(index, "input_json", partial_json=piece) for piece in ('{"a":', f"{json.dumps(block['input'])}}}")]
    return [begin(index, **block | {"input": {}}), *pieces, end(index)]


def test_a_call_that_comes_again_is_one_call() -> None:
    once = read(*used(0), STOP)
    assert read(*used(0), *used(1), STOP) == once
    assert read(*used(0), *used(1, input=1), *used(2), *used(3, input=1), STOP)[:3] == once[:3]


def test_a_call_that_comes_again_behind_a_pause_is_one_call_and_goes_back_once() -> None:
    reading = parser()
    events: list[AdapterEvent] = []
    for event in (*used(0), delta("pause_turn"), STOP):
        events.extend(reading.receive(json.dumps(event).encode()))
    reading.go_on()
    for event in (*used(0), delta("pause_turn"), STOP):
        events.extend(reading.receive(json.dumps(event).encode()))
    reading.go_on()
    assert [event.call_id for event in events if isinstance(event, ToolCallReady)] == ["c1"]
    assert [block["id"] for block in reading.known.said] == ["c1"]


def test_calls_of_one_id_with_other_arguments_go_back_under_two_ids() -> None:
    reading = parser()
    events: list[AdapterEvent] = []
    for event in (*used(0), *used(1, input=1), *used(2, input=1), delta("pause_turn"), STOP):
        events.extend(reading.receive(json.dumps(event).encode()))
    reading.go_on()
    ids = [event.call_id for event in events if isinstance(event, ToolCallReady)]
    assert len(set(ids)) == 2
    assert [block["id"] for block in reading.known.said] == ids


SEARCH = {"type": "server_tool_use", "id": "srv1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srv1", "content": []}
SEARCHED = [
    ToolCallAnnounced("srv1", "web_search", True, "web_search"),
    ItemReady(OpaqueItem("server_tool_use", {"model": "m", "block": SEARCH})),
    ToolCallReady("srv1", "web_search", '{"query":"x"}', True, "web_search"),
    ItemReady(OpaqueItem("web_search_tool_result", {"model": "m", "block": FOUND})),
    ToolResultReady("srv1", ""),
    CallCompleted(),
]


def whole(*blocks: Json) -> list[Json]:
    return [event for index, block in enumerate(blocks) for event in (begin(index, **block), end(index))]


@pytest.mark.parametrize(
    "blocks",
    [
        (SEARCH, FOUND),
        (SEARCH, SEARCH, FOUND),
        (SEARCH, SEARCH, FOUND, FOUND),
        (SEARCH, FOUND, SEARCH, FOUND),
        (SEARCH, FOUND, SEARCH | {"input": {"query": "y"}}, FOUND | {"content": [{"type": "web_search_result"}]}),
    ],
)
def test_a_tool_of_the_service_is_told_once_for_an_id(blocks: tuple[Json, ...]) -> None:
    assert read(*whole(*blocks), STOP) == SEARCHED


def test_a_tool_of_the_service_that_comes_again_behind_a_pause_is_told_and_goes_back_once() -> None:
    reading = parser()
    events: list[AdapterEvent] = []
    for blocks in ((SEARCH,), (SEARCH,), (SEARCH, FOUND)):
        for event in (*whole(*blocks), delta("pause_turn"), STOP):
            events.extend(reading.receive(json.dumps(event).encode()))
        reading.go_on()
    assert [*events, CallCompleted()] == SEARCHED
    assert reading.known.said == [SEARCH, FOUND]


def test_a_result_of_the_service_belongs_to_its_own_call_beside_a_call_of_the_same_id() -> None:
    events = read(*whole(SEARCH, {"type": "tool_use", "id": "srv1", "name": "f", "input": {}}, FOUND), STOP)
    assert [event.call_id for event in events if isinstance(event, ToolResultReady)] == ["srv1"]
    assert [event.call_id == "srv1" for event in events if isinstance(event, ToolCallReady)] == [True, False]


def test_a_tool_of_the_service_without_an_id_is_kept_under_that_of_its_call() -> None:
    announced, kept, *_ = read(*whole({"type": "server_tool_use", "name": "web_search", "input": {}}), STOP)
    assert isinstance(announced, ToolCallAnnounced)
    assert isinstance(kept, ItemReady)
    assert isinstance(kept.item, OpaqueItem)
    assert kept.item.payload["block"]["id"] == announced.call_id


def test_two_calls_of_one_id_are_two_calls() -> None:
    events = read(*used(0), *used(1, input=1), STOP)
    ids = [event.call_id for event in events if isinstance(event, ToolCallReady)]
    assert ids[0] == "c1"
    assert len(set(ids)) == 2


# --- tools of the service ---------------------------------------------------------------------------------------------


def shown(kind: str, content: Json, **more: Any) -> ToolResultReady:
    block = {"type": kind, "tool_use_id": "s1", "content": content, **more}
    [event] = [e for e in read(begin(0, **block), end(0), STOP) if isinstance(e, ToolResultReady)]
    return event


@pytest.mark.parametrize(
    ("kind", "content", "output", "error"),
    [
        ("mcp_tool_result", "3C", "3C", False),
        ("mcp_tool_result", [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb", False),
        ("mcp_tool_result", [], "", False),
        ("mcp_tool_result", None, "", False),
        (
            "web_search_tool_result",
            [{"type": "web_search_result", "url": "u", "title": "t", "encrypted_content": "x"}],
            [{"type": "web_search_result", "url": "u", "title": "t"}],
            False,
        ),
        (
            "code_execution_tool_result",
            {"type": "encrypted_code_execution_result", "encrypted_stdout": "x", "return_code": 1, "content": []},
            {"type": "encrypted_code_execution_result", "return_code": 1, "content": []},
            False,
        ),
        (
            "tool_search_tool_result",
            {"type": "tool_search_tool_result_error", "error_code": "unavailable"},
            {"type": "tool_search_tool_result_error", "error_code": "unavailable"},
            True,
        ),
    ],
)
def test_callers_see_of_a_result_what_others_than_the_service_can_read(
    kind: str, content: Json, output: Json, error: bool
) -> None:
    assert shown(kind, content) == ToolResultReady("s1", output, error)


def test_a_tool_of_an_mcp_server_is_known_by_the_name_of_its_server() -> None:
    block = {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "look", "server_name": "wx", "input": {"a": 1}}
    assert read(begin(0, **block), end(0), STOP)[:-1] == [
        ToolCallAnnounced("mcptoolu_1", "look", True, "mcp:wx"),
        ItemReady(OpaqueItem("mcp_tool_use", {"model": "m", "block": block})),
        ToolCallReady("mcptoolu_1", "look", '{"a":1}', True, "mcp:wx"),
    ]


@pytest.mark.parametrize(("content", "boundary"), [("They said one.", True), (None, False)])
def test_a_compaction_stands_for_all_before_it_if_it_has_any_content(content: str | None, boundary: bool) -> None:
    stream = [
        begin(0, type="compaction", content=None),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": content}},
        end(0),
    ]
    block = {"type": "compaction", "content": content}
    assert read(*stream, STOP)[0] == ItemReady(OpaqueItem("compaction", {"model": "m", "block": block}, boundary))


def test_a_block_of_an_unknown_type_is_kept_with_its_text_which_is_no_part_of_the_answer() -> None:
    stream = [begin(0, type="progress_text", text=""), grow(0, "text", text="At work"), end(0)]
    kept = OpaqueItem("progress_text", {"model": "m", "block": {"type": "progress_text", "text": "At work"}})
    assert read(*stream, STOP) == [ReasoningDelta("At work"), ItemReady(kept), CallCompleted()]


def test_a_message_is_continued_with_its_blocks_as_they_came() -> None:
    reading = parser()
    cited = {"type": "page_location", "cited_text": "c"}
    for event in (
        begin(0, type="text", text="", citations=[]),
        grow(0, "text", text="Hi"),
        grow(0, "citations", citation=cited),
        begin(1, type="server_tool_use", id="s1", name="bash_code_execution", input={}),
        grow(1, "input_json", partial_json='{"command":"ls"}'),
        begin(2, type="server_tool_use", id="s2", name="web_search", input={}),
        grow(2, "input_json", partial_json='{"query":'),
        delta("pause_turn"),
        STOP,
    ):
        reading.receive(json.dumps(event).encode())
    assert reading.paused
    reading.go_on()
    assert reading.known.said == [
        {"type": "text", "text": "Hi", "citations": [cited]},
        {"type": "server_tool_use", "id": "s1", "name": "bash_code_execution", "input": {"command": "ls"}},
        {"type": "server_tool_use", "id": "s2", "name": "web_search", "input": {}},
    ]
    assert not reading.paused


# --- the end ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [[], [START], [START, *text(0, "Hi")], [START, *text(0, "Hi"), delta("end_turn")]])
def test_only_the_end_of_the_message_is_an_end(stream: list[Json]) -> None:
    with pytest.raises(AdapterError) as caught:
        read(*stream)
    assert caught.value.kind is ErrorClass.INTERRUPTED


def test_a_refusal_says_why_and_quotes_no_secret() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "no hdrsecret777"}
    refused = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}, "usage": None}
    with pytest.raises(AdapterError) as caught:
        read(START, *text(0, "Hel"), refused, STOP)
    assert (caught.value.kind, caught.value.detail) == (ErrorClass.POLICY, "the model refuses: cyber: no ***")


def test_an_unknown_reason_quotes_no_secret() -> None:
    assert read(delta("hdrsecret777 is full"), STOP) == [CallCompleted(usage={}, finish="*** is full")]


def test_what_is_not_known_is_passed_over() -> None:
    stream = [PING, {"type": "something_new", "index": 3}, grow_unknown(), {}, *text(0, "Hi"), delta(None), STOP]
    assert read(begin(9, type="text", text=""), *stream) == [TextDelta("Hi"), CallCompleted(usage={})]


def grow_unknown() -> Json:
    return {"type": "content_block_delta", "index": 9, "delta": {"type": "something_delta", "value": 1}}


# --- tokens -----------------------------------------------------------------------------------------------------------


def test_a_later_report_of_tokens_replaces_an_earlier_one_number_by_number() -> None:
    begun = {"type": "message_start", "message": {"usage": {"input_tokens": 9, "cache_read_input_tokens": 4}}}
    last = delta("end_turn", output_tokens=7, input_tokens=None, cache_read_input_tokens=5)
    assert read(begun, last, STOP) == [
        CallCompleted(usage={"input_tokens": 9, "cache_read_input_tokens": 5, "output_tokens": 7})
    ]
