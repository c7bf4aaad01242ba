"""Events of a run -> adapter events: order, odd streams, and ends."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from adapters.assistants.failures import ThreadFailures
from adapters.assistants.position import Position
from adapters.assistants.stream import FileMade, RunParser, Told
from adapters.http.named_events import ServerEvent
from gateway.a2a.model import Part
from gateway.ports.adapter import (
    AdapterError,
    CallCompleted,
    CallStarted,
    ErrorClass,
    MessageReady,
    PartReady,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from tests.adapters.emulator_support import KEY


def event(name: str, data: object) -> ServerEvent:
    return ServerEvent(name, "", data if isinstance(data, bytes) else json.dumps(data).encode())


def run(change: str, **fields: Any) -> ServerEvent:
    status = {"created": "queued"}.get(change, change)
    return event(f"thread.run.{change}", {"id": "run_1", "status": status, **fields})


def delta(*contents: dict[str, Any], name: str = "msg_1") -> ServerEvent:
    return event("thread.message.delta", {"id": name, "delta": {"content": list(contents)}})


def said(words: str, index: int = 0) -> dict[str, Any]:
    return {"index": index, "type": "text", "text": {"value": words}}


def whole(*contents: dict[str, Any], name: str = "msg_1", role: str = "assistant") -> ServerEvent:
    return event("thread.message.completed", {"id": name, "role": role, "content": list(contents)})


def pieces(step: str, *calls: dict[str, Any]) -> ServerEvent:
    details = {"type": "tool_calls", "tool_calls": list(calls)}
    return event("thread.run.step.delta", {"id": step, "delta": {"step_details": details}})


def step(change: str, name: str, *calls: dict[str, Any], **fields: Any) -> ServerEvent:
    status = "in_progress" if change == "created" else change
    body = {"id": name, "type": "tool_calls", "status": status, "step_details": {"tool_calls": list(calls)}}
    return event(f"thread.run.step.{change}", body | fields)


def waits(*calls: dict[str, Any], kind: str = "submit_tool_outputs") -> ServerEvent:
    return run("requires_action", required_action={"type": kind, kind: {"tool_calls": list(calls)}})


def function(name: str, arguments: str | None = None, **more: Any) -> dict[str, Any]:
    given = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
    return {"type": "function", "function": given, **more}


DONE = event("done", b"[DONE]")


def parser(after: Position | None = None) -> RunParser:
    return RunParser(ThreadFailures([KEY]), "thread_1", after)


def told(*events: ServerEvent, after: Position | None = None) -> list[Told]:
    reading = parser(after)
    return [*reading.accepted(), *(one for each in events for one in reading.receive(each))]


def fault(*events: ServerEvent) -> AdapterError:
    with pytest.raises(AdapterError) as caught:
        told(*events)
    return caught.value


STARTED = CallStarted("thread_1", "run_1")
ENDED = CallCompleted("thread_1", state={"run": "run_1"})


def test_the_run_is_named_once_and_ended_once() -> None:
    assert told(run("created"), run("queued"), run("in_progress"), run("completed"), DONE) == [STARTED, ENDED]


def test_a_call_that_goes_on_is_named_by_the_step_at_which_its_run_waited() -> None:
    after = Position("run_1", "step_1")
    assert told(run("queued"), run("completed"), after=after) == [CallStarted("thread_1", "run_1/step_1"), ENDED]


def test_nothing_but_a_run_ends_a_call() -> None:
    reading = parser()
    for each in (run("created"), delta(said("Hi")), whole(said("Hi")), DONE):
        reading.receive(each)
    assert not reading.ended
    assert reading.cut().kind is ErrorClass.INTERRUPTED


def test_unknown_events_are_read_over() -> None:
    unknown = [
        event("thread.created", {"id": "thread_1"}),
        event("message", {}),
        event("thread.run.step.paused", {"id": "s"}),
    ]
    assert told(*unknown, event("keep", b"not json"), run("created"), run("completed")) == [STARTED, ENDED]


ANSWERS: dict[str, tuple[Sequence[ServerEvent], list[Told]]] = {
    "deltas and their message": (
        [delta(said("Hel")), delta(said("lo")), whole(said("Hello"))],
        [TextDelta("Hel"), TextDelta("lo"), MessageReady("Hello", "msg_1")],
    ),
    "deltas without an end": ([delta(said("Hello"))], [TextDelta("Hello"), MessageReady("Hello", "msg_1")]),
    "a message without deltas": ([whole(said("Hello"))], [TextDelta("Hello"), MessageReady("Hello", "msg_1")]),
    "a message that is longer than its deltas": (
        [delta(said("Hel")), whole(said("Hello"))],
        [TextDelta("Hel"), TextDelta("lo"), MessageReady("Hello", "msg_1")],
    ),
    "a message that says something else": (
        [delta(said("Hal")), whole(said("Hello"))],
        [TextDelta("Hal"), MessageReady("Hello", "msg_1")],
    ),
    "a message that ends twice": (
        [whole(said("Hello")), whole(said("Hello"))],
        [TextDelta("Hello"), MessageReady("Hello", "msg_1")],
    ),
    "two messages": (
        [delta(said("One")), whole(said("One")), delta(said("Two"), name="msg_2"), whole(said("Two"), name="msg_2")],
        [TextDelta("One"), MessageReady("One", "msg_1"), TextDelta("Two"), MessageReady("Two", "msg_2")],
    ),
    "texts around a picture": (
        [
            delta(said("One")),
            delta({"index": 1, "type": "image_file", "image_file": {"file_id": "f"}}),
            delta(said("Two", 2)),
            whole(said("One"), {"type": "image_file", "image_file": {"file_id": "f"}}, said("Two")),
        ],
        [TextDelta("One"), TextDelta("\n\nTwo"), MessageReady("One\n\nTwo", "msg_1"), FileMade("f")],
    ),
    "a picture alone": ([whole({"type": "image_file", "image_file": {"file_id": "f"}})], [FileMade("f")]),
    "a picture at an address": (
        [whole({"type": "image_url", "image_url": {"url": "https://a.example/b.png"}})],
        [PartReady(Part(url="https://a.example/b.png"))],
    ),
    "a message of the user's": ([whole(said("Hi"), role="user")], []),
    "nothing": ([delta(), delta(said("")), whole()], []),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_is_told_in_its_messages(case: str) -> None:
    events, wanted = ANSWERS[case]
    assert told(run("created"), *events, run("completed")) == [STARTED, *wanted, ENDED]


def test_calls_are_told_apart_by_their_place_and_named_with_their_first_piece() -> None:
    events = told(
        run("created"),
        step("created", "step_1"),
        pieces("step_1", function("weather", "", index=0, id="call_1")),
        pieces("step_1", function("", "{}", index=0)),
        pieces("step_1", function("height", index=1, id="call_2")),
        pieces("step_1", function("", '{"a"', index=1), function("", ":1}", index=1)),
        waits(function("weather", "{}", id="call_1"), function("height", '{"a":1}', id="call_2")),
    )
    assert events == [
        STARTED,
        ToolCallAnnounced("call_1", "weather"),
        ToolCallArguments("call_1", "{}"),
        ToolCallAnnounced("call_2", "height"),
        ToolCallArguments("call_2", '{"a"'),
        ToolCallArguments("call_2", ":1}"),
        ToolCallReady("call_1", "weather", "{}"),
        ToolCallReady("call_2", "height", '{"a":1}'),
        CallCompleted("thread_1", state={"run": "run_1", "step": "step_1"}),
    ]


def test_a_run_that_waits_without_having_told_a_step_waits_all_the_same() -> None:
    assert told(run("created"), waits(function("f", "{}", id="call_1")))[-1] == CallCompleted(
        "thread_1", state={"run": "run_1", "step": ""}
    )


def test_a_call_that_was_answered_is_not_told_again() -> None:
    answered = step("completed", "step_1", function("f", "{}", id="call_1") | {"output": "3"})
    assert told(answered, run("completed"), after=Position("run_1", "step_1")) == [
        CallStarted("thread_1", "run_1/step_1"),
        ENDED,
    ]


def test_a_tool_of_the_service_is_announced_with_its_first_piece_and_told_once() -> None:
    code = {"id": "call_1", "type": "code_interpreter"}
    done = step("completed", "step_1", code | {"code_interpreter": {"input": "1", "outputs": []}})
    events = told(
        run("created"),
        step("created", "step_1"),
        pieces("step_1", code | {"index": 0, "code_interpreter": {"input": "1"}}),
        done,
        done,
        run("completed"),
    )
    own = "code_interpreter"
    assert events[1:-1] == [
        ToolCallAnnounced("call_1", own, True, own),
        ToolCallReady("call_1", own, '{"code":"1"}', True, own, "call_1"),
        ToolResultReady("call_1", []),
    ]


@pytest.mark.parametrize("status", ["failed", "cancelled", "expired"])
def test_a_tool_of_the_service_that_failed_is_told_as_failed(status: str) -> None:
    search = {"id": "call_1", "type": "file_search", "file_search": {}}
    error = {"code": "server_error", "message": "no index"}
    events = told(run("created"), step(status, "step_1", search, last_error=error), run("completed"))
    assert events[-2] == ToolResultReady("call_1", error, error=True)


ERRORS: dict[str, tuple[Sequence[ServerEvent], ErrorClass, str]] = {
    "a run that failed": (
        [run("created"), run("failed", last_error={"code": "server_error", "message": f"Not for {KEY}."})],
        ErrorClass.BACKEND_FAILED,
        "error in the stream: server_error: Not for ***.",
    ),
    "a run that was filtered": (
        [run("created"), run("failed", last_error={"code": "content_filter", "message": "no"})],
        ErrorClass.BACKEND_FAILED,
        "error in the stream: content_filter: no",
    ),
    "a run that was cancelled elsewhere": (
        [run("created"), run("cancelling"), run("cancelled")],
        ErrorClass.BACKEND_FAILED,
        "the run is cancelled",
    ),
    "a run that has expired": ([run("created"), run("expired")], ErrorClass.BACKEND_FAILED, "the run is expired"),
    "an error before there is a run": (
        [event("error", {"error": {"code": "rate_limit_exceeded", "message": "later"}})],
        ErrorClass.RATE_LIMITED,
        "error in the stream: rate_limit_exceeded: later",
    ),
    "an error behind the beginning of a run": (
        [run("created"), event("error", {"code": "rate_limit_exceeded", "message": "later"})],
        ErrorClass.BACKEND_FAILED,
        "error in the stream: rate_limit_exceeded: later",
    ),
    "an error that is a text": (
        [event("error", "gone")],
        ErrorClass.BACKEND_FAILED,
        "error in the stream: gone",
    ),
    "a run that waits for nothing": (
        [run("created"), waits()],
        ErrorClass.CONTRACT_BROKEN,
        "a run waits for nothing",
    ),
    "an event that is no JSON": (
        [event("thread.run.created", b"{")],
        ErrorClass.CONTRACT_BROKEN,
        "an event 'thread.run.created' cannot be read: Input data was truncated",
    ),
    "an event without an id": (
        [event("thread.message.delta", {})],
        ErrorClass.CONTRACT_BROKEN,
        "an event 'thread.message.delta' cannot be read: Object missing required field `id`",
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_an_error_has_the_class_of_what_it_means(case: str) -> None:
    events, kind, detail = ERRORS[case]
    error = fault(*events)
    assert (error.kind, error.detail) == (kind, detail)


@pytest.mark.parametrize(
    ("details", "finish"),
    [
        ({"reason": "max_completion_tokens"}, "max_output_tokens"),
        ({"reason": "max_prompt_tokens"}, "max_prompt_tokens"),
        ({"reason": "content_filter"}, "content_filter"),
        (None, "incomplete"),
    ],
)
def test_a_run_that_is_not_whole_says_why(details: Any, finish: str) -> None:
    [_, ended] = told(run("created"), run("incomplete", incomplete_details=details))
    assert ended == CallCompleted("thread_1", finish=finish, state={"run": "run_1"})
