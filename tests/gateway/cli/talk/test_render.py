"""The events of a task as text: answers on one stream, tool calls and progress on the other."""

import io
from typing import Any

import pytest

from gateway.a2a.tool_calls import URI
from gateway.cli.console.output import Screen
from gateway.cli.talk.display import ConversationState
from gateway.cli.talk.render import TextView, token_words, transcript
from tests.gateway.cli.scripted_agent import (
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    WORKING,
    said_by_agent,
    says,
    shows,
    status,
    task,
)

Json = Any


def seen(*events: Json, earlier: Json = None) -> tuple[str, str]:
    out, err = io.StringIO(), io.StringIO()
    view = TextView(Screen(out, err))
    view.skip(earlier)
    for event in events:
        view.receive(event)
    view.finish()
    return out.getvalue(), err.getvalue()


def call(kind: str, **data: Json) -> Json:
    return {"data": {"id": "call_1", "name": "lookup", **data}, "metadata": {"adk_type": kind, "type": kind}}


def test_the_answer_comes_piece_by_piece_and_ends_its_line() -> None:
    assert seen({"task": task()}, says("Hel", append=False), says("lo"), status(COMPLETED)) == ("Hello\n", "")


def test_tool_calls_and_progress_are_lines_beside_the_answer() -> None:
    events = (
        status(WORKING, "looking\nit up"),
        status(WORKING, None, call("function_call", args={"q": "x"})),
        status(WORKING, None, call("function_response", response={"result": "found"})),
        status(WORKING, None, call("function_response", response={"error": {"code": "failed"}})),
        status(WORKING, None, {"data": {"step": 1}}),
        status(WORKING, None, {"url": "https://x/y.png", "mediaType": "image/png"}),
    )
    answer, beside = seen(*events)
    assert answer == ""
    assert beside.splitlines() == [
        "... looking it up",
        'tool: lookup {"q":"x"}',
        'tool: lookup gave {"result":"found"}',
        'tool: lookup failed: {"code":"failed"}',
        '... {"step":1}',
        "... file: image/png https://x/y.png",
    ]


def test_progress_of_a_tool_is_a_line() -> None:
    facts = {"phase": "progress", "callId": "call_1", "name": "lookup", "text": "2 of 3"}
    event = status(WORKING)
    event["statusUpdate"]["metadata"] = {URI: facts}
    assert seen(event) == ("", "tool: lookup ... 2 of 3\n")


def told(phase: str, second: str) -> Json:
    """A status update that says that the call is in this phase now."""
    event = status(WORKING)
    event["statusUpdate"]["metadata"] = {URI: {"phase": phase, "callId": "call_1", "name": "lookup"}}
    event["statusUpdate"]["status"]["timestamp"] = f"2026-11-20T10:00:{second}Z"
    return event


def done() -> Json:
    """The outcome of a call that was made at second 0 and ended at second 51.25."""
    part = call("function_response", response={"result": 1})
    part["metadata"][URI] = {"startedAt": "2026-11-20T10:00:00.000Z", "endedAt": "2026-11-20T10:00:51.250Z"}
    return part


@pytest.mark.parametrize(
    ("phases", "time"),
    [
        ([], " (51.2 s)"),
        ([("executing", "01.000")], " (50.2 s)"),
        ([("awaiting-approval", "01.000"), ("executing", "50.000")], " (1.2 s)"),
        ([("executing", "01.000"), ("executing", "50.000")], " (1.2 s)"),
        ([("awaiting-approval", "01.000")], ""),
    ],
)
def test_the_time_of_a_tool_is_not_that_of_the_person_who_was_asked(phases: list[tuple[str, str]], time: str) -> None:
    events = [told(*phase) for phase in phases]
    assert seen(*events, status(WORKING, None, done()))[1].endswith(f'tool: lookup gave {{"result":1}}{time}\n')


def test_the_time_of_a_tool_about_which_a_person_was_asked_is_not_known_later() -> None:
    asked = {**said_by_agent({"text": "May I?"}), "metadata": {URI: {"approval": {"tools": [{"id": "call_1"}]}}}}
    now = {**task(WORKING), "history": [asked, {**said_by_agent(done()), "messageId": "m-result"}]}
    assert seen({"task": now})[1].endswith('tool: lookup gave {"result":1}\n')
    assert list(transcript(now))[-1] == 'agent: tool: lookup gave {"result":1}'
    assert list(transcript({**now, "history": now["history"][1:]}))[-1].endswith(" (51.2 s)")


