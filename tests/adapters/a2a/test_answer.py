"""What an agent says of a task, in pieces and as a whole: nothing is lost, and nothing is given out twice."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from adapters.a2a.answer import AnswerReader, ends
from adapters.a2a.artifacts import Content, left
from adapters.a2a.ending import broken_off, completed
from adapters.a2a.state import Asked, Left, ThreadState, Waiting, mark
from adapters.a2a.state import read as read_state
from gateway.a2a.model import (
    Artifact,
    Json,
    Message,
    Part,
    Role,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.a2a.tool_calls import URI
from gateway.core.turn.output import REASONING_URI
from gateway.ports.adapter import (
    AdapterEvent,
    AnswerReplaced,
    ApprovalAsked,
    ArtifactReady,
    CallCompleted,
    CallStarted,
    ConsentAsked,
    Ending,
    MessageReady,
    PartReady,
    Progress,
    ReasoningDelta,
    TextDelta,
    ToolResultReady,
)

STARTED = CallStarted("c", run="t")
FILE = Part(raw="AAE=", filename="x.bin", media_type="image/png")


def said(*parts: Part | str, message_id: str = "m", metadata: dict[str, Json] | None = None) -> Message:
    content = tuple(Part(text=each) if isinstance(each, str) else each for each in parts)
    return Message(message_id=message_id, role=Role.AGENT, parts=content, metadata=metadata)


def status(
    state: TaskState = TaskState.WORKING,
    message: Message | None = None,
    *,
    metadata: dict[str, Json] | None = None,
    at: str | None = None,
) -> StreamResponse:
    found = TaskStatus(state=state, message=message, timestamp=at)
    return StreamResponse(
        status_update=TaskStatusUpdateEvent(task_id="t", context_id="c", status=found, metadata=metadata)
    )


def piece(*parts: Part | str, key: str = "a", append: bool = False, last: bool = False, **head: Any) -> StreamResponse:
    update = TaskArtifactUpdateEvent(
        task_id="t", context_id="c", artifact=artifact(*parts, key=key, **head), append=append, last_chunk=last
    )
    return StreamResponse(artifact_update=update)


def whole(
    state: TaskState = TaskState.COMPLETED,
    *artifacts: Artifact,
    message: Message | None = None,
    history: Sequence[Message] = (),
    at: str | None = None,
    **more: Any,
) -> StreamResponse:
    found = TaskStatus(state=state, message=message, timestamp=at)
    task = Task(
        id="t", context_id="c", status=found, artifacts=artifacts or None, history=tuple(history) or None, **more
    )
    return StreamResponse(task=task)


def artifact(*texts: Part | str, key: str = "a", **head: Any) -> Artifact:
    content = tuple(Part(text=each) if isinstance(each, str) else each for each in texts)
    return Artifact(artifact_id=key, parts=content, **head)


def read(reader: AnswerReader, *found: StreamResponse) -> list[AdapterEvent]:
    return [event for each in found for event in reader.receive(each)]


def reader(**more: Any) -> AnswerReader:
    return AnswerReader(None, "fallback", **{"public": "mine", **more})


def events(*found: StreamResponse, **more: Any) -> list[AdapterEvent]:
    """All that comes behind the start."""
    first, *rest = read(reader(**more), *found)
    assert first == STARTED
    return rest


def finished(*found: StreamResponse, thread: ThreadState | None = None, **more: Any) -> list[AdapterEvent]:
    used = reader(**more)
    seen = read(used, *found)
    assert used.last is not None
    return [*seen, *completed(used, used.last, thread or ThreadState(), "ours")]


def end(found: list[AdapterEvent]) -> CallCompleted:
    last = found[-1]
    assert isinstance(last, CallCompleted)
    return last


# --- ids --------------------------------------------------------------------------------------------------------------


def test_the_first_word_names_the_context_and_the_task_and_later_ones_do_not() -> None:
    assert read(reader(), status(), status(), piece("x")) == [STARTED, TextDelta("x")]


def test_a_context_without_a_name_keeps_the_one_it_has_or_gets_one() -> None:
    message = StreamResponse(message=said("Hi"))
    assert read(reader(), message)[0] == CallStarted("fallback", run=None)
    assert read(AnswerReader("known", "fallback"), message)[0] == CallStarted("known", run=None)


def test_a_stream_has_nothing_behind_a_message_and_behind_the_last_status() -> None:
    assert ends(StreamResponse(message=said("Hi")))
    assert ends(status(TaskState.COMPLETED))
    assert ends(status(TaskState.AUTH_REQUIRED))
    assert not ends(status())
    assert not ends(piece("x", last=True))


def test_what_an_agent_says_of_another_task_is_no_word_of_this_call() -> None:
    stray = TaskStatus(state=TaskState.COMPLETED)
    others = [
        StreamResponse(status_update=TaskStatusUpdateEvent(task_id="other", context_id="c", status=stray)),
        StreamResponse(
            artifact_update=TaskArtifactUpdateEvent(task_id="other", context_id="c", artifact=artifact("not mine"))
        ),
        StreamResponse(task=Task(id="other", context_id="c", status=stray)),
        StreamResponse(message=msgspec.structs.replace(said("not mine"), task_id="other")),
    ]
    used = reader()
    assert read(used, status(), *others, piece("mine")) == [STARTED, TextDelta("mine")]
    assert used.last is None


# --- the answer -------------------------------------------------------------------------------------------------------


def test_the_first_plain_artifact_is_the_answer() -> None:
    assert events(piece("one "), piece("two", append=True)) == [TextDelta("one "), TextDelta("two")]


@pytest.mark.parametrize("head", [{"name": "report.md"}, {"description": "d"}, {"metadata": {"k": 1}}])
def test_an_artifact_with_a_name_or_more_goes_on_as_it_is(head: dict[str, Any]) -> None:
    begun, more = piece("one", **head), piece("two", append=True)
    assert begun.artifact_update is not None
    assert more.artifact_update is not None
    assert events(begun, more) == [
        ArtifactReady(begun.artifact_update.artifact),
        ArtifactReady(more.artifact_update.artifact, append=True),
    ]


def test_a_second_artifact_is_one_of_its_own() -> None:
    other = piece("two", key="b", last=True)
    assert other.artifact_update is not None
    assert events(piece("one"), other) == [
        TextDelta("one"),
        ArtifactReady(other.artifact_update.artifact, last_chunk=True, within_text=True),
    ]


def test_an_artifact_behind_a_file_of_the_answer_is_not_within_a_text() -> None:
    *_, beside = events(piece("one", FILE), piece("two", key="b"))
    assert beside == ArtifactReady(artifact("two", key="b"))


def test_a_file_in_the_answer_is_a_part_of_it() -> None:
    assert events(piece("see: ", FILE), piece(" there", append=True)) == [
        TextDelta("see: "),
        PartReady(FILE),
        TextDelta(" there"),
    ]


def test_a_text_behind_a_text_in_one_update_is_another_message() -> None:
    assert events(piece("one"), piece(".", "two", append=True)) == [
        TextDelta("one"),
        TextDelta("."),
        MessageReady("one."),
        TextDelta("two"),
    ]


def test_an_answer_that_is_said_again_as_a_whole_is_given_out_once() -> None:
    assert events(piece("one "), piece("two", append=True), piece("one two", last=True)) == [
        TextDelta("one "),
        TextDelta("two"),
    ]


NOTE = piece("aside", key="n", name="note")
CALLED = Part(data={"id": "c1", "name": "look", "args": {}}, metadata={"type": "function_call"})


def told(*found: StreamResponse, **more: Any) -> list[AdapterEvent]:
    """The events of the answer."""
    kinds = (TextDelta, MessageReady, PartReady, AnswerReplaced)
    return [event for event in events(*found, **more) if isinstance(event, kinds)]


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ([piece("one")], [TextDelta("one")]),
        ([piece("one", "two")], [TextDelta("one"), MessageReady("one"), TextDelta("two")]),
        ([piece("one"), NOTE], [TextDelta("one")]),
        ([piece("one", FILE)], [TextDelta("one"), PartReady(FILE)]),
        ([piece("one"), status(message=said(CALLED))], [TextDelta("one")]),
    ],
    ids=["a text", "two texts", "behind an artifact", "with a file", "behind a tool call"],
)
def test_an_answer_that_becomes_another_one_replaces_the_first(
    before: list[StreamResponse], said: list[AdapterEvent]
) -> None:
    becomes = [AnswerReplaced((Part(text="other"), FILE)), TextDelta("more")]
    assert told(*before, piece("other", FILE), piece("more", append=True)) == [*said, *becomes]


def test_an_answer_that_was_replaced_grows_on_and_is_not_said_again_as_a_whole() -> None:
    found = [piece("draft"), piece("fin"), piece("al", append=True), whole(TaskState.COMPLETED, artifact("final"))]
    assert told(*found) == [TextDelta("draft"), AnswerReplaced((Part(text="fin"),)), TextDelta("al")]


CALL = status(message=said(CALLED))
WITHIN = {"an artifact": NOTE, "a file": status(message=said(FILE)), "a line": status(message=said("at work"))}


@pytest.mark.parametrize("between", [*WITHIN.values(), CALL], ids=[*WITHIN, "a tool call"])
@pytest.mark.parametrize(("before", "first"), [("one ", ""), ("one", "\n\n")])
def test_behind_another_output_nothing_is_said_twice(between: StreamResponse, before: str, first: str) -> None:
    """Another gateway begins a part of its answer with what keeps two texts apart."""
    found = [piece(before), between, piece(first, "two", append=True), piece(" three", append=True)]
    ends = [] if between is CALL else [MessageReady(before)]
    assert told(*found) == [TextDelta(before), *ends, TextDelta("two"), TextDelta(" three")]


@pytest.mark.parametrize("between", WITHIN.values(), ids=WITHIN)
def test_a_text_goes_on_behind_another_output_of_its_agent(between: StreamResponse) -> None:
    found = [piece("Hel"), between, piece("lo", append=True), piece(" you", "Bye", append=True)]
    assert told(*found) == [
        TextDelta("Hel"),
        TextDelta("lo"),
        TextDelta(" you"),
        MessageReady("Hello you"),
        TextDelta("Bye"),
    ]


def test_texts_behind_a_tool_call_are_parts_of_their_own() -> None:
    assert told(piece("one "), CALL, piece("two ", "three", append=True)) == [
        TextDelta("one "),
        TextDelta("two "),
        MessageReady("two "),
        TextDelta("three"),
    ]


def test_white_space_of_the_agent_behind_a_tool_call_is_kept() -> None:
    assert told(piece("one"), CALL, piece("\n", "two", append=True)) == [
        TextDelta("one"),
        TextDelta("\n"),
        MessageReady("\n"),
        TextDelta("two"),
    ]


def test_an_answer_that_grows_as_a_whole_behind_another_output_is_said_once() -> None:
    assert told(piece("one "), NOTE, piece("one two")) == [TextDelta("one "), TextDelta("two")]


def test_an_artifact_that_is_repeated_as_it_is_is_given_out_once() -> None:
    begun = piece("a", key="n", description="d")
    assert len(events(begun, begun)) == 1


# --- whole tasks ------------------------------------------------------------------------------------------------------


def test_a_whole_task_gives_what_its_pieces_would_have_given() -> None:
    pieces = artifact("one ", "two", FILE, key="a")
    assert events(whole(TaskState.COMPLETED, pieces)) == [TextDelta("one two"), PartReady(FILE)]


def test_a_task_that_is_looked_at_again_gives_what_is_new() -> None:
    looks = [
        whole(TaskState.WORKING, artifact(*texts)) for texts in (["one "], ["one ", "two "], ["one ", "two ", "three"])
    ]
    assert events(*looks) == [TextDelta("one "), TextDelta("two "), TextDelta("three")]


def test_a_file_that_an_answer_gets_later_is_not_lost_between_two_looks() -> None:
    looks = [whole(TaskState.WORKING, artifact(*parts)) for parts in (["one "], ["one ", FILE], ["one ", FILE, "two"])]
    assert events(*looks) == [TextDelta("one "), PartReady(FILE), TextDelta("two")]


def test_a_note_of_a_task_that_is_looked_at_again_comes_once() -> None:
    look = whole(TaskState.WORKING, message=said("looking"))
    assert events(look, look) == [Progress("looking")]


def test_what_follows_a_whole_task_continues_it() -> None:
    """SubscribeToTask of 1.0: the task first, then what is new."""
    found = [whole(TaskState.WORKING, artifact("one ", "two ")), piece("three", append=True)]
    assert events(*found) == [TextDelta("one two "), TextDelta("three")]


def test_the_words_of_a_history_are_no_part_of_the_answer() -> None:
    found = whole(TaskState.COMPLETED, artifact("yes"), history=[said("thinking"), said("still thinking")])
    assert events(found) == [TextDelta("yes")]


# --- a task that is continued -----------------------------------------------------------------------------------------

ASKED = whole(TaskState.INPUT_REQUIRED, artifact("before", key="a"), message=said("Which?", message_id="q"))
assert ASKED.task is not None
WAITING = Waiting(
    task="t",
    ours="ours",
    since=mark(ASKED.task.status),
    artifacts=(left("a", Content([Part(text="before")]), "earlier"),),
)


def test_a_task_that_still_waits_as_before_has_not_begun_to_go_on() -> None:
    used = reader(waiting=WAITING)
    assert read(used, ASKED) == [STARTED]
    assert used.last is None


def test_of_a_continued_task_only_what_is_new_is_given_out() -> None:
    done = whole(TaskState.COMPLETED, artifact("before", key="a"), artifact("after", key="b"))
    assert events(ASKED, done, waiting=WAITING) == [TextDelta("after")]


def replaced(
    *parts: Part | str, key: str = "a", append: bool = False, last: bool = False, **head: Any
) -> ArtifactReady:
    return ArtifactReady(artifact(*parts, key=key, **head), append=append, last_chunk=last)


@pytest.mark.parametrize(
    ("looks", "seen"),
    [
        ([("second",)], [replaced("second", key="earlier", last=True)]),
        ([("before", " and after")], [replaced("before and after", key="earlier", last=True)]),
        ([("before", FILE)], [replaced("before", FILE, key="earlier", last=True)]),
        ([("befor",)], [replaced("befor", key="earlier", last=True)]),
        ([()], [replaced(key="earlier", last=True)]),
        ([("before",)], []),
        ([("second",), ("second",)], [replaced("second", key="earlier"), None]),
    ],
    ids=["replaced", "grown", "with a file", "shortened", "emptied", "left alone", "looked at again"],
)
def test_an_answer_of_an_earlier_turn_that_the_agent_changes_is_changed(
    looks: list[tuple[Part | str, ...]], seen: list[AdapterEvent | None]
) -> None:
    *working, last = looks
    found = [whole(TaskState.WORKING, artifact(*parts)) for parts in working]
    done = whole(TaskState.COMPLETED, artifact(*last))
    assert events(ASKED, *found, done, waiting=WAITING) == [event for event in seen if event]


def test_an_answer_of_an_earlier_turn_goes_on_in_pieces_under_its_id() -> None:
    for first in ([], [ASKED]):
        found = events(*first, status(), piece(" and", append=True), piece(" after", append=True), waiting=WAITING)
        assert found == [replaced(each, key="earlier", append=True) for each in (" and", " after")]


def test_an_answer_of_an_earlier_turn_that_is_replaced_in_pieces_is_replaced() -> None:
    found = events(ASKED, piece("second "), piece("answer", append=True), waiting=WAITING)
    assert found == [replaced("second ", key="earlier"), replaced("answer", key="earlier", append=True)]


def test_what_an_agent_says_again_in_its_next_turn_is_said_again() -> None:
    assert events(ASKED, piece("before"), waiting=WAITING) == [replaced("before", key="earlier")]


def test_an_artifact_that_this_turn_has_told_is_told_again_whole_where_it_is_listened_to_again() -> None:
    """The agent may have made it again what it was before, or what would be the answer."""
    again = {"waiting": WAITING, "shown": frozenset({"earlier", "b"})}
    stored = whole(TaskState.WORKING, artifact("before"), artifact("now a text", key="b"), artifact("answer", key="c"))
    for found in ([stored], [stored, stored]):
        assert events(*found, **again) == [
            replaced("before", key="earlier"),
            replaced("now a text", key="b"),
            TextDelta("answer"),
        ]


def test_a_named_artifact_of_an_earlier_turn_is_replaced_when_it_has_changed() -> None:
    earlier = left("r", Content([Part(text="v1")]), "")
    same, other = artifact("v1", key="r", name="report"), artifact("v2", key="r", name="report")
    waiting = Waiting(task="t", ours="ours", artifacts=(earlier,))
    assert events(whole(TaskState.WORKING, same), whole(TaskState.WORKING, other), waiting=waiting) == [
        ArtifactReady(other)
    ]


def test_an_answer_beside_one_of_an_earlier_turn_is_that_of_this_turn() -> None:
    found = events(ASKED, piece("new", key="b"), piece("old", key="a"), waiting=WAITING)
    assert found == [TextDelta("new"), ArtifactReady(artifact("old", key="earlier"), within_text=True)]


def test_what_every_turn_left_is_known_in_the_next_one() -> None:
    asks = status(TaskState.INPUT_REQUIRED, said("And?", message_id="q2"))
    again = finished(ASKED, piece(" more", append=True), piece("two", key="b"), asks, waiting=WAITING)
    waiting = read_state(end(again).state).waiting
    assert waiting is not None
    known = [("a", "before more", "earlier"), ("b", "two", "mine")]
    assert waiting.artifacts == tuple(left(name, Content([Part(text=text)]), shown) for name, text, shown in known)


def test_an_artifact_that_grew_unseen_from_an_unknown_beginning_is_told_as_a_whole_later() -> None:
    asks = status(TaskState.INPUT_REQUIRED, said("And?", message_id="q2"))
    again = finished(piece(" more", append=True), asks, waiting=WAITING)
    waiting = read_state(end(again).state).waiting
    assert waiting is not None
    assert waiting.artifacts == (Left("a", "earlier"),)
    stored = whole(TaskState.WORKING, artifact("before more"))
    assert events(stored, waiting=waiting) == [replaced("before more", key="earlier")]


# --- a call that continues the turn: its questions were answered --------------------------------------------------------

SAME_TURN = Waiting(task="t", ours="ours", artifacts=(left("a", Content([Part(text="Let me check.")]), "mine"),))


def test_an_answer_goes_on_behind_a_question_of_its_turn() -> None:
    stored = whole(TaskState.WORKING, artifact("Let me check."))
    grown = [piece("\n\n", "It is", append=True), piece(" 3.", append=True)]
    assert events(stored, *grown, waiting=SAME_TURN) == [TextDelta("It is"), TextDelta(" 3.")]
    done = whole(TaskState.COMPLETED, artifact("Let me check.\n\n", "It is 3."))
    assert events(stored, *grown, done, waiting=SAME_TURN) == [TextDelta("It is"), TextDelta(" 3.")]
    assert events(done, waiting=SAME_TURN) == [TextDelta("It is 3.")]


def test_an_answer_is_replaced_behind_a_question_as_far_as_the_agent_has_replaced_it() -> None:
    spoken = [piece("\n\n", "It is 4.", append=True), piece("Let me check.\n\n", "It is 3.")]
    stored = whole(TaskState.WORKING, artifact("Let me check."))
    for first in ([], [stored]):
        [*_, last] = events(*first, *spoken, waiting=SAME_TURN)
        assert last == AnswerReplaced((Part(text="\n\nIt is 3."),))
    assert events(stored, piece("No."), waiting=SAME_TURN) == [AnswerReplaced((Part(text="No."),), of_turn=True)]


def test_calls_of_a_continued_task_that_were_given_out_are_not_given_out_again() -> None:
    call = Part(data={"id": "c1", "name": "pay", "args": {}}, metadata={"type": "function_call"})
    paid = Part(data={"id": "c1", "name": "pay", "response": {"result": 1}}, metadata={"type": "function_response"})
    told = [said(call), said(paid, message_id="n")]
    again = whole(TaskState.COMPLETED, artifact("done"), history=told)
    for heard, new in ((told, []), (told[:1], [ToolResultReady("c1", 1)])):
        asking = finished(*(status(message=each) for each in heard), status(TaskState.INPUT_REQUIRED, said("?")))
        waiting = read_state(end(asking).state).waiting
        assert waiting is not None
        assert waiting.calls == ("c1",)
        assert events(again, waiting=waiting) == [*new, TextDelta("done")]


def test_a_status_that_waits_again_ends_the_call() -> None:
    used = reader(waiting=WAITING)
    read(used, ASKED, status(TaskState.INPUT_REQUIRED, said("And which?", message_id="q2")))
    assert used.last is not None
    assert used.last.state is TaskState.INPUT_REQUIRED


def test_the_task_with_which_a_reply_begins_may_be_from_before_the_message() -> None:
    stored = whole(TaskState.INPUT_REQUIRED, artifact("before"), at="another time")
    used = reader(waiting=WAITING, replies=True)
    assert read(used, stored) == [STARTED]
    assert (used.last, used.doubtful) == (None, stored.task.status if stored.task else None)
    assert read(used, status(), piece("done", key="b")) == [TextDelta("done")]
    assert (used.last, used.doubtful) == (None, None)
    read(used, status(TaskState.COMPLETED))
    assert used.last is not None


@pytest.mark.parametrize("state", [TaskState.COMPLETED, TaskState.REJECTED])
def test_a_reply_that_begins_with_a_task_that_has_ended_is_at_its_end(state: TaskState) -> None:
    used = reader(waiting=WAITING, replies=True)
    read(used, whole(state))
    assert used.last is not None


def test_a_status_that_nothing_tells_from_another_always_counts() -> None:
    assert mark(TaskStatus(state=TaskState.INPUT_REQUIRED)) == ""
    used = reader(waiting=Waiting(task="t", ours="ours"))
    read(used, whole(TaskState.INPUT_REQUIRED))
    assert used.last is not None


# --- the work ---------------------------------------------------------------------------------------------------------


def test_a_message_of_a_working_status_is_a_line_on_the_work() -> None:
    assert events(status(message=said("looking", "it up"))) == [Progress("looking\nit up")]


def test_a_file_of_a_working_status_is_an_artifact_of_its_own() -> None:
    assert events(status(message=said("see", FILE, message_id="m7"))) == [
        ArtifactReady(artifact(FILE, key="m7"), last_chunk=True),
        Progress("see"),
    ]


def test_reasoning_is_reasoning_in_pieces_and_once_as_a_whole() -> None:
    found = [status(metadata={REASONING_URI: {"delta": each}}) for each in ("let ", "me see")]
    assert events(*found, status(message=said("let me see"))) == [ReasoningDelta("let "), ReasoningDelta("me see")]


def test_a_part_that_is_marked_as_a_thought_is_reasoning() -> None:
    thought = Part(text="hm", metadata={"adk_thought": True})
    assert events(status(message=said(thought))) == [ReasoningDelta("hm")]


# --- LangGraph --------------------------------------------------------------------------------------------------------


def test_texts_of_langgraph_that_grow_are_the_answer() -> None:
    grown = [status(message=said(text, message_id=text)) for text in ("echo", "echo hi", "echo hi there")]
    response = piece("echo hi there", description="Response from assistant")
    assert events(*grown, response, langgraph=True) == [TextDelta("echo"), TextDelta(" hi"), TextDelta(" there")]


def test_a_second_message_of_langgraph_is_one_of_its_own() -> None:
    found = [status(message=said(text, message_id=text)) for text in ("let me", "let me look", "It is", "It is 3C")]
    assert events(*found, piece("It is 3C", description="d"), langgraph=True) == [
        TextDelta("let me"),
        TextDelta(" look"),
        MessageReady("let me look"),
        TextDelta("It is"),
        TextDelta(" 3C"),
        MessageReady("It is 3C"),
    ]


def test_a_stored_task_of_langgraph_has_its_answer_in_its_history() -> None:
    asked = Message(message_id="u", role=Role.USER, parts=(Part(text="Hi"),))
    history = [asked, said("old"), asked, said("new")]
    found = whole(message=said("Task completed successfully"), history=history)
    assert finished(found, langgraph=True) == [
        STARTED,
        TextDelta("new"),
        CallCompleted("c", state={"task": "t", "calls": 1, "tasks": {"ours": "t"}}),
    ]


# --- the end ----------------------------------------------------------------------------------------------------------


def test_a_bare_message_is_the_answer_without_a_task() -> None:
    found = finished(StreamResponse(message=said("Hi", FILE)))
    assert found[1:] == [TextDelta("Hi"), PartReady(FILE), CallCompleted("fallback", state={"calls": 1})]


def test_words_that_come_only_with_the_last_status_are_the_answer() -> None:
    assert finished(status(TaskState.COMPLETED, said("done")))[1:-1] == [TextDelta("done")]


def test_words_of_the_last_status_that_repeat_the_answer_are_not_said_again() -> None:
    assert end(finished(piece("done"), status(TaskState.COMPLETED, said("done")))).message is None


def test_other_words_of_the_last_status_are_those_of_the_task() -> None:
    assert end(finished(piece("3C"), status(TaskState.COMPLETED, said("Bye.")))).message == (Part(text="Bye."),)


@pytest.mark.parametrize(
    ("state", "ending"),
    [(TaskState.REJECTED, Ending.REJECTED), (TaskState.INPUT_REQUIRED, Ending.INPUT_REQUIRED)],
)
def test_a_refusal_and_a_question_end_with_the_agents_words(state: TaskState, ending: Ending) -> None:
    last = end(finished(status(state, said("Which?", FILE))))
    assert (last.ending, last.message) == (ending, (Part(text="Which?"), FILE))


def test_a_task_that_waits_is_kept_with_what_was_given_out() -> None:
    last = end(finished(piece("one"), status(TaskState.INPUT_REQUIRED, said("Which?"), at="now")))
    assert last.state["waiting"] == {
        "task": "t",
        "ours": "ours",
        "since": "TASK_STATE_INPUT_REQUIRED m now",
        "artifacts": [msgspec.to_builtins(left("a", Content([Part(text="one")]), "mine"))],
    }


def test_a_task_that_broke_off_leaves_a_word_in_the_record() -> None:
    used = reader()
    read(used, status(TaskState.FAILED, said("out of ink")))
    assert used.last is not None
    assert list(broken_off(used, used.last)) == [
        TextDelta("(the task is failed: out of ink)"),
        CallCompleted("c", state={"task": "t"}),
    ]


def test_tokens_of_a_gateway_and_of_google_adk_are_reported() -> None:
    turn = {"inputTokens": 7, "cachedTokens": 2, "outputTokens": 3, "reasoningTokens": 1, "totalTokens": 10}
    last = end(finished(status(TaskState.COMPLETED, metadata={"usage": {"turn": turn, "task": turn}})))
    assert last.usage == {
        "input_tokens": 7,
        "output_tokens": 3,
        "total_tokens": 10,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    adk = {"promptTokenCount": 5}
    assert end(finished(whole(metadata={"adk_usage_metadata": adk}))).usage == adk


# --- approvals and consent --------------------------------------------------------------------------------------------


def test_a_question_for_approval_is_asked_and_the_call_goes_on_when_it_is_answered() -> None:
    tools = [{"id": "q1", "name": "pay", "args": {"eur": 3}}]
    asking = said("May it?", metadata={URI: {"approval": {"requestId": "r", "tools": tools}}})
    found = finished(status(TaskState.INPUT_REQUIRED, asking))
    assert found[1] == ApprovalAsked("q1", "pay", '{"eur":3}', "")
    assert (end(found).ending, end(found).message) == (Ending.COMPLETED, None)
    assert end(found).state["waiting"]["asked"] == [{"id": "q1", "name": "pay", "arguments": '{"eur":3}'}]


def test_a_page_for_consent_is_asked_for_and_remembered() -> None:
    found = finished(status(TaskState.AUTH_REQUIRED, said("Log in first:", "https://login.example/x")))
    assert found[1] == ConsentAsked("https://login.example/x", text="Log in first:")
    assert (end(found).ending, end(found).message) == (Ending.AUTH_REQUIRED, None)
    assert end(found).state["waiting"]["consent"] is True


def test_an_agent_that_wants_something_else_than_a_page_says_so_itself() -> None:
    last = end(finished(status(TaskState.AUTH_REQUIRED, said("Send me your badge."))))
    assert (last.ending, last.message) == (Ending.AUTH_REQUIRED, (Part(text="Send me your badge."),))


def test_asked_calls_of_a_waiting_task_are_known_to_its_next_call() -> None:
    waiting = Waiting(task="t", ours="ours", asked=(Asked("q1", "pay", "{}"),))
    assert AnswerReader("c", "f", waiting).tools.asked == {"q1": Asked("q1", "pay", "{}")}
