"""Tasks as texts."""

from typing import Any

from gateway.cli.talk.render import first_text, state_of, transcript

CALL = {"data": {"name": "lookup", "args": {"q": 1}}, "metadata": {"adk_type": "function_call"}}


def message(role: str, name: str, *parts: Any) -> dict[str, Any]:
    return {"messageId": name, "role": role, "parts": list(parts)}


TASK = {
    "id": "t-1",
    "contextId": "c-1",
    "status": {
        "state": "TASK_STATE_INPUT_REQUIRED",
        "message": message("ROLE_AGENT", "m-3", {"text": "Which\x1b city?"}),
    },
    "history": [
        message("ROLE_USER", "m-1", {"text": "What is "}, {"text": "it?"}, {"raw": "AAAA", "filename": "a.png"}),
        message("ROLE_AGENT", "m-2", CALL),
    ],
    "artifacts": [
        {"artifactId": "a-1", "parts": [{"text": "Hm."}, {"data": {"a": 1}}]},
        {"artifactId": "a-2", "name": "report", "parts": [{"url": "https://example.com/r"}]},
    ],
}


def test_a_transcript_holds_all_messages_and_artifacts_in_order() -> None:
    assert list(transcript(TASK)) == [
        "you: What is it?",
        "you: file: a.png 3 bytes",
        'agent: tool: lookup {"q":1}',
        "agent: Hm.",
        'agent: {"a":1}',
        "agent, report: file: https://example.com/r",
        "agent: Which\\x1b city?",
    ]


def test_the_final_message_stands_once_in_the_transcript() -> None:
    closing: Any = TASK["status"]["message"]  # type: ignore[index]
    task = {**TASK, "artifacts": [], "history": [closing]}
    assert list(transcript(task)) == ["agent: Which\\x1b city?"]


def test_a_task_is_summarised_by_the_first_text_of_its_user_and_its_state() -> None:
    assert (first_text(TASK), state_of(TASK)) == ("What is it?", "input required")


def test_json_of_another_shape_gives_no_transcript() -> None:
    for task in (None, {}, {"history": [1, {"parts": 2}], "artifacts": "x", "status": {"message": 3}}):
        assert list(transcript(task)) == []
        assert (first_text(task), state_of(task)) == ("", "")


def test_a_quarantined_task_says_what_can_be_done() -> None:
    *_, last = transcript({**TASK, "metadata": {"quarantined": True}})
    assert last == (
        "put aside, because nobody could end it, and without what it had shown: cancel it, or delete its context"
    )
