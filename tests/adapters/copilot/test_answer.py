"""Activities of a turn -> events. They are those of bots on Microsoft's SDK 1.9.0, and of transcripts of Copilot Studio."""

from typing import Any

import pytest

from adapters.copilot.activities import Account, Activity, StreamInfo, read, read_set, stream_of
from adapters.copilot.answer import Answer
from gateway.a2a.model import Part
from gateway.ports.adapter import (
    AdapterEvent,
    ConsentAsked,
    Ending,
    MessageReady,
    PartReady,
    Progress,
    ReasoningDelta,
    TextDelta,
    ToolCallAnnounced,
    ToolCallReady,
    ToolResultReady,
)

CARD = "application/vnd.microsoft.card."
CHOICES = {"choices": [{"title": "Yes", "value": "y"}]}
YES = {"actions": [{"type": "imBack", "title": "Yes", "value": "y"}]}


def activity(**given: Any) -> Activity:
    found = read(given)
    assert found is not None
    return found


def message(text: str = "", **given: Any) -> Activity:
    return activity(type="message", id=given.pop("id", "m"), text=text, **given)


def typing(text: str, kind: str, **info: Any) -> Activity:
    entity = {"type": "streaminfo", "streamType": kind, "streamId": "s", **info}
    return activity(type="typing", text=text, entities=[entity])


def told(answer: Answer, *activities: Activity) -> list[AdapterEvent]:
    return [event for each in activities for event in answer.receive(each)]


@pytest.fixture
def answer() -> Answer:
    return Answer(cumulative=True)


def test_a_message_is_a_text_and_its_end(answer: Answer) -> None:
    assert told(answer, message("Hello")) == [TextDelta("Hello"), MessageReady("Hello", "m")]
    done = answer.completed("c", state={})
    assert (done.handle, done.ending, done.message, done.finish) == ("c", Ending.COMPLETED, None, None)


def test_what_a_message_is_made_of_is_progress_and_text(answer: Answer) -> None:
    events = told(
        answer,
        typing("thinking", "informative", streamSequence=1),
        typing("Hel", "streaming", streamSequence=2),
        typing("Hello", "streaming", streamSequence=3),
    )
    assert events == [Progress("thinking"), TextDelta("Hel"), TextDelta("lo")]
    assert answer.open
    entity = {"type": "streaminfo", "streamType": "final", "streamId": "s"}
    assert told(answer, message("Hello", entities=[entity])) == [MessageReady("Hello", "s")]
    assert not answer.open


def test_the_older_form_of_pieces_is_read_too(answer: Answer) -> None:
    first = activity(type="typing", id="a1", text="Hel", channelData={"streamType": "streaming", "streamSequence": 1})
    second = activity(
        type="typing",
        id="a2",
        text="Hello",
        channelData={"streamType": "streaming", "streamSequence": 2, "streamId": "a1"},
    )
    final = message("Hello", channelData={"streamType": "final", "streamId": "a1"})
    assert told(answer, first, second, final) == [TextDelta("Hel"), TextDelta("lo"), MessageReady("Hello", "a1")]


def test_a_message_that_ends_as_a_sign_of_typing_is_taken_back(answer: Answer) -> None:
    assert told(answer, typing("I think", "streaming"), typing("", "final")) == [
        TextDelta("I think"),
        MessageReady("", "s"),
    ]


@pytest.mark.parametrize("result", ["timeout", "error"])
def test_a_message_that_is_not_whole_ends_the_answer_with_its_reason(answer: Answer, result: str) -> None:
    entity = {"type": "streaminfo", "streamType": "final", "streamId": "s", "streamResult": result}
    told(answer, message("Hel", entities=[entity]))
    assert answer.completed("c", state={}).finish == result


def test_a_bare_sign_of_typing_is_nothing(answer: Answer) -> None:
    assert told(answer, activity(type="typing")) == []
    assert not answer.spoke


