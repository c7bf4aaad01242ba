"""Complete answers that are repeated as a whole."""

import pytest

from gateway.a2a.model import Artifact, Message, Part, Role, TaskArtifactUpdateEvent
from gateway.core.task_record import ADK, ForAdk, TurnOutput, suits_adk, whole_artifacts

OPENING = Message(message_id="m", role=Role.USER, parts=(Part(text="hi"),))


def update(artifact: str, text: str, *, append: bool = False, last: bool = False) -> TaskArtifactUpdateEvent:
    made = Artifact(artifact_id=artifact, parts=(Part(text=text),))
    return TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=made, append=append, last_chunk=last)


@pytest.mark.parametrize(
    ("setting", "named", "expected"),
    [("auto", {ADK}, True), ("auto", {"other"}, False), ("always", set(), True), ("never", {ADK}, False)],
)
def test_who_gets_an_answer_whole_and_marked_thoughts(setting: ForAdk, named: set[str], expected: bool) -> None:
    assert suits_adk(setting, frozenset(named)) is expected


def test_an_artifact_in_pieces_comes_whole_in_place_of_them() -> None:
    output = TurnOutput(OPENING)
    output.apply(update("a", "one "))
    output.apply(update("a", "two", append=True))
    assert list(whole_artifacts(output, "t", "c")) == [update("a", "one two", last=True)]


def test_an_artifact_that_was_closed_or_goes_on_from_an_earlier_turn_is_left_as_it_is() -> None:
    output = TurnOutput(OPENING)
    output.apply(update("closed", "one "))
    output.apply(update("closed", "two", append=True, last=True))
    output.apply(update("earlier", "more", append=True))
    assert list(whole_artifacts(output, "t", "c")) == []


def test_an_artifact_that_starts_again_is_open_again() -> None:
    output = TurnOutput(OPENING)
    output.apply(update("a", "one", last=True))
    output.apply(update("a", "two"))
    assert list(whole_artifacts(output, "t", "c")) == [update("a", "two", last=True)]
