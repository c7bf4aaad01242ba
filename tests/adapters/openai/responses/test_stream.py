"""Streams of real Responses servers, and bent ones, event by event."""

import json
import logging
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from adapters.openai.failures import OpenAIFailures
from adapters.openai.responses.continuation import Chain, Continuation, InConversation
from adapters.openai.responses.request import answered_calls, encode_input
from adapters.openai.responses.stream import ResponseParser
from gateway.a2a.model import Part
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    ApprovalAsked,
    CallCompleted,
    CallStarted,
    ConsentAsked,
    ErrorClass,
    ItemReady,
    MessageReady,
    PartReady,
    Progress,
    ReasoningDelta,
    StartedOver,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import OpaqueItem, OutputItem, ReasoningItem

Event = dict[str, Any]

CREATED: Event = {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}
COMPLETED: Event = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": []}}


def read(
    *stream: Event | bytes, keeps: bool = True, handle: str | None = None, answered: Mapping[str, str | None] = {}
) -> list[AdapterEvent]:
    """The events of a stream, which must end by itself."""
    reading = ResponseParser(OpenAIFailures(()), Chain(handle, keeps=keeps), answered)
    events: list[AdapterEvent] = []
    for event in stream:
        assert not reading.ended
        events.extend(reading.receive(event if isinstance(event, bytes) else json.dumps(event).encode()))
    assert reading.ended
    return events


def finished(*output: Event) -> Event:
    return {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": list(output)}}


def between(*stream: Event | bytes) -> list[AdapterEvent]:
    """The adapter events of `events` between the first and the last event of a plain stream."""
    first, *events, last = read(CREATED, *stream, COMPLETED)
    assert first == CallStarted("resp_1")
    assert isinstance(last, CallCompleted)
    assert msgspec.structs.replace(last, state=None) == CallCompleted("resp_1")
    return events


def delta(text: str, **fields: Any) -> Event:
    return {"type": "response.output_text.delta", "item_id": "msg_1", "delta": text} | fields


def added(kind: str, **fields: Any) -> Event:
    return {"type": "response.output_item.added", "item": {"type": kind} | fields}


def done(kind: str, **fields: Any) -> Event:
    return {"type": "response.output_item.done", "item": {"type": kind} | fields}


def whole(text: str, **fields: Any) -> Event:
    return done("message", **{"id": "msg_1", "content": [{"type": "output_text", "text": text}]} | fields)


# --- captures of real servers -----------------------------------------------------------------------------------------


def test_agentserver_calls_a_tool_of_the_client() -> None:
    item = b'{"type":"function_call","id":"fc_1","call_id":"call_1","name":"get_weather","arguments":%s,"status":"%s"}'
    assert read(
        b'{"type":"response.created","response":{"id":"caresp_1","object":"response","output":[],"created_at":1795170079,'
        b'"error":null,"incomplete_details":null,"instructions":null,"parallel_tool_calls":false,"model":"m","status":'
        b'"in_progress","response_id":"caresp_1","agent_reference":{"type":"agent_reference"},"agent_session_id":"a52a"},"sequence_number":0}',
        b'{"type":"response.output_item.added","output_index":0,"item":%s,"sequence_number":2}'
        % (item % (b'""', b"in_progress")),
        b'{"type":"response.function_call_arguments.delta","item_id":"fc_1","output_index":0,'
        b'"delta":"{\\"city\\": \\"Oslo\\"}","sequence_number":3}',
        b'{"type":"response.function_call_arguments.done","item_id":"fc_1","output_index":0,"name":"get_weather",'
        b'"arguments":"{\\"city\\": \\"Oslo\\"}","sequence_number":4}',
        b'{"type":"response.output_item.done","output_index":0,"item":%s,"sequence_number":5}'
        % (item % (rb'"{\"city\": \"Oslo\"}"', b"completed")),
        b'{"type":"response.completed","response":{"id":"caresp_1","output":[%s],"status":"completed",'
        b'"completed_at":1795170079,"usage":null},"sequence_number":6}'
        % (item % (rb'"{\"city\": \"Oslo\"}"', b"completed")),
        handle="caresp_0",
    ) == [
        CallStarted("caresp_1"),
        ToolCallAnnounced("call_1", "get_weather"),
        ToolCallArguments("call_1", '{"city": "Oslo"}'),
        ToolCallReady("call_1", "get_weather", '{"city": "Oslo"}', provider_id="fc_1"),
        CallCompleted("caresp_1", state={"waiting_calls": {"call_1": "31d75955c904cb46"}}),
    ]


def test_ogx_runs_a_tool_of_an_mcp_server() -> None:
    item = b'{"id":"fc_56bf","type":"mcp_call","arguments":%s,"name":"get_weather","server_label":"wx","output":%s}'
    assert between(
        b'{"sequence_number":2,"type":"response.mcp_list_tools.in_progress"}',
        b'{"response_id":"resp_1","item":{"id":"mcp_list_77bd","type":"mcp_list_tools","server_label":"wx","tools":[]},'
        b'"output_index":0,"sequence_number":3,"type":"response.output_item.added"}',
        b'{"response_id":"resp_1","item":{"id":"mcp_list_77bd","type":"mcp_list_tools","server_label":"wx","tools":[]},'
        b'"output_index":0,"sequence_number":5,"type":"response.output_item.done"}',
        rb'{"delta":"{\"city\":\"O","item_id":"fc_56bf","output_index":1,"sequence_number":7,'
        b'"type":"response.function_call_arguments.delta"}',
        rb'{"delta":"slo\"}","item_id":"fc_56bf","output_index":1,"sequence_number":8,'
        b'"type":"response.function_call_arguments.delta"}',
        rb'{"arguments":"{\"city\":\"Oslo\"}","item_id":"fc_56bf","output_index":1,"sequence_number":12,'
        b'"type":"response.mcp_call.arguments.done"}',
        b'{"response_id":"resp_1","item":%s,"output_index":1,"sequence_number":14,"type":"response.output_item.added"}'
        % (item % (b'""', b"null")),
        b'{"item_id":"fc_56bf","output_index":1,"sequence_number":15,"type":"response.mcp_call.in_progress"}',
        b'{"sequence_number":16,"type":"response.mcp_call.completed"}',
        b'{"response_id":"resp_1","item":%s,"output_index":1,"sequence_number":17,"type":"response.output_item.done"}'
        % (item % (rb'"{\"city\":\"Oslo\"}"', b'"Oslo: 3C"')),
    ) == [
        ToolCallAnnounced("fc_56bf", "get_weather", handled=True, server="mcp:wx"),
        ToolCallArguments("fc_56bf", '{"city":"O'),
        ToolCallArguments("fc_56bf", 'slo"}'),
        ToolCallReady("fc_56bf", "get_weather", '{"city":"Oslo"}', True, "mcp:wx", "fc_56bf"),
        ToolResultReady("fc_56bf", "Oslo: 3C"),
    ]


# --- the response -----------------------------------------------------------------------------------------------------


def test_the_handle_is_that_of_the_completed_response() -> None:
    other = COMPLETED | {"response": {"id": "resp_2"}}
    assert read(CREATED, other) == [CallStarted("resp_1"), CallCompleted("resp_2")]
    assert read(CREATED, other, keeps=False) == [CallStarted(None), CallCompleted(None)]


def test_a_response_that_was_kept_although_it_should_not_names_its_handle() -> None:
    response = {"id": "resp_1", "store": True}
    assert read({"type": "response.completed", "response": response}, keeps=False)[-1] == CallCompleted(
        "resp_1", stored=True
    )


def test_a_response_without_id_confirms_nothing() -> None:
    assert read({"type": "response.completed", "response": {"status": "completed"}}) == [
        CallStarted(None),
        CallCompleted(None),
    ]


def test_usage_and_storage_of_the_response_are_passed_on() -> None:
    response = {"id": "resp_1", "usage": {"total_tokens": 7}, "store": False}
    assert read({"type": "response.completed", "response": response})[-1] == CallCompleted(
        "resp_1", usage={"total_tokens": 7}, stored=False
    )


@pytest.mark.parametrize("word", ["queued", "in_progress"])
def test_a_response_may_begin_in_other_words(word: str) -> None:
    begun = CREATED | {"type": f"response.{word}"}
    assert read(begun, begun, COMPLETED) == [CallStarted("resp_1"), CallCompleted("resp_1")]


@pytest.mark.parametrize(
    ("ending", "kind"),
    [
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "no"}}},
            "backend-failed",
        ),
        ({"type": "response.failed", "response": {"error": {"code": "rate_limit_exceeded"}}}, "rate-limited"),
        ({"type": "response.failed", "response": {"error": None}}, "backend-failed"),
        ({"type": "response.completed", "response": {"status": "failed"}}, "backend-failed"),
        ({"type": "response.completed", "response": {"status": "cancelled"}}, "backend-failed"),
        ({"type": "response.cancelled", "response": {}}, "backend-failed"),
        ({"type": "response.completed", "response": {"status": "in_progress"}}, "contract-broken"),
        ({"type": "error", "code": "server_error", "message": "no", "param": None}, "backend-failed"),
        ({"type": "error", "error": {"type": "too_many_requests", "code": None, "message": "no"}}, "rate-limited"),
        (
            {"type": "error", "error": {"type": "server_error", "code": "previous_response_not_found"}},
            "handle-not-found",
        ),
    ],
)
def test_a_response_fails_in_many_words(ending: Event, kind: str) -> None:
    with pytest.raises(AdapterError) as caught:
        read(CREATED, delta("Hel"), ending, handle="resp_0")
    assert caught.value.kind == kind