@pytest.mark.parametrize("kind", ["trace", "conversationUpdate", "event", "handoff", ""])
def test_other_activities_say_nothing(answer: Answer, kind: str) -> None:
    assert told(answer, activity(type=kind, name="anything", value={"a": 1}, text="not this")) == []
    assert not answer.spoke


# --- questions


def test_suggested_actions_make_a_question_of_the_last_message(answer: Answer) -> None:
    assert told(answer, message("Sure?", suggestedActions=YES)) == []
    done = answer.completed("c", state={})
    assert done.ending is Ending.INPUT_REQUIRED
    assert done.message == (Part(text="Sure?"), Part(data=CHOICES, media_type="application/json"))


def test_a_bot_that_expects_input_has_asked(answer: Answer) -> None:
    told(answer, message("Your name?", inputHint="expectingInput"))
    assert answer.expects
    done = answer.completed("c", state={})
    assert (done.ending, done.message) == (Ending.INPUT_REQUIRED, (Part(text="Your name?"),))


def test_a_question_that_something_follows_is_a_part_of_the_answer(answer: Answer) -> None:
    told(answer, message("Sure?", suggestedActions=YES, id="q"))
    assert told(answer, message("Never mind.")) == [
        TextDelta("Sure?"),
        MessageReady("Sure?", "q"),
        PartReady(Part(data=CHOICES, media_type="application/json")),
        TextDelta("Never mind."),
        MessageReady("Never mind.", "m"),
    ]
    assert answer.completed("c", state={}).ending is Ending.COMPLETED


def test_a_question_in_pieces_is_told_and_asked(answer: Answer) -> None:
    entity = {"type": "streaminfo", "streamType": "final", "streamId": "s"}
    told(answer, typing("Su", "streaming"))
    events = told(answer, message("Sure?", entities=[entity], suggestedActions=YES))
    assert events == [TextDelta("re?"), MessageReady("Sure?", "s")]
    done = answer.completed("c", state={})
    assert done.message == (Part(text="Sure?"), Part(data=CHOICES, media_type="application/json"))


def test_a_card_with_choices_is_a_question_with_the_text_of_the_card(answer: Answer) -> None:
    content = {"title": "Order 7", "buttons": [{"type": "postBack", "title": "Yes", "value": "y"}]}
    told(answer, message("Look:", attachments=[{"contentType": f"{CARD}hero", "content": content}]))
    done = answer.completed("c", state={})
    assert done.message == (Part(text="Look:\n\nOrder 7"), Part(data=CHOICES, media_type="application/json"))


def test_a_card_that_asks_nothing_is_a_text(answer: Answer) -> None:
    content = {"body": [{"type": "TextBlock", "text": "Sunny"}]}
    events = told(answer, message("Today", attachments=[{"contentType": f"{CARD}adaptive", "content": content}]))
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Today", "Sunny"]


# --- consent, files, the end


@pytest.mark.parametrize(("kind", "party"), [("oauth", "oauth:mail"), ("signin", "")])
def test_a_card_for_signing_in_asks_for_consent(answer: Answer, kind: str, party: str) -> None:
    buttons = [{"type": "signin", "title": "Sign in", "value": "https://login.example/"}]
    content = {"text": "Please sign in", "connectionName": "mail", "buttons": buttons}
    events = told(answer, message(attachments=[{"contentType": f"{CARD}{kind}", "content": content}]))
    assert events == [ConsentAsked("https://login.example/", party, "Please sign in")]
    assert answer.completed("c", state={}).message is None


def test_consent_comes_before_a_question(answer: Answer) -> None:
    buttons = [{"type": "signin", "title": "Sign in", "value": "https://login.example/"}]
    card = {"contentType": f"{CARD}oauth", "content": {"text": "Please", "buttons": buttons}}
    told(answer, message("Sign in or go on", attachments=[card], suggestedActions=YES))
    assert [event.text for event in answer.close() if isinstance(event, TextDelta)] == ["Sign in or go on"]
    assert answer.completed("c", state={}).ending is Ending.COMPLETED


