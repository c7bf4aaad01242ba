"""When a turn is over: by the bot's word, or by how long it is silent."""

from typing import Any

import pytest

from adapters.copilot.activities import read
from adapters.copilot.answer import Answer
from adapters.copilot.direct_line.turn_end import Patience, TurnEnd

QUIET, TYPING, ANSWER = 2.0, 10.0, 60.0
START = 1000.0


class Turn:
    """A turn whose message is taken at once, as `mine`, of a bot that does not say what it answers."""

    def __init__(self, *, delivered: bool = True, replies: bool | None = False) -> None:
        self.answer = Answer(cumulative=True)
        self.end = TurnEnd(Patience(QUIET, TYPING, ANSWER), START, replies)
        if delivered:
            self.end.name("mine")
            self.end.deliver(START)

    def hear(self, kind: str = "message", at: float = START, **given: Any) -> None:
        activity = read({"type": kind, **given})
        assert activity is not None
        self.end.hear(activity, at)
        self.answer.receive(activity)

    @property
    def waits(self) -> float | None:
        deadline = self.end.deadline(self.answer)
        return None if deadline is None else deadline - self.end.since


def piece(kind: str) -> dict[str, Any]:
    return {"entities": [{"type": "streaminfo", "streamType": kind, "streamId": "s"}]}


def test_nothing_is_over_before_the_message_is_taken() -> None:
    turn = Turn(delivered=False)
    turn.hear(text="Hello")
    assert turn.waits is None


def test_a_bot_whose_message_the_service_still_delivers_is_at_work() -> None:
    turn = Turn(delivered=False)
    turn.end.name("mine")
    turn.hear(text="Hello", replyToId="mine")
    assert turn.waits is None
    turn.end.deliver(START + 9)
    assert turn.end.deadline(turn.answer) == START + 9 + QUIET


def test_a_bot_has_its_time_to_answer() -> None:
    turn = Turn()
    assert turn.waits == ANSWER
    assert not turn.end.is_over(turn.answer)


def test_a_message_is_followed_by_a_short_silence() -> None:
    turn = Turn()
    turn.hear(text="Hello", at=START + 5)
    assert turn.end.deadline(turn.answer) == START + 5 + QUIET
    assert turn.end.is_over(turn.answer)


def test_a_bot_that_expects_input_is_not_waited_for() -> None:
    turn = Turn()
    turn.hear(text="Your name?", inputHint="expectingInput")
    assert turn.waits == 0


@pytest.mark.parametrize("more", [{"kind": "typing"}, {"kind": "message", "text": "b", "inputHint": "ignoringInput"}])
def test_a_sign_that_more_follows_makes_the_silence_longer(more: dict[str, Any]) -> None:
    turn = Turn()
    turn.hear(text="a")
    turn.hear(**more)
    assert turn.waits == TYPING
    turn.hear(text="c")
    assert turn.waits == QUIET


def test_a_message_in_pieces_has_the_time_of_an_answer() -> None:
    turn = Turn()
    turn.hear(text="a")
    turn.hear("typing", text="b", **piece("streaming"))
    assert turn.waits == ANSWER
    assert not turn.end.is_over(turn.answer)
    turn.hear(text="bc", **piece("final"))
    assert turn.waits == QUIET


def test_a_step_of_a_plan_has_the_time_of_an_answer() -> None:
    turn = Turn()
    turn.hear(text="Let me see.")
    value = {"stepId": "st", "taskDialogId": "find"}
    turn.hear("event", name="DynamicPlanStepTriggered", value=value)
    assert turn.waits == ANSWER
    turn.hear("event", name="DynamicPlanStepFinished", value=value)
    assert turn.waits == TYPING


def test_a_message_taken_back_is_an_answer_too() -> None:
    turn = Turn()
    turn.hear("typing", **piece("streaming"))
    turn.hear("typing", **piece("final"))
    assert turn.waits == QUIET


def test_what_answers_another_activity_is_not_the_answer() -> None:
    """A greeting answers the start of the conversation, and may come at any time."""
    turn = Turn()
    turn.hear(text="Welcome!", replyToId="another")
    assert turn.waits == ANSWER
    turn.hear(text="You said hi", replyToId="mine")
    assert turn.waits == QUIET


def test_a_bot_that_said_something_else_and_then_nothing_has_answered() -> None:
    turn = Turn()
    turn.hear(text="Welcome!", replyToId="another")
    assert turn.end.is_over(turn.answer)


def test_what_does_not_say_what_it_answers_may_be_the_answer() -> None:
    turn = Turn()
    turn.hear(text="Hello")
    assert turn.waits == QUIET
    assert turn.end.replied is False


@pytest.mark.parametrize("more", [{}, {"inputHint": "expectingInput"}])
def test_in_the_first_turn_it_may_be_a_greeting_too(more: dict[str, Any]) -> None:
    turn = Turn(replies=None)
    turn.hear(text="Welcome!", **more)
    assert turn.waits == TYPING
    turn.hear(text="You said hi", replyToId="mine")
    assert turn.waits == QUIET
    assert turn.end.replied is True


def test_a_bot_that_says_what_it_answers_has_not_answered_by_anything_else() -> None:
    turn = Turn(replies=True)
    turn.hear(text="By the way")
    assert turn.waits == ANSWER
    turn.hear(text="You said hi", replyToId="mine")
    assert turn.waits == QUIET


def test_a_bot_that_no_longer_says_what_it_answers_is_waited_for_once() -> None:
    """A human may have taken over."""
    turn = Turn(replies=True)
    turn.hear(text="Hello, this is Ann.")
    assert turn.end.is_over(turn.answer)
    assert turn.end.replied is False


def test_nothing_said_changes_nothing_of_what_is_known() -> None:
    assert [Turn(replies=known).end.replied for known in (None, False, True)] == [None, False, True]


def test_where_the_message_has_no_id_any_reply_is_the_answer() -> None:
    end, answer = TurnEnd(Patience(QUIET, TYPING, ANSWER), START), Answer(cumulative=True)
    end.deliver(START)
    reply = read({"type": "message", "text": "Hi", "replyToId": "unknown"})
    assert reply is not None
    end.hear(reply, START)
    answer.receive(reply)
    assert end.deadline(answer) == START + QUIET
