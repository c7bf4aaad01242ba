"""The events of runs, as langgraph-api 0.16.7 sends them, and those that it may send."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from adapters.http.named_events import NamedEventReader, ServerEvent
from adapters.langgraph.failures import LangGraphFailures
from adapters.langgraph.stream import RunParser
from adapters.langgraph.turn import Turn
from gateway.a2a.model import Part
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    ApprovalAsked,
    CallCompleted,
    Ending,
    ErrorClass,
    MessageReady,
    PartReady,
    Progress,
    ReasoningDelta,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.testing.adapter_scripts import completed, of_type

CAPTURE = (
    b'event: metadata\r\ndata: {"run_id":"01a1f883-2025-742e-b9a1-e2d0239273f5","attempt":1}\r\n'
    b"id: 1795170706170-0\r\n\r\n"
    b": heartbeat\r\n\r\n"
    b'event: messages\r\ndata: [{"content":"","additional_kwargs":{},"response_metadata":{},"type":"ai","name":null,'
    b'"id":"156169a2","tool_calls":[{"name":"get_weather","args":{"city":"Oslo"},"id":"call_1","type":"tool_call"}],'
    b'"invalid_tool_calls":[],"usage_metadata":null},{"thread_id":"01a1f883-1f76","langgraph_node":"agent",'
    b'"langgraph_checkpoint_ns":"agent:1"}]\r\nid: 1795170706189-0\r\n\r\n'
    b'event: updates\r\ndata: {"agent":{"messages":[{"content":"","type":"ai","id":"156169a2","tool_calls":'
    b'[{"name":"get_weather","args":{"city":"Oslo"},"id":"call_1","type":"tool_call"}]}]}}\r\n'
    b"id: 1795170706189-0\r\n\r\n"
    b'event: messages\r\ndata: [{"content":"3C","type":"tool","name":"get_weather","id":"t1","tool_call_id":"call_1",'
    b'"status":"success"},{"langgraph_node":"tools"}]\r\nid: 1795170706190-0\r\n\r\n'
    b'event: messages\r\ndata: [{"content":"done: ","type":"AIMessageChunk","id":"run-2","tool_call_chunks":[]},'
    b'{"langgraph_checkpoint_ns":"agent:2"}]\r\nid: 1795170706191-0\r\n\r\n'
    b'event: messages\r\ndata: [{"content":"3C","type":"AIMessageChunk","id":"run-2","tool_call_chunks":[]},'
    b'{"langgraph_checkpoint_ns":"agent:2"}]\r\nid: 1795170706191-0\r\n\r\n'
    b'event: updates\r\ndata: {"agent":{"messages":[{"content":"done: 3C","type":"ai","id":"run-2","tool_calls":[]}]}}'
    b"\r\nid: 1795170706192-0\r\n\r\n"
)


def parser(*, approvals: bool = True, turn: Turn | None = None) -> RunParser:
    made = RunParser(LangGraphFailures(()), "messages", approvals=approvals, turn=turn or Turn(None))
    made.begin("run-1")
    return made


def event(name: str, data: Any) -> ServerEvent:
    return ServerEvent(name, "1-0", json.dumps(data).encode())


def chunk(text: Any, name: str = "m1", place: str = "model:1", **fields: Any) -> ServerEvent:
    return event(
        "messages",
        [{"type": "AIMessageChunk", "content": text, "id": name} | fields, {"langgraph_checkpoint_ns": place}],
    )


def ended(name: str = "m1", place: str = "model:1", **fields: Any) -> ServerEvent:
    return chunk("", name, place, chunk_position="last", **fields)


def piece(arguments: str, *, index: int = 0, call_id: str | None = None, name: str | None = None) -> ServerEvent:
    part = {"name": name, "args": arguments, "id": call_id, "index": index, "type": "tool_call_chunk"}
    return chunk("", tool_call_chunks=[part])


def result(call_id: str, output: Any = "3C", status: str = "success") -> ServerEvent:
    told = {"type": "tool", "content": output, "id": f"result of {call_id}", "tool_call_id": call_id, "name": "weather"}
    return event("messages", [told | {"status": status}, {"langgraph_checkpoint_ns": "tools:1"}])


def added(*messages: dict[str, Any], node: str = "model") -> ServerEvent:
    return event("updates", {node: {"messages": list(messages)}})


def asks(value: Any, name: str = "i1") -> ServerEvent:
    return event("updates", {"__interrupt__": [{"value": value, "id": name, "response_schema": None}]})


def read(events: Iterable[ServerEvent], by: RunParser | None = None) -> list[AdapterEvent]:
    """The events of a run that ends well."""
    reader = by or parser()
    told = [each for one in events for each in reader.receive(one)]
    return [*told, *reader.complete("t1", "task-1", ())]


def told(events: Sequence[AdapterEvent]) -> list[AdapterEvent]:
    return [each for each in events if not isinstance(each, CallCompleted)]


def fault(*events: ServerEvent) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        read(events)
    return caught.value


def test_a_run_of_the_real_server_is_read() -> None:
    reader = NamedEventReader()
    events = read([each for place in range(0, len(CAPTURE), 7) for each in reader.feed(CAPTURE[place : place + 7])])
    assert told(events) == [
        ToolCallAnnounced("call_1", "get_weather", handled=True),
        ToolCallReady("call_1", "get_weather", '{"city":"Oslo"}', handled=True),
        ToolResultReady("call_1", "3C"),
        TextDelta("done: "),
        TextDelta("3C"),
        MessageReady("done: 3C", "run-2"),
    ]
    assert completed(events) == CallCompleted("t1", state={"last": "run-2"})


# --- text


def test_the_text_that_the_updates_repeat_is_told_once() -> None:
    events = read([chunk("Hel"), chunk("lo"), ended(), added({"type": "ai", "content": "Hello", "id": "m1"})])
    assert told(events) == [TextDelta("Hel"), TextDelta("lo"), MessageReady("Hello", "m1")]


def test_a_node_that_changes_a_message_has_the_last_word_on_it() -> None:
    events = read([chunk("Hello"), ended(), added({"type": "ai", "content": "Hi", "id": "m1"})])
    assert told(events) == [TextDelta("Hello"), MessageReady("Hello", "m1"), MessageReady("Hi", "m1")]


def test_cumulative_messages_of_the_other_mode_are_no_answer() -> None:
    partial = [
        event("messages/partial", [{"type": "ai", "content": "Hel", "id": "m1"}]),
        event("messages/metadata", {}),
    ]
    assert told(read([*partial, chunk("Hello")])) == [TextDelta("Hello"), MessageReady("Hello", "m1")]


def test_two_branches_that_speak_at_once_are_told_one_after_the_other() -> None:
    events = read(
        [
            *(chunk("A", "a", "one:1"), chunk("X", "x", "two:1"), chunk("B", "a", "one:1"), chunk("Y", "x", "two:1")),
            *(result("c1"), ended("x", "two:1"), ended("a", "one:1")),
        ]
    )
    assert told(events)[:6] == [
        TextDelta("A"),
        TextDelta("B"),
        MessageReady("AB", "a"),
        TextDelta("X"),
        TextDelta("Y"),
        MessageReady("XY", "x"),
    ]
    assert of_type(events, ToolResultReady) == [ToolResultReady("c1", "3C")]


def test_a_message_that_goes_on_when_the_one_before_it_has_ended_is_told_as_it_comes() -> None:
    reader = parser()
    for each in (chunk("A", "a", "one:1"), chunk("X", "x", "two:1")):
        reader.receive(each)
    assert list(reader.receive(ended("a", "one:1"))) == [MessageReady("A", "a"), TextDelta("X")]
    assert list(reader.receive(chunk("Y", "x", "two:1"))) == [TextDelta("Y")]


def test_a_task_that_calls_two_models_in_a_row_has_ended_its_first_message() -> None:
    events = read([chunk("A", "a"), chunk("B", "b")])
    assert told(events) == [TextDelta("A"), MessageReady("A", "a"), TextDelta("B"), MessageReady("B", "b")]


def test_a_message_that_no_model_has_streamed_comes_whole() -> None:
    whole = event("messages", [{"type": "ai", "content": [{"type": "text", "text": "Hi"}], "id": "m1"}, {}])
    assert told(read([whole])) == [TextDelta("Hi"), MessageReady("Hi", "m1")]


def test_messages_of_earlier_turns_that_a_node_returns_are_not_told() -> None:
    call = {"id": "old", "name": "weather", "args": {}}
    old: list[dict[str, Any]] = [
        {"type": "ai", "content": "Before", "id": "m0", "tool_calls": [call]},
        {"type": "human", "content": "Hi", "id": "u"},
    ]
    assert told(read([chunk("Now"), ended(), added(*old, {"type": "ai", "content": "Now", "id": "m1"})])) == [
        TextDelta("Now"),
        MessageReady("Now", "m1"),
    ]


def test_what_an_attempt_has_said_whose_process_died_is_void() -> None:
    again = event("metadata", {"run_id": "run-1", "attempt": 2})
    events = read([chunk("Hel", "m1"), again, chunk("Hello", "m2")])
    assert told(events) == [TextDelta("Hel"), MessageReady("", "m1"), TextDelta("Hello"), MessageReady("Hello", "m2")]


def test_messages_of_subgraphs_are_read_like_any_others() -> None:
    inner = chunk("Hi")
    assert told(read([ServerEvent("messages|sub:1", "1-0", inner.data)])) == [TextDelta("Hi"), MessageReady("Hi", "m1")]


# --- reasoning, files, notes, tokens


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "reasoning", "reasoning": "Hm"}],
        [{"type": "thinking", "thinking": "Hm", "signature": "x"}],
        [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "H"}, {"text": "m"}]}],
        [{"type": "reasoning_content", "reasoning_content": {"text": "Hm"}}],
    ],
)
def test_reasoning_has_the_form_of_its_model(content: Any) -> None:
    assert told(read([chunk(content)])) == [ReasoningDelta("Hm")]


def test_reasoning_beside_the_content_is_reasoning_too() -> None:
    assert told(read([chunk("", additional_kwargs={"reasoning_content": "Hm"})])) == [ReasoningDelta("Hm")]


def test_files_of_the_answer_are_parts() -> None:
    events = read([chunk([{"type": "image", "base64": "aGk=", "mime_type": "image/png"}])])
    assert told(events) == [PartReady(Part(raw="aGk=", media_type="image/png"))]


def test_the_words_that_a_graph_writes_itself_are_progress_and_its_objects_are_not() -> None:
    assert told(read([event("custom", "looking"), event("custom", {"a": 1})])) == [Progress("looking")]


def test_the_tokens_of_all_messages_add_up() -> None:
    first = {"input_tokens": 3, "output_tokens": 1, "input_token_details": {"cache_read": 2}}
    second = {"input_tokens": 5, "output_tokens": 4, "input_token_details": {"cache_read": 1}}
    events = read([chunk("a", usage_metadata=first), ended(), chunk("b", "m2", usage_metadata=second)])
    assert completed(events).usage == {
        "input_tokens": 8,
        "output_tokens": 5,
        "input_token_details": {"cache_read": 3},
    }


@pytest.mark.parametrize(
    ("metadata", "finish"),
    [
        ({"finish_reason": "length"}, "length"),
        ({"stop_reason": "max_tokens"}, "max_tokens"),
        ({"finish_reason": "STOP"}, None),
        ({"stop_reason": "end_turn"}, None),
        ({}, None),
    ],
)
def test_an_answer_that_a_limit_has_cut_says_so(metadata: dict[str, str], finish: str | None) -> None:
    assert completed(read([chunk("a"), ended(response_metadata=metadata)])).finish == finish


def test_only_the_last_message_says_why_the_answer_is_not_whole() -> None:
    cut = ended(response_metadata={"finish_reason": "length"})
    assert completed(read([chunk("a"), cut, chunk("b", "m2")])).finish is None


# --- tool calls


def test_a_call_is_told_with_its_result_where_the_graph_may_ask_first() -> None:
    pieces = [piece("", call_id="c1", name="weather"), piece('{"city"'), piece(':"Oslo"}')]
    assert told(read([*pieces, ended(), result("c1", status="error")])) == [
        ToolCallAnnounced("c1", "weather", handled=True),
        ToolCallArguments("c1", '{"city"'),
        ToolCallArguments("c1", ':"Oslo"}'),
        ToolCallReady("c1", "weather", '{"city":"Oslo"}', handled=True),
        ToolResultReady("c1", "3C", error=True),
    ]


def test_a_call_is_told_before_its_result_where_the_graph_does_not_ask() -> None:
    reader = parser(approvals=False)
    reader.receive(piece("{}", call_id="c1", name="weather"))
    assert list(reader.receive(ended())) == [ToolCallReady("c1", "weather", "{}", handled=True)]


def test_two_calls_in_pieces_keep_apart_by_their_index() -> None:
    pieces = [piece("", call_id="a", name="x"), piece("", call_id="b", name="y", index=1)]
    more = [piece('{"n":2}', index=1), piece('{"n":1}')]
    events = read(
        [*pieces, *more, ended(), result("b", [{"type": "text", "text": "B"}]), result("a", [{"type": "image"}])]
    )
    assert [(each.name, each.arguments) for each in of_type(events, ToolCallReady)] == [
        ("y", '{"n":2}'),
        ("x", '{"n":1}'),
    ]
    assert [each.output for each in of_type(events, ToolResultReady)] == ["B", [{"type": "image"}]]


def test_a_call_without_a_result_is_told_at_the_end() -> None:
    events = read([piece("{}", call_id="c1", name="weather"), ended()])
    assert told(events)[-1] == ToolCallReady("c1", "weather", "{}", handled=True)


def test_a_result_of_a_call_that_nobody_has_seen_brings_its_call() -> None:
    assert told(read([result("c1")])) == [
        ToolCallAnnounced("c1", "weather", handled=True),
        ToolCallReady("c1", "weather", "{}", handled=True),
        ToolResultReady("c1", "3C"),
    ]


def test_a_result_that_comes_twice_is_told_once() -> None:
    assert len(of_type(read([result("c1"), result("c1")]), ToolResultReady)) == 1


def test_arguments_that_are_no_json_stay_the_text_of_the_model() -> None:
    bad = {"name": "weather", "args": "{city", "id": "c1", "error": "no JSON", "type": "invalid_tool_call"}
    whole = event("messages", [{"type": "ai", "content": "", "id": "m1", "invalid_tool_calls": [bad]}, {}])
    assert of_type(read([whole]), ToolCallReady) == [ToolCallReady("c1", "weather", "{city", handled=True)]


# --- interrupts


def test_a_call_that_the_graph_asks_about_is_a_question_and_not_a_call() -> None:
    value = {"type": "tool_approval", "tool_call_id": "c1", "name": "pay", "args": {"to": "a"}, "description": "?"}
    events = read([piece('{"to": "a"}', call_id="c1", name="pay"), ended(), asks(value)])
    assert of_type(events, ApprovalAsked) == [ApprovalAsked("run-1/i1/0", "pay", '{"to":"a"}', "graph")]
    assert of_type(events, ToolCallReady) == []
    assert completed(events).ending is Ending.COMPLETED
    assert completed(events).state == {
        "last": "m1",
        "task": "task-1",
        "run": "run-1",
        "asked": [
            {"id": "i1", "form": "decision", "actions": [{"name": "pay", "arguments": '{"to":"a"}', "call": "c1"}]}
        ],
        "calls": [{"id": "c1", "name": "pay", "arguments": '{"to": "a"}'}],
    }


def test_any_other_interrupt_is_a_question_with_its_value() -> None:
    end = completed(read([chunk("Hm."), ended(), asks({"question": "Which?", "choices": [1]})]))
    assert (end.ending, end.message) == (
        Ending.INPUT_REQUIRED,
        (Part(text="Which?"), Part(data={"question": "Which?", "choices": [1]})),
    )


def test_an_interrupt_that_a_subgraph_tells_as_well_is_one() -> None:
    inner = asks("Which?")
    events = read([ServerEvent("updates|sub:1", "1-0", inner.data), inner])
    assert len(completed(events).state["asked"]) == 1


def test_a_graph_that_stops_at_a_breakpoint_waits_for_a_message() -> None:
    assert completed(read([event("updates", {"__interrupt__": []})])).ending is Ending.INPUT_REQUIRED


# --- what fails


def test_a_run_that_fails_may_have_done_its_work() -> None:
    failed = fault(chunk("Hel"), event("error", {"error": "RateLimitError", "message": "429: slow down"}))
    assert (failed.kind, failed.detail) == (ErrorClass.BACKEND_FAILED, "the run failed: RateLimitError: 429: slow down")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("messages", b"[{]"),
        ("messages", b'{"type":"ai"}'),
        ("messages", b'[{"type":"ai","content":7},{}]'),
        ("updates", b"[1]"),
        ("updates", b'{"__interrupt__":[{"value":1}]}'),
        ("metadata", b"{}"),
        ("custom", b'"\\ud800"'),
    ],
)
def test_an_event_that_is_not_as_described_breaks_the_contract(name: str, data: bytes) -> None:
    assert fault(ServerEvent(name, "", data)).kind is ErrorClass.CONTRACT_BROKEN


@pytest.mark.parametrize("update", [{"node": None}, {"node": 7}, {"node": [{"messages": [7, {"type": 3}]}]}, {}])
def test_a_node_may_add_anything_to_the_state(update: Any) -> None:
    assert told(read([event("updates", update)])) == []


def test_events_of_other_modes_are_read_over() -> None:
    assert told(read([event("values", {"messages": []}), event("end", None), event("tasks", {})])) == []