def test_files_are_parts_by_address_by_bytes_and_as_data(answer: Answer) -> None:
    attachments = [
        {"contentType": "image/png", "contentUrl": "https://files.example/a.png", "name": "a.png"},
        {"contentType": "text/plain", "contentUrl": "data:text/plain;base64,aGVsbG8="},
        {"contentType": "application/json", "content": {"a": 1}},
    ]
    events = told(answer, message("here", attachments=attachments))
    assert events[2:] == [
        PartReady(Part(url="https://files.example/a.png", media_type="image/png", filename="a.png")),
        PartReady(Part(raw="aGVsbG8=", media_type="text/plain")),
        PartReady(Part(data={"a": 1}, media_type="application/json")),
    ]


def test_a_conversation_that_has_ended_has_no_question(answer: Answer) -> None:
    told(answer, message("More?", suggestedActions=YES), activity(type="endOfConversation", code="botTimedOut"))
    assert answer.ended == "botTimedOut"
    assert [event.text for event in answer.close() if isinstance(event, TextDelta)] == ["More?"]
    assert answer.completed("c", state={}).ending is Ending.COMPLETED


def test_the_words_of_an_end_are_a_message(answer: Answer) -> None:
    assert told(answer, activity(type="endOfConversation", id="e", text="Bye.")) == [
        TextDelta("Bye."),
        MessageReady("Bye.", "e"),
    ]


# --- steps of a plan


def step(name: str, **value: Any) -> Activity:
    common = {"stepId": "st", "taskDialogId": "MCP:orders:find", "planIdentifier": "p"}
    return activity(type="event", name=name, value=common | value)


def test_a_step_of_a_plan_is_a_tool_call_that_the_agent_runs(answer: Answer) -> None:
    events = told(
        answer,
        step("DynamicPlanStepTriggered", thought="I need the order.", state="inProgress"),
        step("DynamicPlanStepBindUpdate", arguments={"id": 7}),
    )
    assert events == [
        ReasoningDelta("I need the order.\n"),
        ToolCallAnnounced("st", "find", handled=True, server="mcp:orders"),
        ToolCallReady("st", "find", '{"id":7}', handled=True, server="mcp:orders"),
    ]
    assert answer.open
    assert told(answer, step("DynamicPlanStepFinished", observation={"ok": 1}, state="completed")) == [
        ToolResultReady("st", {"ok": 1})
    ]
    assert not answer.open


def test_a_step_of_which_only_the_end_comes_is_told_whole(answer: Answer) -> None:
    finished = activity(
        type="event",
        valueType="DynamicPlanStepFinished",
        value={"stepId": "st", "taskDialogId": "P:UniversalSearchTool", "state": "failed", "observation": "no"},
    )
    assert told(answer, finished, finished) == [
        ToolCallAnnounced("st", "UniversalSearchTool", handled=True),
        ToolCallReady("st", "UniversalSearchTool", "{}", handled=True),
        ToolResultReady("st", "no", error=True),
    ]


def test_a_tool_that_reports_its_failure_has_failed(answer: Answer) -> None:
    events = told(answer, step("DynamicPlanStepFinished", observation={"isError": True}, state="completed"))
    assert events[-1] == ToolResultReady("st", {"isError": True}, error=True)


def test_steps_in_the_middle_of_a_message_are_told_behind_it(answer: Answer) -> None:
    told(answer, typing("Let me", "streaming"))
    assert told(answer, step("DynamicPlanStepTriggered")) == []
    entity = {"type": "streaminfo", "streamType": "final", "streamId": "s"}
    events = told(answer, message("Let me see.", entities=[entity]))
    assert events[-1] == ToolCallAnnounced("st", "find", handled=True, server="mcp:orders")


@pytest.mark.parametrize("value", [None, [], {"stepId": 5}, {"taskDialogId": {}}])
def test_a_step_without_names_is_left_out(answer: Answer, value: Any) -> None:
    assert told(answer, activity(type="event", name="DynamicPlanStepTriggered", value=value)) == []