def test_an_incomplete_response_may_lack_the_reason() -> None:
    for details in (None, {}, {"reason": None}):
        response = {"id": "resp_1", "status": "incomplete", "incomplete_details": details}
        assert read({"type": "response.incomplete", "response": response})[-1] == CallCompleted(
            "resp_1", finish="incomplete"
        )


def test_the_reason_of_an_incomplete_response_quotes_no_secret() -> None:
    response = {"id": "resp_1", "status": "incomplete", "incomplete_details": {"reason": "error hdrsecret777"}}
    parser = ResponseParser(OpenAIFailures(("hdrsecret777",)), Chain())
    events = parser.receive(json.dumps({"type": "response.incomplete", "response": response}).encode())
    assert events[-1] == CallCompleted("resp_1", finish="error ***")


LIMIT: Event = {"code": "rate_limit_exceeded", "message": "slow down"}
FAILED: Event = {"type": "response.failed", "response": {"id": "resp_1", "status": "failed", "error": LIMIT}}
ERROR: Event = {"type": "error", "error": LIMIT}


@pytest.mark.parametrize(
    ("continuation", "events", "kind"),
    [
        (InConversation("conv_1"), [CREATED, FAILED], "backend-failed"),
        (InConversation("conv_1"), [FAILED], "backend-failed"),
        (InConversation("conv_1"), [CREATED, ERROR], "backend-failed"),
        (InConversation("conv_1"), [ERROR], "rate-limited"),
        (Chain(None, keeps=True), [CREATED, FAILED], "rate-limited"),
        (Chain(None, keeps=True), [CREATED, ERROR], "rate-limited"),
    ],
)
def test_a_limit_that_ends_a_response_which_has_begun_leaves_it_in_the_conversation(
    continuation: Continuation, events: list[Event], kind: str
) -> None:
    reading = ResponseParser(OpenAIFailures(()), continuation)
    *before, last = (json.dumps(event).encode() for event in events)
    for event in before:
        reading.receive(event)
    with pytest.raises(AdapterError) as caught:
        reading.receive(last)
    assert caught.value.kind == kind


@pytest.mark.parametrize("event", [CREATED, COMPLETED])
@pytest.mark.parametrize("went_on_from", [None, "resp_of_somebody_else"])
def test_a_backend_that_continued_another_response_lost_the_chain(event: Event, went_on_from: str | None) -> None:
    event = event | {"response": event["response"] | {"previous_response_id": went_on_from}}
    with pytest.raises(AdapterError) as caught:
        read(event, COMPLETED, handle="resp_0")
    assert caught.value.kind is ErrorClass.HANDLE_NOT_FOUND


def test_a_response_may_lack_its_predecessor() -> None:
    said_so = CREATED | {"response": CREATED["response"] | {"previous_response_id": "resp_0"}}
    for created in (CREATED, said_so):
        assert read(created, COMPLETED, handle="resp_0")[-1] == CallCompleted("resp_1")


# --- text -------------------------------------------------------------------------------------------------------------


def test_the_type_may_stand_anywhere_and_the_same_text_comes_once() -> None:
    copies: list[Event] = [
        {"type": "response.output_text.done", "item_id": "msg_1", "text": "Hello"},
        {"type": "response.content_part.done", "item_id": "msg_1", "part": {"type": "output_text", "text": "Hello"}},
        {"item_id": "msg_1", "text": "Hello", "type": "response.output_text.done"},
    ]
    compact = [json.dumps(copy, separators=(",", ":")).encode() for copy in copies]
    last = {"delta": "lo", "item_id": "msg_1", "type": "response.output_text.delta"}
    events = between(delta("Hel"), last, *copies, *compact, whole("Hello"))
    assert events == [TextDelta("Hel"), TextDelta("lo"), MessageReady("Hello", "msg_1")]


def ends(text: str, key: str = "msg_1") -> MessageReady:
    return MessageReady(text, key)


def in_words(events: list[AdapterEvent]) -> list[str]:
    """Deltas as they are, and the end of each message as `id=text`."""
    words = []
    for event in events:
        assert isinstance(event, TextDelta | MessageReady)
        words.append(event.text if isinstance(event, TextDelta) else f"{event.key}={event.text}")
    return words


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param([whole("Hello")], ["Hello", "msg_1=Hello"], id="no deltas"),
        pytest.param([delta("Hel"), whole("Hello")], ["Hel", "lo", "msg_1=Hello"], id="the last delta lost"),
        pytest.param([delta("Hello"), whole("Goodbye")], ["Hello", "msg_1=Goodbye"], id="another text"),
        pytest.param([delta("Hello"), whole("Hel")], ["Hello", "msg_1=Hel"], id="less text"),
        pytest.param([delta("Hello"), whole("", content=None)], ["Hello", "msg_1=Hello"], id="an item without content"),
        pytest.param(
            [delta("Hello"), whole("Hello", id="msg_2")], ["Hello", "msg_1=Hello"], id="another id in the end"
        ),
        pytest.param([delta("a", item_id=None), whole("a", id=None)] * 2, ["a", "=a"] * 2, id="no ids"),
        pytest.param([delta(""), whole("")], [], id="nothing"),
        pytest.param(
            [delta("a", delta=7), delta("a", delta=None), whole("a")], ["a", "msg_1=a"], id="deltas that are no text"
        ),
        pytest.param([whole("", content=None)], [], id="no content"),
        pytest.param([delta("Hello")], ["Hello", "msg_1=Hello"], id="no item"),
        pytest.param(
            [added("message", id="msg_1"), {"type": "response.output_text.done", "item_id": "msg_1", "text": "Hello"}],
            ["Hello", "msg_1=Hello"],
            id="only the text of a part",
        ),
        pytest.param(
            [added("message", id="msg_1"), {"type": "response.refusal.done", "item_id": "msg_1", "refusal": "No."}],
            ["No.", "msg_1=No."],
            id="only the text of a refusal",
        ),
    ],
)
def test_the_finished_message_completes_its_deltas(stream: list[Event], expected: list[str]) -> None:
    assert in_words(between(*stream)) == expected


A, B = {"item_id": "msg_a"}, {"item_id": "msg_b"}


def at(index: int) -> Event:
    return {"output_index": index}


def begun(name: str, index: int, **fields: Any) -> Event:
    return added("message", id=name, **fields) | at(index)


