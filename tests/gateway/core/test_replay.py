"""The updates of a repeated service call that are shown; whole turns are in tests/scenarios/test_background.py."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.a2a.model import Artifact, Message, Part, Role, TaskArtifactUpdateEvent
from gateway.a2a.tool_calls import CallFacts, requested
from gateway.core.replay import Replay, ShownOutput
from gateway.core.task_record import TurnOutput, calls_without_end
from gateway.ledger.events import Update


def answer_of(shown: TurnOutput) -> str:
    return next(iter(shown.artifacts), "")


WORDS = st.lists(st.text("ab", min_size=1, max_size=3), max_size=5)


def saying(text: str, *, append: bool = True) -> TaskArtifactUpdateEvent:
    return TaskArtifactUpdateEvent(
        task_id="t", context_id="c", artifact=Artifact(artifact_id="a", parts=(Part(text=text),)), append=append
    )


def output() -> TurnOutput:
    return TurnOutput(Message(message_id="m", role=Role.USER, parts=(Part(text="1"),)))


def text_of(shown: TurnOutput) -> str:
    return "".join(part.text or "" for growing in shown.artifacts.values() for part in growing.whole().parts)


@given(earlier=WORDS, shown=WORDS, told=WORDS)
def test_the_final_answer_is_the_earlier_output_and_the_repeated_call(
    earlier: list[str], shown: list[str], told: list[str]
) -> None:
    out = output()
    for word in earlier:
        out.apply(saying(word, append=bool(out.artifacts)))
    before = ShownOutput(out, answer_of(out))
    for word in shown:
        out.apply(saying(word, append=bool(out.artifacts)))
    replay = Replay(before, ShownOutput(out, answer_of(out)))
    updates: list[Update] = []
    for word in told:
        update = replay.filter(saying(word, append=bool(replay.answer) or bool(updates)))
        if update is not None:
            updates.append(update)
            out.apply(update)
    whole = replay.finish()
    if whole is not None:
        out.apply(TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=whole))
    assert text_of(out) == "".join(earlier) + "".join(told)
    if "".join(told).startswith("".join(shown)):
        assert all(update.append for update in updates if isinstance(update, TaskArtifactUpdateEvent) and replay.answer)
        assert len(updates) <= len(told)


def test_the_gap_behind_an_earlier_message_is_no_part_of_what_was_not_said_again() -> None:
    out = output()
    out.apply(saying("let me see", append=False))
    before = ShownOutput(out, "a")
    begun = Artifact(artifact_id="a", parts=(Part(text="\n\n"), Part(text="it is 3")))
    out.apply(TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=begun, append=True))
    replay = Replay(before, ShownOutput(out, "a"))
    assert replay.unsaid == (Part(text="it is 3"),)
    again = Artifact(artifact_id="a", parts=(Part(text="\n\n"), Part(text="it ")))
    assert replay.filter(TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=again, append=True)) is None
    assert replay.unsaid == (Part(text="is 3"),)
    replay.filter(saying("is 3"))
    assert list(replay.unsaid) == []


def test_a_part_of_an_agent_or_of_a_caller_that_speaks_of_a_call_is_no_call_of_the_turn() -> None:
    out = output()
    part = requested(CallFacts("call_of_another", "look", 0, 0, "backend", None, ""), "{}")
    out.apply(TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=Artifact(artifact_id="a", parts=(part,))))
    out.messages.append(Message(message_id="2", role=Role.USER, parts=(part,)))
    assert calls_without_end(out) == ()
    assert ShownOutput(out, "a").calls == ()
