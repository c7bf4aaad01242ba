"""The public record of a task: the same whether it is folded from updates, from stored turns, or from both."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from gateway.a2a.model import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.core.task_record import TurnOutput, assemble
from gateway.ledger.events import Update
from gateway.ledger.tasks import StoredArtifact, TurnRecord

DONE = TaskStatus(state=TaskState.COMPLETED, timestamp="2026-11-20T10:00:00.000Z")
FILE = Part(raw="AA==", media_type="image/png")


def said(text: str, message_id: str = "m", role: Role = Role.USER) -> Message:
    return Message(message_id=message_id, role=role, parts=(Part(text=text),))


def shows(*parts: Part, artifact: str = "a", append: bool = True, name: str | None = None) -> Update:
    made = Artifact(artifact_id=artifact, name=name, parts=parts)
    return TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=made, append=append)


def tells(message: Message | None) -> Update:
    status = TaskStatus(state=TaskState.WORKING, message=message)
    return TaskStatusUpdateEvent(task_id="t", context_id="c", status=status)


def output(*updates: Update, opening: str = "hi") -> TurnOutput:
    made = TurnOutput(said(opening, f"m-{opening}"))
    for update in updates:
        made.apply(update)
    return made


def stored(made: TurnOutput) -> TurnOutput:
    """As the ledger returns it."""
    artifacts = msgspec.json.decode(made.artifacts_json(), type=tuple[StoredArtifact, ...])
    messages = msgspec.json.decode(made.messages_json(None), type=tuple[Message, ...])
    return TurnOutput.stored(TurnRecord(made.message, 0, messages, artifacts, ended=True))


def task(*outputs: TurnOutput, status: TaskStatus = DONE, history_length: int | None = None) -> Task:
    return assemble("t", "c", status, outputs, history_length=history_length)


def artifacts(*outputs: TurnOutput) -> dict[str, tuple[Part, ...]]:
    return {artifact.artifact_id: artifact.parts for artifact in task(*outputs).artifacts or ()}


# --- artifacts ---


def test_the_first_text_of_an_update_continues_the_text_before_it_and_every_other_part_stands_by_itself() -> None:
    first, more = shows(Part(text="a"), append=False), shows(Part(text="b"))
    made = output(first, more, shows(Part(text="c"), Part(text="d")), shows(Part(text="e")))
    assert artifacts(made) == {"a": (Part(text="abc"), Part(text="de"))}
    assert artifacts(stored(made)) == artifacts(made)


@pytest.mark.parametrize(
    "other",
    [
        FILE,
        Part(data=None),
        Part(text="x", metadata={"k": 1}),
        Part(text="x", filename="f"),
        Part(text="x", media_type="text/markdown"),
    ],
)
def test_a_part_that_says_more_than_text_stays_by_itself(other: Part) -> None:
    made = output(shows(Part(text="a"), append=False), shows(other), shows(Part(text="b")), shows(Part(text="c")))
    assert artifacts(made) == {"a": (Part(text="a"), other, Part(text="bc"))}


def test_an_artifact_without_append_takes_the_place_of_the_one_with_its_id() -> None:
    made = output(
        shows(Part(text="old"), append=False, name="first"),
        shows(Part(text="beside"), artifact="b", append=False),
        shows(Part(text="new"), append=False, name="second"),
    )
    assert task(made).artifacts == (
        Artifact(artifact_id="a", name="second", parts=(Part(text="new"),)),
        Artifact(artifact_id="b", parts=(Part(text="beside"),)),
    )


def test_what_is_appended_to_an_unknown_artifact_begins_it() -> None:
    assert artifacts(output(shows(Part(text="a")))) == {"a": (Part(text="a"),)}


def test_an_empty_artifact_is_one() -> None:
    assert artifacts(output(shows(append=False))) == {"a": ()}


def test_a_later_turn_appends_to_the_artifact_of_an_earlier_one() -> None:
    first, second = output(shows(Part(text="a"), append=False, name="one")), output(shows(Part(text="b")))
    assert task(first, second).artifacts == (Artifact(artifact_id="a", name="one", parts=(Part(text="ab"),)),)


def test_a_later_turn_replaces_the_artifact_of_an_earlier_one() -> None:
    first = output(shows(Part(text="a"), append=False))
    second = output(shows(Part(text="b"), append=False, name="two"), shows(Part(text="c")))
    assert task(first, second).artifacts == (Artifact(artifact_id="a", name="two", parts=(Part(text="bc"),)),)


def test_looking_at_a_growing_artifact_does_not_change_it() -> None:
    made = output(shows(Part(text="a"), append=False))
    assert artifacts(made) == {"a": (Part(text="a"),)}
    made.apply(shows(Part(text="b")))
    assert artifacts(made) == {"a": (Part(text="ab"),)}
    assert artifacts(made, output()) == {"a": (Part(text="ab"),)}
    made.apply(shows(Part(text="c")))
    assert artifacts(made) == {"a": (Part(text="abc"),)}


# --- history ---


def test_the_history_is_the_message_of_each_turn_and_what_the_agent_said_in_it() -> None:
    first = output(tells(said("one", "1", Role.AGENT)), tells(None), opening="hi")
    second = output(tells(said("two", "2", Role.AGENT)), opening="ho")
    assert [entry.parts[0].text for entry in task(first, second).history or ()] == ["hi", "one", "ho", "two"]


def test_the_message_of_the_status_is_not_in_the_history_as_well() -> None:
    asks = said("which?", "q", Role.AGENT)
    waiting = TaskStatus(state=TaskState.INPUT_REQUIRED, message=asks)
    seen = task(output(tells(said("one", "1", Role.AGENT)), tells(asks)), status=waiting)
    assert [entry.message_id for entry in seen.history or ()] == ["m-hi", "1"]


@pytest.mark.parametrize(
    ("length", "kept"),
    [(None, ["hi", "one", "two"]), (0, None), (1, ["two"]), (2, ["one", "two"]), (9, ["hi", "one", "two"])],
)
def test_the_latest_messages_are_given(length: int | None, kept: list[str] | None) -> None:
    made = output(tells(said("one", "1", Role.AGENT)), tells(said("two", "2", Role.AGENT)))
    history = task(made, history_length=length).history
    assert (history and [entry.parts[0].text for entry in history]) == kept


def test_artifacts_are_left_out_when_nobody_asks_for_them() -> None:
    assert assemble("t", "c", DONE, [output(shows(Part(text="a")))], artifacts=False).artifacts is None


# --- stored and live agree ---

_PART = some.builds(Part, text=some.text(max_size=3)) | some.just(FILE)
_UPDATE = some.builds(
    shows, _PART, _PART, artifact=some.sampled_from(["a", "b"]), append=some.booleans()
) | some.integers().map(lambda n: tells(said("x", str(n), Role.AGENT)))


@given(some.lists(some.lists(_UPDATE, max_size=6), min_size=1, max_size=4))
def test_turns_that_were_stored_make_the_same_task(turns: list[list[Update]]) -> None:
    live = [output(*updates) for updates in turns]
    assert task(*map(stored, live)) == task(*live)
    assert task(*map(stored, live[:-1]), live[-1]) == task(*live)


@given(some.lists(_UPDATE, max_size=6), some.integers(0, 6))
def test_a_turn_goes_on_from_where_it_was_stored(updates: list[Update], at: int) -> None:
    made = stored(output(*updates[:at]))
    for update in updates[at:]:
        made.apply(update)
    assert task(made) == task(output(*updates))


def test_the_turn_that_has_not_ended_has_its_message_only() -> None:
    opened = TurnRecord(said("hi"), 0, None, None, ended=False)
    assert task(TurnOutput.stored(opened)) == task(TurnOutput(said("hi")))


def test_the_last_message_of_a_turn_can_be_stored_before_it_has_happened() -> None:
    made = output(tells(said("one", "1", Role.AGENT)))
    assert made.messages_json(None) == msgspec.json.encode([said("one", "1", Role.AGENT)])
    both = [said("one", "1", Role.AGENT), said("two", "2", Role.AGENT)]
    assert made.messages_json(said("two", "2", Role.AGENT)) == msgspec.json.encode(both)
    assert len(made.messages) == 1