BOTH = ["a1", "a2", "msg_a=a1a2", "b1b2", "msg_b=b1b2"]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param(
            [delta("a", **A), whole("a", id="msg_a"), delta("b", **B), whole("b", id="msg_b")],
            ["a", "msg_a=a", "b", "msg_b=b"],
            id="one after the other",
        ),
        pytest.param(
            [
                *(delta("a1", **A), delta("b1", **B), delta("a2", **A), delta("b2", **B)),
                *(whole("a1a2", id="msg_a"), whole("b1b2", id="msg_b")),
            ],
            BOTH,
            id="in turns",
        ),
        pytest.param(
            [
                *(delta("a1", **A), delta("b1", **B), delta("b2", **B), whole("b1b2", id="msg_b")),
                *(delta("a2", **A), whole("a1a2", id="msg_a")),
            ],
            ["a1", "a2", "msg_a=a1a2", "b1b2", "msg_b=b1b2"],
            id="the second ends first",
        ),
        pytest.param(
            [delta("a1", **A), delta("b1", **B), whole("a1", id="msg_a"), delta("b2", **B), whole("b1b2", id="msg_b")],
            ["a1", "msg_a=a1", "b1", "b2", "msg_b=b1b2"],
            id="the second goes on alone",
        ),
        pytest.param([delta("a1", **A), delta("b1", **B), delta("a2", **A), delta("b2", **B)], BOTH, id="no items"),
        pytest.param(
            [delta("a1", **A), whole("b", id="msg_b"), whole("a1", id="msg_a")],
            ["a1", "msg_a=a1", "b", "msg_b=b"],
            id="a whole one in the midst of the other",
        ),
        pytest.param(
            [
                added("message", id="m1") | {"output_index": 0},
                added("message", id="m2") | {"output_index": 1},
                delta("a1", item_id="x1", output_index=0),
                delta("b1", item_id="x2", output_index=1),
                delta("a2", item_id="x3", output_index=0),
                whole("a1a2", id="x4") | {"output_index": 0},
                whole("b1", id="x5") | {"output_index": 1},
            ],
            ["a1", "a2", "m1=a1a2", "b1", "m2=b1"],
            id="another id in every event",
        ),
        pytest.param(
            [
                *(begun("msg_a", 0), begun("msg_b", 1)),
                *(
                    delta("b1", **B) | at(1),
                    delta("a1", **A) | at(0),
                    delta("b2", **B) | at(1),
                    delta("a2", **A) | at(0),
                ),
                *(whole("b1b2", id="msg_b") | at(1), whole("a1a2", id="msg_a") | at(0)),
            ],
            BOTH,
            id="the second begins first",
        ),
        pytest.param(
            [
                *(begun("msg_a", 0), begun("msg_b", 1), whole("b1b2", id="msg_b") | at(1)),
                *(delta("a1", **A) | at(0), delta("a2", **A) | at(0), whole("a1a2", id="msg_a") | at(0)),
            ],
            ["a1", "a2", "msg_a=a1a2", "b1b2", "msg_b=b1b2"],
            id="the second comes whole before the first",
        ),
        pytest.param(
            [
                *(begun("msg_a", 0), delta("a", **A) | at(0), begun("msg_c", 2), delta("c", item_id="msg_c") | at(2)),
                *(begun("msg_b", 1), whole("a", id="msg_a") | at(0), delta("b", **B) | at(1)),
                *(whole("c", id="msg_c") | at(2), whole("b", id="msg_b") | at(1)),
            ],
            ["a", "msg_a=a", "b", "msg_b=b", "c", "msg_c=c"],
            id="the third begins before the second",
        ),
        pytest.param(
            [begun("msg_a", 0), begun("msg_b", 1), delta("b", **B) | at(1), whole("b", id="msg_b") | at(1)],
            ["b", "msg_b=b"],
            id="the first says nothing",
        ),
        pytest.param(
            [
                *(begun("msg_c", 0, phase="commentary"), begun("msg_b", 1)),
                *(delta("b", **B) | at(1), whole("b", id="msg_b") | at(1)),
            ],
            ["b", "msg_b=b"],
            id="before the answer a commentary that does not end",
        ),
    ],
)
def test_two_messages_are_told_one_after_the_other(stream: list[Event], expected: list[str]) -> None:
    assert in_words(between(*stream)) == expected


def test_a_call_between_two_messages_is_told_between_them() -> None:
    call = {"id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
    assert between(
        *(begun("msg_a", 0), delta("a", **A) | at(0), begun("msg_c", 2), delta("c", item_id="msg_c") | at(2)),
        *(added("function_call", **call) | at(1), done("function_call", **call) | at(1)),
        *(whole("c", id="msg_c") | at(2), whole("a", id="msg_a") | at(0)),
    ) == [
        *(TextDelta("a"), ends("a", "msg_a")),
        *(ToolCallAnnounced("call_1", "f"), ToolCallReady("call_1", "f", "{}", provider_id="fc_1")),
        *(TextDelta("c"), ends("c", "msg_c")),
    ]


def test_of_a_response_that_is_cut_off_all_that_came_is_told() -> None:
    parser = ResponseParser(OpenAIFailures(()), Chain())
    call = done("function_call", id="fc_1", call_id="call_1", name="f", arguments="{}")
    stream = (CREATED, delta("a1", **A), delta("b1", **B), call, delta("a2", **A), delta("b2", **B))
    told = [event for sent in stream for event in parser.receive(json.dumps(sent).encode())]
    assert told[1:] == [TextDelta("a1"), TextDelta("a2")]
    assert list(parser.rest()) == [
        *(ends("a1a2", "msg_a"), TextDelta("b1b2"), ends("b1b2", "msg_b")),
        ToolCallReady("call_1", "f", "{}", provider_id="fc_1"),
    ]
    assert parser.rest() == ()


def test_of_a_response_that_is_cut_off_in_its_only_message_nothing_waits() -> None:
    parser = ResponseParser(OpenAIFailures(()), Chain())
    for sent in (CREATED, delta("a1", **A)):
        parser.receive(json.dumps(sent).encode())
    assert parser.rest() == ()


def test_a_call_in_the_midst_of_a_message_waits_for_its_end() -> None:
    call = {"id": "fc_1", "call_id": "call_1", "name": "f"}
    assert between(
        delta("Let me "),
        added("function_call", **call),
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}"},
        done("function_call", arguments="{}", **call),
        {"type": "response.reasoning_summary_text.delta", "item_id": "rs_1", "delta": "hm"},
        delta("check."),
        whole("Let me check."),
    ) == [
        TextDelta("Let me "),
        TextDelta("check."),
        ends("Let me check."),
        ToolCallAnnounced("call_1", "f"),
        ToolCallArguments("call_1", "{}"),
        ToolCallReady("call_1", "f", "{}", provider_id="fc_1"),
        ReasoningDelta("hm"),
    ]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        pytest.param([whole("a"), whole("a")], ["a", "msg_1=a"], id="the item twice"),
        pytest.param([whole("a"), whole("b")], ["a", "msg_1=a", "msg_1=b"], id="the item twice, with another text"),
        pytest.param(
            [whole("a"), added("message", id="msg_1"), delta("a")], ["a", "msg_1=a"], id="all of it behind it"
        ),
        pytest.param(
            [added("message", id="msg_1"), delta("a"), added("message", id="msg_1"), whole("a")],
            ["a", "msg_1=a"],
            id="the beginning twice",
        ),
    ],
)
def test_a_message_that_comes_again_is_no_other_message(stream: list[Event], expected: list[str]) -> None:
    assert in_words(between(*stream)) == expected