def test_a_tool_call_in_an_artifact_is_not_part_of_the_answer() -> None:
    events = (shows(call("function_call", args={}), artifact="tool-call:1"), says("Hi"))
    assert seen(*events) == ("Hi\n", "tool: lookup {}\n")


def test_data_is_answered_as_json_and_files_are_listed() -> None:
    events = (
        says("Here:"),
        shows({"data": {"a": 1}}),
        shows({"raw": "AAAA", "filename": "a.bin", "mediaType": "application/octet-stream"}, {"raw": ""}),
    )
    assert seen(*events) == (
        'Here:\n{"a":1}\n',
        "file: a.bin application/octet-stream 3 bytes\nfile: 0 bytes\n",
    )


def test_another_artifact_begins_on_another_line() -> None:
    assert seen(says("one"), says("two", artifact="a-2"), says("three"))[0] == "one\ntwo\nthree\n"


def test_a_repeated_state_shows_only_what_is_missing() -> None:
    data = {"data": 1}
    now = {"task": {**task(WORKING), "artifacts": [{"artifactId": "a-1", "parts": [{"text": "one two "}, data, data]}]}}
    events = ({"task": task()}, says("one "), shows(data), now, now, says("three"))
    assert seen(*events)[0] == "one \n1\ntwo \n1\nthree\n"


def test_a_replaced_artifact_is_shown_as_far_as_it_is_new() -> None:
    assert seen(says("one"), says("one two", append=False))[0] == "one two\n"
    assert seen(says("one"), says("other", append=False))[0] == "one\nother\n"


def test_earlier_parts_of_a_task_are_not_shown_again() -> None:
    earlier = {**task(INPUT_REQUIRED, "old answer"), "history": [said_by_agent({"text": "of an older turn"})]}
    artifacts = [*earlier["artifacts"], {"artifactId": "a-2", "parts": [{"text": "ne"}]}]
    now = {**earlier, "artifacts": artifacts}
    events = ({"task": now}, says("w", artifact="a-2"), status(COMPLETED))
    assert seen(*events, earlier=earlier) == ("new\n", "")


def test_progress_before_the_first_event_is_shown_once_from_the_history() -> None:
    history = [{"messageId": "own", "role": "ROLE_USER", "parts": [{"text": "Hi"}]}, said_by_agent({"text": "looking"})]
    now = {"task": {**task(WORKING), "history": history}}
    events = (now, status(WORKING, "looking"), status(WORKING, "found"), now)
    assert seen(*events)[1] == "... looking\n... found\n"


def test_an_answered_question_does_not_end_the_stream_and_is_not_asked_again() -> None:
    asked = task(INPUT_REQUIRED, said="Which city?")
    later = (status(WORKING), says("Paris!"), status(COMPLETED))
    assert seen({"task": asked}, *later, earlier=asked) == ("Paris!\n", "")
    assert seen({"task": task()}, status(INPUT_REQUIRED, "Which city?"), *later) == ("Paris!\n", "... Which city?\n")


def test_a_view_continues_with_the_next_message_to_its_task() -> None:
    out, err = io.StringIO(), io.StringIO()
    view = TextView(Screen(out, err))
    for event in ({"task": task()}, says("Hm. "), status(INPUT_REQUIRED, "Which city?")):
        view.receive(event)
    view.finish()
    view.continue_task()
    for event in (
        {"task": task(INPUT_REQUIRED, "Hm. ", said="Which city?")},
        status(WORKING),
        status(COMPLETED, "Bye."),
    ):
        view.receive(event)
    view.finish()
    assert (out.getvalue(), err.getvalue()) == ("Hm. \nWhich city?\nBye.\n", "")