# --- what cannot be read


@pytest.mark.parametrize("content", [None, 5, "text", []])
def test_what_is_no_activity_is_left_out(content: Any) -> None:
    assert read(content) is None


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("broken", [{"text": {}}, {"text": ["Hi"]}, {"value": nested(200)}])
def test_a_message_whose_words_cannot_be_read_is_an_error(answer: Answer, broken: dict[str, Any]) -> None:
    found = read({"type": "message", "id": "a1", "replyToId": "a0", "from": {"id": "bot"}, **broken})
    assert found is not None
    assert (found.id, found.reply_to_id, found.sender) == ("a1", "a0", Account("bot"))
    with pytest.raises(ValueError, match="a message cannot be read"):
        answer.receive(found)


@pytest.mark.parametrize(
    "odd",
    [
        {"attachments": {}},
        {"attachments": [None, "text"]},
        {"attachments": [{"contentType": "text/plain", "contentUrl": 5}]},
        {"suggestedActions": []},
        {"suggestedActions": {"actions": {}}},
        {"from": []},
        {"from": "bot"},
        {"conversation": "c"},
        {"id": 5},
        {"replyToId": {}},
        {"inputHint": 5},
        {"entities": {}, "channelData": "text"},
        {"name": [], "valueType": {}},
    ],
)
def test_a_field_of_another_form_costs_no_words(answer: Answer, odd: dict[str, Any]) -> None:
    found = read({"type": "message", "text": "Hi", **odd})
    assert found is not None
    assert TextDelta("Hi") in answer.receive(found)
    assert not any(isinstance(event, PartReady) for event in answer.close())


def test_a_number_is_the_text_that_shows_it(answer: Answer) -> None:
    actions = [{"type": "imBack", "title": 5, "value": None}]
    found = read({"type": "message", "text": 7.5, "suggestedActions": {"actions": actions}})
    assert found is not None
    told(answer, found)
    done = answer.completed("c", state=None)
    assert done.message == (
        Part(text="7.5"),
        Part(data={"choices": [{"title": "5", "value": "5"}]}, media_type="application/json"),
    )


def test_an_attachment_that_stands_alone_is_one(answer: Answer) -> None:
    found = read({"type": "message", "attachments": {"contentType": "text/html", "contentUrl": "https://a.example/"}})
    assert found is not None
    assert told(answer, found) == [PartReady(Part(url="https://a.example/", media_type="text/html"))]


def test_the_numbers_of_a_stream_may_be_texts_and_its_id_a_number() -> None:
    info = {"type": "streaminfo", "streamType": "streaming", "streamId": 7, "streamSequence": "2"}
    found = read({"type": "typing", "text": "a", "entities": [info]})
    assert found is not None
    assert stream_of(found) == StreamInfo("streaming", "7", 2)


@pytest.mark.parametrize(
    ("url", "raw"),
    [
        ("data:text/plain;base64,aGVs bG8", "aGVsbG8="),
        ("data:text/plain;base64,aGVsbG8", "aGVsbG8="),
        ("data:text/plain;base64,aGVsbG8%3D", "aGVsbG8="),
        ("data:text/plain;base64,-_-_", "+/+/"),
        ("data:text/plain,hello%20w", "aGVsbG8gdw=="),
        ("data:text/plain;base64,@@@bad", None),
        ("data:text/plain;base64,aaaaa", None),
        ("data:text/plain", None),
    ],
)
def test_bytes_within_an_address_are_told_in_one_form_or_as_the_address(
    answer: Answer, url: str, raw: str | None
) -> None:
    [event] = told(answer, message("", attachments=[{"contentType": "text/plain", "contentUrl": url}]))
    assert isinstance(event, PartReady)
    assert (event.part.raw, event.part.url) == (raw, None if raw else url)