def text_item(text: str, name: str | None) -> Event:
    return {"type": "message", "id": name, "content": [{"type": "output_text", "text": text}]}


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param([text_item("a", "msg_1")], [], id="what was streamed"),
        pytest.param([text_item("b", "msg_1")], ["msg_1=b"], id="another text"),
        pytest.param([text_item("b", "msg_9")], ["msg_1=b"], id="another text and another id"),
        pytest.param([text_item("a", "msg_1"), text_item("b", "msg_2")], ["b", "msg_2=b"], id="one more"),
        pytest.param([text_item("b", "msg_2"), text_item("a", "msg_1")], ["b", "msg_2=b"], id="one more before it"),
        pytest.param([text_item("a", None), text_item("b", None)], ["b", "=b"], id="one more without ids"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_the_finished_response_completes_what_was_streamed(output: list[Event], expected: list[str]) -> None:
    response = {"id": "resp_1", "status": "completed", "output": output}
    events = read(CREATED, delta("a"), whole("a"), {"type": "response.completed", "response": response})
    assert in_words(events[1:-1]) == ["a", "msg_1=a", *expected]


def test_items_of_the_finished_response_may_be_in_another_order() -> None:
    calls = [
        {"type": "function_call", "id": f"fc_{n}", "call_id": f"c_{n}", "name": "f", "arguments": "{}"} for n in (1, 2)
    ]
    items = [*calls, {"type": "reasoning", "id": "rs_1", "summary": []}, text_item("a", "msg_1")]
    streamed = [{"type": "response.output_item.done", "item": item} for item in items]
    response = {"id": "resp_1", "status": "completed", "output": items[::-1]}
    events = read(CREATED, *streamed, {"type": "response.completed", "response": response})
    assert events[1:-1] == between(*streamed)


@pytest.mark.parametrize(
    "middle",
    [
        [delta("Hel"), {"type": "response.in_progress", "response": {"id": "resp_1"}}, delta("lo"), whole("Hello")],
        [delta("Hello"), {"type": "response.in_progress", "response": {"id": "resp_1"}}, whole("Hello")],
        [delta("Hello"), whole("Hello"), {"type": "response.in_progress", "response": {"id": "resp_1"}}],
    ],
)
def test_a_response_that_is_in_progress_again_and_goes_on_loses_no_text(middle: list[Event]) -> None:
    events = between(added("message", id="msg_1") | {"output_index": 0}, *middle)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hello"
    assert events[-1] == ends("Hello")
    assert StartedOver() not in events


@pytest.mark.parametrize("place", [1, None])
def test_another_message_behind_a_second_in_progress_is_one_more(place: int | None) -> None:
    again = {"type": "response.in_progress", "response": {"id": "resp_1"}}
    second = [added("message", id="msg_2") | {"output_index": place}, whole("b", id="msg_2") | {"output_index": place}]
    events = between(added("message", id="msg_1") | {"output_index": 0}, whole("a"), again, *second)
    assert in_words(events) == ["a", "msg_1=a", "b", "msg_2=b"]


@pytest.mark.parametrize("name", ["msg_1", "msg_2"])
def test_a_response_that_sends_its_first_item_again_starts_over(name: str) -> None:
    again = {"type": "response.in_progress", "response": {"id": "resp_1"}}
    first = [added("message", id="msg_1") | {"output_index": 0}, delta("Hel")]
    anew = [added("message", id=name) | {"output_index": 0}, delta("Hello", item_id=name), whole("Hello", id=name)]
    assert between(*first, again, *anew) == [
        TextDelta("Hel"),
        StartedOver(),
        TextDelta("Hello"),
        ends("Hello", name),
    ]


def test_events_with_the_number_of_an_earlier_one_are_repeats_but_numbers_may_have_gaps_or_all_be_zero() -> None:
    one, two = delta("1", sequence_number=1), delta("2", sequence_number=5)
    assert in_words(between(one, one, two, one, delta("3"))) == ["1", "2", "3", "msg_1=123"]
    zero = delta("0", sequence_number=0)
    assert in_words(between(zero, zero)) == ["0", "0", "msg_1=00"]
    seven = delta("x", sequence_number="7")
    assert in_words(between(seven, seven)) == ["x", "x", "msg_1=xx"]


def test_different_events_of_one_number_are_no_repeats() -> None:
    events = [delta(text, sequence_number=3) for text in ("1", "2", "3")]
    assert in_words(between(*events)) == ["1", "2", "3", "msg_1=123"]


def test_a_repeated_event_is_a_repeat_behind_a_repeated_state_too() -> None:
    again = {"type": "response.in_progress", "response": {"id": "resp_1"}, "sequence_number": 2}
    end = done("function_call", id="fc_1", **CALL) | {"sequence_number": 3}
    assert between(end, again, end) == [READY]


def test_numbers_that_begin_anew_with_another_item_are_no_repeats() -> None:
    def numbered(name: str) -> list[Event]:
        pieces = [delta(text, item_id=name, sequence_number=number) for number, text in enumerate("ab", 2)]
        return [added("message", id=name) | {"sequence_number": 1}, *pieces, whole("ab", id=name)]

    assert in_words(between(*numbered("m1"), *numbered("m2"))) == ["a", "b", "m1=ab", "a", "b", "m2=ab"]


def test_the_end_of_a_response_counts_whatever_its_number(caplog: pytest.LogCaptureFixture) -> None:
    streamed = [delta("Hel", sequence_number=7), delta("lo", sequence_number=3)]
    response = {"id": "resp_1", "status": "completed", "output": [text_item("Hello", "msg_1")]}
    with caplog.at_level(logging.WARNING):
        events = read(CREATED, *streamed, {"type": "response.completed", "response": response, "sequence_number": 2})
    assert in_words(events[1:-1]) == ["Hel", "lo", "msg_1=Hello"]
    assert caplog.messages == [
        "a response has ended; 1 events had a sequence_number that did not rise, and were taken for repetitions"
    ]


def test_a_failure_tells_of_events_whose_numbers_did_not_rise() -> None:
    parser = ResponseParser(OpenAIFailures(()), Chain())
    for event in (CREATED, delta("Hel", sequence_number=7), delta("lo", sequence_number=3)):
        parser.receive(json.dumps(event).encode())
    told = "1 events had a sequence_number that did not rise"
    assert told in parser.cut().detail
    with pytest.raises(AdapterError, match=told):
        parser.receive(b"{")


def test_unknown_events_and_the_last_word_are_ignored() -> None:
    assert between({"type": "acme:ping", "item": {}}, {"type": "response.keepalive"}, {}, b"[DONE]") == []


def test_items_that_were_not_streamed_are_found_in_the_finished_response() -> None:
    output = [
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "1"},
        {"type": "message", "content": [{"type": "output_text", "text": "Hello"}]},
    ]
    assert read(
        CREATED, delta("Hel"), {"type": "response.completed", "response": {"id": "resp_1", "output": output}}
    ) == [
        CallStarted("resp_1"),
        TextDelta("Hel"),
        TextDelta("lo"),
        ends("Hello"),
        ItemReady(ReasoningItem("", {"type": "reasoning", "summary": []})),
        ToolCallReady("call_1", "f", "{}"),
        ToolResultReady("call_1", "1"),
        CallCompleted("resp_1"),
    ]


def test_a_commentary_that_says_so_only_in_its_end_keeps_no_message_waiting() -> None:
    events = between(
        *(begun("msg_a", 0), begun("msg_b", 1), delta("b1", **B) | at(1)),
        *(
            whole("hm", id="msg_a", phase="commentary") | at(0),
            delta("b2", **B) | at(1),
            whole("b1b2", id="msg_b") | at(1),
        ),
    )
    assert events[0] == Progress("hm")
    assert events[2:] == [TextDelta("b1"), TextDelta("b2"), ends("b1b2", "msg_b")]


def test_a_commentary_is_a_progress_line_and_no_answer() -> None:
    spoken = [{"type": "output_text", "text": "Looking."}]
    assert between(
        added("message", id="msg_1", phase="commentary"),
        delta("Looking."),
        done("message", id="msg_1", phase="commentary", content=spoken),
        added("message", id="msg_2", phase="final_answer"),
        delta("Found.", item_id="msg_2"),
        whole("Found.", id="msg_2", phase="final_answer"),
    ) == [
        Progress("Looking."),
        ItemReady(
            OpaqueItem("message", {"type": "message", "phase": "commentary", "content": spoken}), provider_id="msg_1"
        ),
        TextDelta("Found."),
        ends("Found.", "msg_2"),
    ]


# --- reasoning and other items ----------------------------------------------------------------------------------------


def test_reasoning_has_three_names_and_parts_of_a_summary_stand_apart() -> None:
    thought = {"item_id": "rs_1", "delta": "a"}
    summary = "response.reasoning_summary_text.delta"
    assert between(
        {"type": "response.reasoning.delta"} | thought,
        {"type": "response.reasoning_text.delta"} | thought,
        {"type": summary, "summary_index": 0} | thought,
        {"type": summary, "summary_index": 1} | thought,
        {"type": summary, "summary_index": 1} | thought,
        {"type": summary, "delta": ""},
    ) == [ReasoningDelta(text) for text in ("a", "a", "a", "\n\na", "a")]