def test_an_answer_that_goes_on_behind_a_question_begins_on_a_line_without_a_blank_one() -> None:
    goes_on = (shows({"text": "\n\n"}, {"text": "It is"}), says(" 3"))
    assert seen(says("Let me ask.", append=False), *goes_on)[0] == "Let me ask.\n\nIt is 3\n"
    assert seen(*goes_on, earlier=task(INPUT_REQUIRED, "Let me ask."))[0] == "It is 3\n"
    whole = {"task": task(COMPLETED, "Let me ask.\n\n", "It is 3")}
    assert seen(whole, earlier=task(INPUT_REQUIRED, "Let me ask."))[0] == "It is 3\n"
    assert seen(shows(), says(" Or not."), earlier=task(INPUT_REQUIRED, "Let me ask."))[0] == " Or not.\n"


def test_the_final_message_is_not_shown_again_from_the_history() -> None:
    ended = {**task(INPUT_REQUIRED, said="Which city?"), "history": [said_by_agent({"text": "Which city?"})]}
    assert seen({"task": ended}) == ("Which city?\n", "")


@pytest.mark.parametrize(
    ("events", "shown"),
    [
        ((status(COMPLETED, "Done."),), ("Done.\n", "")),
        ((says("Hi"), status(COMPLETED, "Hi")), ("Hi\n", "")),
        ((says("Hi"), status(INPUT_REQUIRED, "Which city?")), ("Hi\nWhich city?\n", "")),
        ((says("Hi"), status(FAILED, "It broke.")), ("Hi\n", "failed: It broke.\n")),
        (({"message": {"parts": [{"text": "Hello"}], "contextId": "c"}},), ("Hello\n", "")),
        (({"task": task(COMPLETED, "Hello", " you")},), ("Hello you\n", "")),
    ],
)
def test_the_final_message_is_shown_once(events: tuple[Json, ...], shown: tuple[str, str]) -> None:
    assert seen(*events) == shown


def test_an_answer_that_is_not_whole_is_shown_with_the_reason() -> None:
    ended = status(COMPLETED, "The answer is not whole: 'length'.")
    ended["statusUpdate"]["status"]["message"]["metadata"] = {"finishReason": "length"}
    assert seen(says("Hel"), ended) == ("Hel\n", "The answer is not whole: 'length'.\n")


@pytest.mark.parametrize(
    "event",
    [
        {},
        None,
        [],
        {"task": None},
        {"task": {"status": {"state": ["x"]}, "artifacts": [1, {"parts": "x"}]}},
        {"statusUpdate": {"status": {"state": {"a": 1}, "message": {"parts": [{"text": 1}, {}]}}}},
        {"artifactUpdate": {"artifact": {"artifactId": {}, "parts": [{"text": None}, {"metadata": []}]}}},
        {"statusUpdate": {"status": {"message": {"parts": [{"data": 1, "metadata": {"type": "function_call"}}]}}}},
    ],
)
def test_malformed_events_are_shown_as_far_as_they_are_valid(event: Json) -> None:
    conversation = ConversationState()
    conversation.note(event)
    seen(event)
    assert conversation.exit_code == 1


def test_the_conversation_knows_the_ids_the_state_and_the_exit_code() -> None:
    conversation = ConversationState(context="typed")
    conversation.note({"task": task()})
    assert (conversation.context, conversation.task, conversation.words, conversation.exit_code) == (
        "c-1",
        "t-1",
        "working",
        1,
    )
    conversation.note(status(INPUT_REQUIRED))
    assert (conversation.words, conversation.exit_code) == ("input required", 13)
    reply = ConversationState()
    reply.note({"message": {"messageId": "m", "contextId": "c-2"}})
    assert (reply.context, reply.task, reply.words, reply.exit_code) == ("c-2", None, "", 0)


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (
            {
                "inputTokens": 1932,
                "cachedTokens": 1800,
                "outputTokens": 211,
                "reasoningTokens": 64,
                "totalTokens": 2143,
            },
            "1,932 in (1,800 cached), 211 out (64 reasoning)",
        ),
        ({"inputTokens": 12, "cachedTokens": 0, "outputTokens": 3, "totalTokens": 15}, "12 in, 3 out"),
        ({"totalTokens": 15}, "15"),
        ({"inputTokens": "12", "outputTokens": None, "totalTokens": [15]}, ""),
        ({"inputTokens": 12, "cachedTokens": "all"}, "12 in"),
        (None, ""),
        ("many", ""),
    ],
    ids=str,
)
def test_numbers_of_tokens_are_words(usage: Json, words: str) -> None:
    assert token_words(usage) == words