@pytest.mark.parametrize(("given", "found"), [("42", "42"), (42, "42"), (None, None), ("", None), ({}, None)])
def test_a_watermark_is_a_text_and_never_none(given: Any, found: str | None) -> None:
    assert read_set({"activities": [], "watermark": given}) == ([], found)


# --- activities of one id ---------------------------------------------------------------------------------------------


def words(events: list[AdapterEvent]) -> list[str]:
    """The messages as callers have them in the end."""
    shown: dict[str, str] = {}
    for number, event in enumerate(events):
        if isinstance(event, MessageReady):
            shown[event.key or str(number)] = event.text
    return list(shown.values())


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([("m1", "first"), ("m1", "second")], ["first", "second"]),
        ([("m1", "first"), ("m2", "second"), ("m1", "third")], ["first", "second", "third"]),
        ([("m1", "first"), ("m1", "second"), ("m1", "third")], ["first", "second", "third"]),
        ([("m1", "first"), ("m1", "first")], ["first"]),
        ([("m1", "first"), ("m2", "second"), ("m1", "first")], ["first", "second"]),
        ([("m1", "first"), ("m1", "second"), ("m1", "first"), ("m1", "second")], ["first", "second"]),
        ([("m1", "first"), ("m2", "second"), ("m1", "first, longer")], ["first, longer", "second"]),
        ([("m1", "first"), ("m1", "second"), ("m1", "second, longer")], ["first", "second, longer"]),
        ([("", "first"), ("", "first")], ["first", "first"]),
    ],
)
def test_messages_of_one_id_are_each_told_once(answer: Answer, given: list[tuple[str, str]], shown: list[str]) -> None:
    assert words(told(answer, *(message(text, id=name) for name, text in given))) == shown


def test_a_message_that_comes_again_with_other_data_of_its_channel_is_told_once(answer: Answer) -> None:
    first, again = (message("Hello", channelData={"at": number}) for number in (1, 2))
    assert told(answer, first, again) == [TextDelta("Hello"), MessageReady("Hello", "m")]


def test_an_update_of_a_message_tells_the_file_once_that_it_brings_again(answer: Answer) -> None:
    file = {"contentType": "text/csv", "contentUrl": "https://h/a.csv"}
    events = told(answer, message("Here", attachments=[file]), message("Here it is", attachments=[file]))
    assert words(events) == ["Here it is"]
    assert len([event for event in events if isinstance(event, PartReady)]) == 1


def test_a_question_that_comes_again_is_asked_once(answer: Answer) -> None:
    asked = message("Sure?", suggestedActions=YES)
    assert told(answer, asked, asked) == []
    assert answer.completed("c", state={}).message == (
        Part(text="Sure?"),
        Part(data=CHOICES, media_type="application/json"),
    )


def test_a_question_that_is_updated_is_asked_as_it_is_now(answer: Answer) -> None:
    assert told(answer, message("Sure?", suggestedActions=YES), message("Sure? (2 left)", suggestedActions=YES)) == []
    done = answer.completed("c", state={})
    assert done.message == (Part(text="Sure? (2 left)"), Part(data=CHOICES, media_type="application/json"))


def test_the_words_of_cards_in_messages_without_an_id_are_each_told(answer: Answer) -> None:
    card = {"contentType": f"{CARD}hero", "content": {"text": "Look"}}
    events = told(answer, *(message(id="", attachments=[card]) for _ in range(2)))
    assert words(events) == ["Look", "Look"]


def test_a_message_of_the_id_of_a_stream_is_told_beside_it(answer: Answer) -> None:
    pieces = typing("Hel", "streaming", streamSequence=1), typing("Hello", "final")
    assert words(told(answer, *pieces, message("Other", id="s"))) == ["Hello", "Other"]


def test_a_stream_of_the_id_of_a_message_is_told_beside_it(answer: Answer) -> None:
    pieces = typing("Hel", "streaming", streamSequence=1), typing("Hello", "final")
    assert words(told(answer, message("Other", id="s"), *pieces)) == ["Other", "Hello"]