def test_reasoning_is_remembered_as_it_came_without_ids_and_nulls() -> None:
    item = {
        "id": "rs_1",
        "response_id": "resp_1",
        "summary": [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
        "content": None,
        "encrypted_content": "gAAAA",
        "status": "completed",
    }
    kept = {name: item[name] for name in ("summary", "encrypted_content", "status")}
    assert between(done("reasoning", **item)) == [
        ItemReady(ReasoningItem("One.\n\nTwo.", {"type": "reasoning"} | kept), provider_id="rs_1")
    ]
    open_text = [{"type": "reasoning_text", "text": "All of it."}]
    assert between(done("reasoning", summary=[], content=open_text)) == [
        ItemReady(ReasoningItem("All of it.", {"type": "reasoning", "summary": [], "content": open_text}))
    ]


def test_items_of_unknown_types_are_kept_as_they_are() -> None:
    item = {"id": "x_1", "payload": {"id": 7, "deep": [None]}}
    assert between(added("acme:thing", id="x_1"), done("acme:thing", **item)) == [
        ItemReady(OpaqueItem("acme:thing", {"type": "acme:thing", "payload": {"id": 7, "deep": [None]}}), "x_1")
    ]


def test_a_compaction_is_a_boundary_and_goes_without_what_only_comes_out() -> None:
    item = {"id": "cmp_1", "encrypted_content": "gAAAAC", "created_by": "model"}
    assert between(added("compaction", id="cmp_1"), done("compaction", **item)) == [
        ItemReady(
            OpaqueItem("compaction", {"type": "compaction", "encrypted_content": "gAAAAC"}, boundary=True), "cmp_1"
        )
    ]


# --- questions for approval ---------------------------------------------------------------------------------------------


def question(**fields: Any) -> Event:
    given = {
        "id": "approval_c717",
        "name": "get_weather",
        "arguments": '{"city":"Oslo"}',
        "server_label": "wx",
    } | fields
    return done("mcp_approval_request", **given)


def test_a_question_for_approval_is_asked_with_the_id_that_its_answer_needs() -> None:
    """Source: a capture of OGX 1.5.0."""
    assert between(question(), question(), question(id="approval_2", arguments=None, server_label=None)) == [
        ApprovalAsked("approval_c717", "get_weather", '{"city":"Oslo"}', "wx", "approval_c717"),
        ApprovalAsked("approval_2", "get_weather", "", "", "approval_2"),
    ]


def test_a_question_in_the_finished_response_alone_is_asked_too() -> None:
    item = question()["item"]
    completed = {"id": "resp_1", "status": "completed", "output": [item]}
    assert read(CREATED, {"type": "response.completed", "response": completed})[1:-1] == between(question())


@pytest.mark.parametrize(
    "stream", [(question(id=None),), (question(name=None),), (question(), question(name="pay"))], ids=repr
)
def test_a_question_that_cannot_be_answered_breaks_the_contract(stream: tuple[Event, ...]) -> None:
    with pytest.raises(AdapterError, match="a question for approval") as caught:
        between(*stream)
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN


def test_a_tool_that_runs_after_a_yes_names_the_question() -> None:
    item = {"id": "mcp_1", "name": "pay", "arguments": "{}", "server_label": "bank", "approval_request_id": "mcpr_1"}
    ready = ToolCallReady("mcp_1", "pay", "{}", True, "mcp:bank", "mcp_1", question="mcpr_1")
    assert between(done("mcp_call", output="done", **item)) == [ready, ToolResultReady("mcp_1", "done")]
    running = [
        added("mcp_call", **item),
        {"type": "response.mcp_call_arguments.done", "item_id": "mcp_1", "arguments": "{}"},
    ]
    assert between(*running, done("mcp_call", output="done", **item)) == [
        ToolCallAnnounced("mcp_1", "pay", handled=True, server="mcp:bank"),
        ready,
        ToolResultReady("mcp_1", "done"),
    ]


# --- tool calls -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "name", "server", "arguments", "result"),
    [
        (
            {"type": "file_search_call", "queries": ["a"], "results": [{"score": 1}]},
            "file_search",
            "file_search",
            '{"queries":["a"]}',
            ToolResultReady("x_1", [{"score": 1}]),
        ),
        (
            {"type": "file_search_call", "queries": ["a"], "results": None, "status": "completed"},
            "file_search",
            "file_search",
            '{"queries":["a"]}',
            ToolResultReady("x_1", {"status": "completed"}),
        ),
        (
            {"type": "code_interpreter_call", "code": "1+1", "outputs": [{"type": "logs", "logs": "2"}]},
            "code_interpreter",
            "code_interpreter",
            '{"code":"1+1"}',
            ToolResultReady("x_1", [{"type": "logs", "logs": "2"}]),
        ),
        (
            {"type": "web_search_call", "action": None, "status": "failed"},
            "web_search",
            "web_search",
            "{}",
            ToolResultReady("x_1", {"status": "failed"}, error=True),
        ),
        (
            {"type": "mcp_call", "name": "f", "arguments": "{}", "output": None},
            "f",
            "mcp",
            "{}",
            ToolResultReady("x_1", ""),
        ),
        (
            {"type": "mcp_call", "name": "f", "arguments": "{}", "server_label": "wx", "error": "no"},
            "f",
            "mcp:wx",
            "{}",
            ToolResultReady("x_1", "no", error=True),
        ),
    ],
)
def test_tools_of_the_backend_have_outputs(
    item: Event, name: str, server: str, arguments: str, result: ToolResultReady
) -> None:
    assert between(done(id="x_1", kind=item["type"], **{key: item[key] for key in item if key != "type"})) == [
        ToolCallReady("x_1", name, arguments, True, server, "x_1"),
        result,
    ]


def test_a_picture_may_have_another_format() -> None:
    picture = done("image_generation_call", id="ig_1", result="aGk=", output_format="webp", revised_prompt="a cat")
    assert between(picture) == [
        ToolCallReady("ig_1", "image_generation", '{"prompt":"a cat"}', True, "image_generation", "ig_1"),
        ToolResultReady("ig_1", {"status": "completed"}),
        PartReady(Part(raw="aGk=", media_type="image/webp")),
    ]


def test_calls_with_one_index_keep_apart_by_their_ids() -> None:
    def arguments(item: str, text: str) -> Event:
        return {
            "type": "response.function_call_arguments.delta",
            "item_id": item,
            "output_index": 0,
            "delta": text,
        }

    assert between(
        added("function_call", id="fc_1", call_id="call_1", name="f"),
        added("function_call", id="fc_2", call_id="call_2", name="g"),
        arguments("fc_2", "2"),
        arguments("fc_1", "1"),
        arguments("fc_1", ""),
        done("function_call", id="fc_1", call_id="call_1", name="f", arguments="1"),
        done("function_call", id="fc_2", call_id="call_2", name="g", arguments="2"),
    ) == [
        ToolCallAnnounced("call_1", "f"),
        ToolCallAnnounced("call_2", "g"),
        ToolCallArguments("call_2", "2"),
        ToolCallArguments("call_1", "1"),
        ToolCallReady("call_1", "f", "1", provider_id="fc_1"),
        ToolCallReady("call_2", "g", "2", provider_id="fc_2"),
    ]


CALL = {"call_id": "call_1", "name": "f", "arguments": "{}"}
READY = ToolCallReady("call_1", "f", "{}", provider_id="fc_1")


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize(
    "again",
    [
        pytest.param([done("function_call", id="fc_1", **CALL)], id="the item done twice"),
        pytest.param([added("function_call", id="fc_1", **CALL)], id="the item added behind its end"),
        pytest.param([done("function_call", id="fc_2", **CALL)], id="another item"),
        pytest.param([done("function_call", **CALL)], id="an item without id"),
        pytest.param(
            [
                added("function_call", id="fc_2", **CALL | {"arguments": ""}),
                {"type": "response.function_call_arguments.delta", "item_id": "fc_2", "delta": "{}"},
                done("function_call", id="fc_2", **CALL),
            ],
            id="another item in pieces",
        ),
    ],
)
def test_a_call_that_is_reported_again_is_no_other_call(again: list[Event], keeps: bool) -> None:
    response = {"id": "resp_1", "status": "completed", "output": [{"type": "function_call", "id": "fc_1", **CALL}]}
    completed = {"type": "response.completed", "response": response}
    events = read(CREATED, done("function_call", id="fc_1", **CALL), *again, completed, keeps=keeps)
    assert events[1:-1] == [READY]


def test_a_call_that_ends_under_another_item_id_is_the_same_call() -> None:
    begun = added("function_call", id="fc_0", **CALL | {"arguments": ""})
    assert between(begun, done("function_call", id="fc_1", **CALL)) == [ToolCallAnnounced("call_1", "f"), READY]


def test_a_call_that_gets_its_id_only_with_its_end_is_told_then() -> None:
    begun = added("function_call", id="fc_1", **CALL | {"arguments": "", "call_id": None})
    piece = {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}"}
    assert between(begun, piece, done("function_call", id="fc_1", **CALL)) == [READY]


def test_arguments_of_the_backends_call_that_end_twice_end_once() -> None:
    item = {"id": "mcp_1", "name": "f", "server_label": "wx"}
    ends = {"type": "response.mcp_call_arguments.done", "item_id": "mcp_1", "arguments": "{}"}
    assert between(added("mcp_call", **item), ends, ends, done("mcp_call", arguments="{}", output="3C", **item)) == [
        ToolCallAnnounced("mcp_1", "f", handled=True, server="mcp:wx"),
        ToolCallReady("mcp_1", "f", "{}", True, "mcp:wx", "mcp_1"),
        ToolResultReady("mcp_1", "3C"),
    ]


def test_a_response_in_progress_again_behind_the_beginning_of_a_call_loses_no_call() -> None:
    again = {"type": "response.in_progress", "response": {"id": "resp_1"}}
    begun = added("function_call", id="fc_1", **CALL | {"arguments": ""})
    assert between(begun, again, done("function_call", id="fc_1", **CALL)) == [ToolCallAnnounced("call_1", "f"), READY]


OTHER = CALL | {"arguments": '{"x":1}'}


TWO_OF_ONE_ID = [
    pytest.param([done("function_call", id="fc_1", **CALL), done("function_call", id="fc_2", **OTHER)], id="arguments"),
    pytest.param([done("function_call", **CALL), done("function_call", **CALL | {"name": "g"})], id="tools"),
    pytest.param(
        [finished({"type": "function_call", "id": "fc_1", **CALL}, {"type": "function_call", "id": "fc_2", **OTHER})],
        id="in the finished response",
    ),
]


@pytest.mark.parametrize("stream", TWO_OF_ONE_ID)
def test_two_calls_of_one_id_break_the_contract_of_a_chain_which_takes_one_output(stream: list[Event]) -> None:
    with pytest.raises(AdapterError, match="two calls of a response have one id") as caught:
        read(CREATED, *stream)
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN


@pytest.mark.parametrize(
    "again",
    [
        pytest.param([done("function_call", id="fc_2", **OTHER | {"arguments": '{ "x": 1 }'}), COMPLETED], id="spaces"),
        pytest.param([finished({"type": "function_call", "id": "fc_2", **OTHER | {"arguments": '{"x":1'}})], id="cut"),
    ],
)
def test_a_call_whose_arguments_are_written_otherwise_later_is_the_same_call(again: list[Event]) -> None:
    events = read(CREATED, done("function_call", id="fc_1", **OTHER), *again)
    assert [event for event in events if isinstance(event, ToolCallReady)] == [
        ToolCallReady("call_1", "f", '{"x":1}', provider_id="fc_1")
    ]


SECOND = OTHER | {"call_id": "call_2"}
READY_2 = ToolCallReady("call_2", "f", '{"x":1}', provider_id="fc_1")


@pytest.mark.parametrize("keeps", [True, False], ids=["on a chain", "of a stateless service"])
def test_two_calls_whose_items_have_one_id_are_two(keeps: bool) -> None:
    first, second = done("function_call", id="fc_1", **CALL), done("function_call", id="fc_1", **SECOND)
    end = finished(*[{"type": "function_call", "id": "fc_1", **call} for call in (CALL, SECOND)])
    events = read(CREATED, first, second, first, second, end, keeps=keeps)
    assert events[1:-1] == [READY, READY_2]


@pytest.mark.parametrize("keeps", [True, False], ids=["on a chain", "of a stateless service"])
def test_a_call_whose_end_changes_its_id_is_one_call(keeps: bool) -> None:
    begun = added("function_call", id="fc_1", **CALL | {"arguments": ""})
    end = finished({"type": "function_call", "id": "fc_1", **CALL, "call_id": "call_9"})
    ended = done("function_call", id="fc_1", **CALL | {"call_id": "call_9"})
    assert read(CREATED, begun, ended, ended, end, keeps=keeps)[1:-1] == [ToolCallAnnounced("call_1", "f"), READY]


@pytest.mark.parametrize("stream", ["with its end", "in the finished response"])
def test_the_arguments_of_a_call_may_be_an_object(stream: str) -> None:
    call = {"id": "fc_1", **CALL, "arguments": {"x": 1}}
    told = [done("function_call", **call), COMPLETED]
    if stream == "in the finished response":
        told = [finished({"type": "function_call", **call})]
    assert read(CREATED, *told)[1:-1] == [ToolCallReady("call_1", "f", '{"x":1}', provider_id="fc_1")]


RENAMED = {"type": "function_call", "id": "fc_1", **CALL, "call_id": "call_9"}


@pytest.mark.parametrize("keeps", [True, False], ids=["on a chain", "of a stateless service"])
@pytest.mark.parametrize("item", ["fc_1", "fc_9"], ids=["in its item", "with that of its item"])
def test_a_call_whose_id_changes_in_the_finished_response_is_one_call(item: str, keeps: bool) -> None:
    told, end = done("function_call", id="fc_1", **CALL), finished(RENAMED | {"id": item})
    assert read(CREATED, told, end, keeps=keeps)[1:-1] == [READY]


@pytest.mark.parametrize("keeps", [True, False], ids=["on a chain", "of a stateless service"])
def test_a_call_that_is_reported_again_under_another_id_is_one_call(keeps: bool) -> None:
    again = done("function_call", id="fc_1", **CALL | {"call_id": "call_9"})
    for index in ({}, {"output_index": 1}):
        told = [done("function_call", id="fc_1", **CALL) | index, again | index, finished(RENAMED)]
        assert read(CREATED, *told, keeps=keeps)[1:-1] == [READY]


@pytest.mark.parametrize("keeps", [True, False], ids=["on a chain", "of a stateless service"])
@pytest.mark.parametrize("indexes", [(0, 1), (0, 0), (None, None)], ids=["two places", "one place", "no place"])
def test_two_equal_calls_whose_items_have_one_id_are_two(indexes: tuple[int | None, int | None], keeps: bool) -> None:
    calls = [CALL, CALL | {"call_id": "call_2"}]
    told = [
        done("function_call", id="fc_1", **call) | {"output_index": at} for call, at in zip(calls, indexes, strict=True)
    ]
    end = finished(*[{"type": "function_call", "id": "fc_1", **call} for call in calls])
    second = ToolCallReady("call_2", "f", "{}", provider_id="fc_1")
    assert read(CREATED, *told, end, keeps=keeps)[1:-1] == [READY, second]


@pytest.mark.parametrize(
    "stream",
    [
        [done("function_call", id="fc_1", **CALL), finished(RENAMED)],
        [done("function_call", id="fc_1", **CALL), finished(RENAMED | {"id": "fc_9"})],
        [
            added("function_call", id="fc_1", **CALL | {"arguments": ""}),
            done("function_call", id="fc_1", **CALL | {"call_id": "call_9"}),
            COMPLETED,
        ],
    ],
    ids=["in the finished response", "with that of its item", "with its end"],
)
def test_the_output_of_a_call_goes_out_under_the_id_that_the_backend_gave_it_last(stream: list[Event]) -> None:
    state = read(CREATED, *stream)[-1].state  # type: ignore[union-attr]
    output = OutputItem("call_1", "3C")
    assert encode_input([output], state) == [{"type": "function_call_output", "call_id": "call_9", "output": "3C"}]
    assert answered_calls([output], state).keys() == {"call_9"}
    again = done("function_call", id="fc_5", **CALL | {"call_id": "call_9"})
    events = read(CREATED, whole("Well."), again, COMPLETED, answered=answered_calls([output], state))
    assert events[1:-1] == [TextDelta("Well."), ends("Well.")]


def test_two_calls_whose_items_have_one_id_are_two_where_their_beginnings_are_told() -> None:
    stream = [added("function_call", id="fc_1", **CALL | {"arguments": ""}), done("function_call", id="fc_1", **CALL)]
    stream += [
        added("function_call", id="fc_1", **SECOND | {"arguments": ""}),
        done("function_call", id="fc_1", **SECOND),
    ]
    assert between(*stream) == [
        ToolCallAnnounced("call_1", "f"),
        READY,
        ToolCallAnnounced("call_2", "f"),
        READY_2,
    ]


def test_where_the_gateway_sends_the_calls_an_id_that_comes_again_or_not_at_all_is_made_unique() -> None:
    nameless = {"name": "f", "arguments": "{}"}
    events = read(
        CREATED,
        done("function_call", id="fc_1", **CALL),
        done("function_call", id="fc_2", **OTHER),
        done("function_call", **nameless),
        done("function_call", **nameless),
        COMPLETED,
        keeps=False,
    )
    assert events[1:-1] == [
        READY,
        ToolCallReady("call_1_1", "f", '{"x":1}', provider_id="fc_2"),
        ToolCallReady("call_2", "f", "{}"),
        ToolCallReady("call_3", "f", "{}"),
    ]


@pytest.mark.parametrize("call_id", [None, ""], ids=["no call_id", "an empty call_id"])
@pytest.mark.parametrize("name", [None, "fc_1"], ids=["no id", "the id of the item alone"])
@pytest.mark.parametrize("in_end", [False, True], ids=["streamed alone", "in the finished response too"])
def test_a_call_without_an_id_on_a_chain_breaks_the_contract(
    name: str | None, call_id: str | None, in_end: bool
) -> None:
    nameless: Event = {"id": name, **CALL, "call_id": call_id}
    end = finished(*[{"type": "function_call", **nameless}] * in_end)
    stream = [added("function_call", **nameless | {"arguments": ""}), done("function_call", **nameless), end]
    with pytest.raises(AdapterError, match="has no id") as caught:
        read(CREATED, *stream)
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN


@pytest.mark.parametrize("call_id", [None, ""], ids=["no call_id", "an empty call_id"])
@pytest.mark.parametrize("name", ["fc_1", None], ids=["an item with an id", "an item without id"])
@pytest.mark.parametrize("end", ["fc_1", "fc_9"], ids=["the same id", "another id"])
def test_a_call_that_gets_its_id_only_in_the_finished_response_is_told_then(
    name: str | None, call_id: str | None, end: str
) -> None:
    nameless: Event = {"id": name, **CALL, "call_id": call_id}
    stream = [added("function_call", **nameless | {"arguments": ""}), done("function_call", **nameless), whole("Well.")]
    stream += [done("function_call", **nameless)] * (name is not None)
    events = read(CREATED, *stream, finished({"type": "function_call", "id": end, **CALL}))
    ready = ToolCallReady("call_1", "f", "{}", provider_id=end)
    assert events[1:-1] == [TextDelta("Well."), ends("Well."), ready]


def test_a_call_that_ends_without_the_id_it_began_with_keeps_that() -> None:
    begun = added("function_call", id="fc_1", **CALL | {"arguments": ""})
    end = done("function_call", id="fc_1", **CALL | {"call_id": None})
    assert between(begun, end) == [ToolCallAnnounced("call_1", "f"), READY]


EARLIER: Event = {"type": "function_call", "id": "fc_1", **CALL}
CALL_2: Event = {"type": "function_call", "id": "fc_2", **CALL, "call_id": "call_2"}
EARLIER_AGAIN: dict[str, list[Event]] = {
    "its end": [done("function_call", id="fc_1", **CALL), COMPLETED],
    "all of it": [
        added("function_call", id="fc_1", **CALL | {"arguments": ""}),
        {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": "{}"},
        done("function_call", id="fc_1", **CALL),
        COMPLETED,
    ],
    "in the finished response": [finished(EARLIER, CALL_2)],
    "streamed, and in the finished response": [done("function_call", id="fc_1", **CALL), finished(EARLIER, CALL_2)],
}


@pytest.mark.parametrize("again", EARLIER_AGAIN.values(), ids=EARLIER_AGAIN.keys())
def test_on_a_chain_a_call_whose_output_the_response_was_given_is_not_told_again(
    again: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    other = {"type": "response.output_item.done", "item": CALL_2}
    with caplog.at_level(logging.WARNING):
        events = read(CREATED, other, *again, answered={"call_1": None})
    assert events[1:-1] == [ToolCallReady("call_2", "f", "{}", provider_id="fc_2")]
    assert caplog.messages == ["a response reports a call again whose output it was given; the call is not run again"]


@pytest.mark.parametrize("beside", [[], [done("reasoning", id="rs_1", summary=[])]], ids=["nothing", "thoughts"])
@pytest.mark.parametrize(
    "again",
    [
        pytest.param([done("function_call", id="fc_1", **CALL), COMPLETED], id="streamed"),
        pytest.param([finished(EARLIER)], id="in the finished response"),
    ],
)
def test_a_response_with_nothing_but_a_call_that_was_answered_is_no_answer(
    again: list[Event], beside: list[Event]
) -> None:
    """The backend waits for an output of the call, and would take no other message."""
    with pytest.raises(AdapterError, match="nothing but") as caught:
        read(CREATED, *beside, *again, answered={"call_1": None})
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN


def test_a_text_beside_a_call_that_was_answered_is_an_answer() -> None:
    events = read(
        CREATED, whole("Well."), done("function_call", id="fc_1", **CALL), COMPLETED, answered={"call_1": None}
    )
    assert events[1:-1] == [TextDelta("Well."), ends("Well.")]


def waiting_calls(*stream: Event) -> dict[str, str | None]:
    """What the state of a response to these events has of its calls."""
    last = read(CREATED, *stream, COMPLETED)[-1]
    assert isinstance(last, CallCompleted)
    assert isinstance(last.state, dict)
    return dict(last.state["waiting_calls"])


def test_on_a_chain_the_id_of_an_answered_call_with_other_arguments_is_a_new_call() -> None:
    """A server may count its calls anew in each response."""
    answered = waiting_calls(done("function_call", id="fc_1", **CALL))
    events = read(CREATED, done("function_call", id="fc_9", **OTHER), COMPLETED, answered=answered)
    assert events[1:-1] == [ToolCallReady("call_1", "f", '{"x":1}', provider_id="fc_9")]


def test_on_a_chain_the_id_of_an_answered_call_of_another_tool_is_a_new_call() -> None:
    answered = waiting_calls(done("function_call", id="fc_1", **CALL))
    events = read(CREATED, done("function_call", id="fc_9", **CALL | {"name": "g"}), COMPLETED, answered=answered)
    assert events[1:-1] == [ToolCallReady("call_1", "g", "{}", provider_id="fc_9")]


def test_on_a_chain_an_answered_call_that_comes_again_under_another_item_id_is_no_other_call() -> None:
    answered = waiting_calls(done("function_call", id="fc_1", **CALL))
    again = done("function_call", id="fc_9", **CALL)
    assert read(CREATED, whole("Well."), again, COMPLETED, answered=answered)[1:-1] == [
        TextDelta("Well."),
        ends("Well."),
    ]


def test_a_call_that_its_backend_answers_waits_for_nothing() -> None:
    output = done("function_call_output", id="fco_1", call_id="call_1", output="3C")
    assert read(CREATED, done("function_call", id="fc_1", **CALL), output, COMPLETED)[-1] == CallCompleted("resp_1")


def test_two_calls_without_ids_are_not_one_that_gets_its_id_later() -> None:
    nameless = [done("function_call", id=name, **CALL | {"call_id": None}) for name in ("fc_1", "fc_2")]
    with pytest.raises(AdapterError, match="has no id"):
        read(CREATED, *nameless, finished(CALL_2))


def test_where_the_gateway_sends_the_calls_an_id_of_an_earlier_response_is_a_new_call() -> None:
    events = read(CREATED, done("function_call", id="fc_1", **CALL), COMPLETED, keeps=False, answered={"call_1": None})
    assert events[1:-1] == [READY]


def test_a_call_of_the_backend_that_is_reported_again_is_no_other_call() -> None:
    item = {"id": "mcp_1", "name": "f", "arguments": "{}", "server_label": "wx", "output": "3C"}
    ready = ToolCallReady("mcp_1", "f", "{}", True, "mcp:wx", "mcp_1")
    twice = [done("mcp_call", **item), added("mcp_call", **item), done("mcp_call", **item)]
    assert between(*twice) == [ready, ToolResultReady("mcp_1", "3C")]


def test_a_custom_tool_takes_any_text() -> None:
    assert between(
        added("custom_tool_call", id="ctc_1", call_id="call_1", name="sql"),
        {"type": "response.custom_tool_call_input.delta", "item_id": "ctc_1", "delta": "select 1"},
        done("custom_tool_call", id="ctc_1", call_id="call_1", name="sql", input="select 1"),
    ) == [
        ToolCallAnnounced("call_1", "sql"),
        ToolCallArguments("call_1", "select 1"),
        ToolCallReady("call_1", "sql", "select 1", provider_id="ctc_1"),
    ]


@pytest.mark.parametrize("order", ["call first", "output first"])
def test_a_backend_may_answer_a_function_call_itself(order: str) -> None:
    call = done("function_call", id="fc_1", call_id="call_1", name="f", arguments="{}")
    output = done("function_call_output", id="fco_1", call_id="call_1", output="3C")
    stream = [call, whole("Well."), output] if order == "call first" else [output, whole("Well."), call]
    ready = ToolCallReady("call_1", "f", "{}", provider_id="fc_1")
    result, well = ToolResultReady("call_1", "3C"), [TextDelta("Well."), ends("Well.")]
    assert between(*stream) == ([ready, *well, result] if order == "call first" else [*well, ready, result])


def test_outputs_of_no_call_come_last_and_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    call = done("function_call", id="fc_1", call_id="call_1", name="f", arguments="{}")
    outputs = [done("function_call_output", call_id=name, output="3C") for name in ("call_1", "call_1", "call_2", None)]
    with caplog.at_level(logging.WARNING):
        assert between(*outputs, call, whole("Well.")) == [
            ToolCallReady("call_1", "f", "{}", provider_id="fc_1"),
            ToolResultReady("call_1", "3C"),
            TextDelta("Well."),
            ends("Well."),
            ToolResultReady("call_1_1", "3C"),
            ToolResultReady("call_2", "3C"),
            ToolResultReady("call_3", "3C"),
        ]
    assert caplog.messages == ["a tool output belongs to no call of its response"] * 3


@pytest.mark.parametrize("end", ["completed", "incomplete"])
def test_a_call_whose_end_is_in_the_finished_response_alone_is_open_all_the_same(end: str) -> None:
    """The chain refuses everything without an output of it."""
    call = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": '{"x', "status": end}
    response = {"id": "resp_1", "status": end, "output": [{"type": "message", "id": "msg_1", "content": []}, call]}
    delta_of_it = {"type": "response.function_call_arguments.delta", "item_id": "fc_1", "delta": '{"x'}
    stream = [whole(""), added("function_call", **call | {"arguments": ""}), delta_of_it]
    *events, _ = read(CREATED, *stream, {"type": f"response.{end}", "response": response})
    assert events[1:] == [
        ToolCallAnnounced("call_1", "f"),
        ToolCallArguments("call_1", '{"x'),
        ToolCallReady("call_1", "f", '{"x', provider_id="fc_1"),
    ]


@pytest.mark.parametrize(("status", "finish"), [("completed", None), ("incomplete", "incomplete")])
def test_an_answer_with_a_call_that_is_not_whole_is_not_whole(status: str, finish: str | None) -> None:
    *events, end = read(CREATED, done("function_call", id="fc_1", **CALL | {"status": status}), COMPLETED)
    assert events[1:] == [READY]
    assert isinstance(end, CallCompleted)
    assert end.finish == finish


# --- consent at a third party


LINK = "https://logic.consent.example/login?data=x"


def consent_item(**fields: Any) -> Event:
    """As Microsoft's documentation shows it, and its hosting library sends it."""
    return {"id": "oauthreq_1", "type": "oauth_consent_request", "consent_link": LINK} | fields


def test_a_repeated_request_for_consent_gives_one_event() -> None:
    item = consent_item(server_label="mail", created_by={}, response_id="caresp_1", agent_reference=None)
    assert between(
        {"type": "response.output_item.added", "item": item},
        {"type": "response.oauth_consent_requested", "id": "oauthreq_1", "consent_link": LINK},
        {"type": "response.output_item.done", "item": item},
    ) == [ConsentAsked(LINK, "mcp:mail")]


def test_a_request_for_consent_may_be_announced_and_never_done() -> None:
    assert between({"type": "response.output_item.added", "item": consent_item()}) == [ConsentAsked(LINK)]


def test_a_request_for_consent_may_get_its_link_only_when_it_is_done() -> None:
    assert between(
        added("oauth_consent_request", id="a"), done("oauth_consent_request", id="a", consent_link=LINK)
    ) == [ConsentAsked(LINK)]


def test_a_response_that_waits_for_consent_is_incomplete_for_no_reason_of_its_own() -> None:
    def closed(**fields: Any) -> Event:
        response = {"id": "resp_1", "status": "incomplete", "incomplete_details": None} | fields
        return {"type": "response.incomplete", "response": response}

    item = {"type": "response.output_item.done", "item": consent_item()}
    assert read(CREATED, item, closed())[-1] == CallCompleted("resp_1")
    assert read(CREATED, closed(output=[consent_item()]))[1:] == [ConsentAsked(LINK), CallCompleted("resp_1")]
    limited = closed(incomplete_details={"reason": "max_output_tokens"})
    assert read(CREATED, item, limited)[-1] == CallCompleted("resp_1", finish="max_output_tokens")


def test_a_request_for_consent_without_a_link_breaks_the_contract() -> None:
    with pytest.raises(AdapterError, match="without a link"):
        read(CREATED, done("oauth_consent_request", id="a"), COMPLETED)


def test_a_request_for_consent_is_given_again_after_a_new_start() -> None:
    item = {"type": "response.output_item.done", "item": consent_item()}
    again = {"type": "response.in_progress", "response": {"id": "resp_1"}}
    assert [type(event).__name__ for event in between(item, again, item)] == [
        "ConsentAsked",
        "StartedOver",
        "ConsentAsked",
    ]


# --- whatever is interleaved, repeated or lost


def message_events(name: str, index: int, pieces: list[str], lost: int) -> list[Event]:
    """The events of one message; the delta with the number `lost` does not come."""
    place = {"output_index": index}
    deltas = [delta(text, item_id=name) | place for number, text in enumerate(pieces) if number != lost]
    return [added("message", id=name) | place, *deltas, whole("".join(pieces), id=name) | place]


def call_events(name: str, index: int, pieces: list[str], lost: int) -> list[Event]:
    place = {"output_index": index}
    call = {"id": name, "call_id": f"call_{name}", "name": "f"}
    piece = {"type": "response.function_call_arguments.delta", "item_id": name} | place
    deltas = [piece | {"delta": text} for number, text in enumerate(pieces) if number != lost]
    return [added("function_call", **call) | place, *deltas, done("function_call", arguments="".join(pieces), **call)]


PIECES = some.lists(some.sampled_from(["a", "b", " "]), min_size=1, max_size=4)


@given(data=some.data())
def test_whatever_is_interleaved_repeated_or_lost_every_text_and_every_call_comes_once(data: some.DataObject) -> None:
    texts = data.draw(some.lists(PIECES, max_size=3))
    calls = data.draw(some.lists(PIECES, max_size=2))
    made = [(message_events, f"m{n}", pieces) for n, pieces in enumerate(texts)]
    made += [(call_events, f"c{n}", pieces) for n, pieces in enumerate(calls)]
    queues = [
        make(name, index, pieces, data.draw(some.integers(0, 5))) for index, (make, name, pieces) in enumerate(made)
    ]
    output = [queue[-1]["item"] for queue in queues]
    stream: list[Event] = []
    while queues := [queue for queue in queues if queue]:
        stream.append(data.draw(some.sampled_from(queues)).pop(0))
        if data.draw(some.booleans()):
            stream.append({"type": "response.in_progress", "response": {"id": "resp_1"}})
    stream = [event | {"sequence_number": number} for number, event in enumerate(stream, 1)]
    for event in data.draw(some.lists(some.sampled_from(stream), max_size=3)) if stream else ():
        stream.insert(data.draw(some.integers(stream.index(event) + 1, len(stream))), event)
    response = {"id": "resp_1", "status": "completed", "output": data.draw(some.permutations(output))}
    events = read(CREATED, *stream, {"type": "response.completed", "response": response})

    told, growing = dict[str, str](), ""
    for said in events:
        match said:
            case TextDelta(text=text):
                growing += text
            case MessageReady(text=text, key=key):
                assert key not in told
                told[key], growing = text, ""
    assert (told, growing) == ({f"m{n}": "".join(pieces) for n, pieces in enumerate(texts)}, "")
    ready = [(call.call_id, call.arguments) for call in events if isinstance(call, ToolCallReady)]
    assert sorted(ready) == [(f"call_c{n}", "".join(pieces)) for n, pieces in enumerate(calls)]
    assert StartedOver() not in events


@given(data=some.data())
def test_wherever_a_response_is_cut_off_every_text_that_came_is_told_once(data: some.DataObject) -> None:
    texts = data.draw(some.lists(PIECES, max_size=3))
    queues = [message_events(f"m{n}", n, pieces, -1) for n, pieces in enumerate(texts)]
    queues.append(call_events("c", len(texts), ["a", "b"], -1))
    stream: list[Event] = []
    while queues := [queue for queue in queues if queue]:
        stream.append(data.draw(some.sampled_from(queues)).pop(0))
    came = stream[: data.draw(some.integers(0, len(stream)))]
    parser = ResponseParser(OpenAIFailures(()), Chain())
    events = [event for sent in (CREATED, *came) for event in parser.receive(json.dumps(sent).encode())]
    events += parser.rest()

    told, growing = list[str](), ""
    for said in events:
        match said:
            case TextDelta(text=text):
                growing += text
            case MessageReady(text=text):
                assert text == growing
                told.append(text)
                growing = ""
    pieces = {f"m{n}": [event["delta"] for event in came if event.get("item_id") == f"m{n}"] for n in range(len(texts))}
    expected = ["".join(parts) for parts in pieces.values() if parts]
    assert sorted([*told, *filter(None, [growing])]) == sorted(expected)
