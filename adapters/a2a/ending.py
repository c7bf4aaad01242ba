"""The end of a call, from the status with which its task ended or waits. Law: pure; a task that failed is an error, and what an
agent says with its last status is given out once."""

from collections.abc import Iterator

from adapters.a2a import consent, state
from adapters.a2a.answer import AnswerReader
from adapters.a2a.state import Asked, ThreadState, Waiting
from gateway.a2a.model import INTERRUPTED, Message, Part, TaskState, TaskStatus
from gateway.ports.adapter import AdapterEvent, CallCompleted, DirectReply, Ending, PartReady, TextDelta
from gateway.ports.conversation import is_plain

_ENDINGS = {
    TaskState.COMPLETED: Ending.COMPLETED,
    TaskState.REJECTED: Ending.REJECTED,
    TaskState.INPUT_REQUIRED: Ending.INPUT_REQUIRED,
    TaskState.AUTH_REQUIRED: Ending.AUTH_REQUIRED,
}
SETTLED = frozenset(_ENDINGS)
"""The states of a task whose call is complete."""


def words(status: TaskStatus) -> str:
    """What the agent says with the status, for a log."""
    parts = status.message.parts if status.message is not None else ()
    said = " ".join(part.text for part in parts if part.text)
    return f"the task is {status.state.removeprefix('TASK_STATE_').lower()}{f': {said}' if said else ''}"


def wait(status: TaskStatus) -> float | None:
    """Seconds until another message may do better, as a gateway says with a failure. Source: docs/concepts.md."""
    match status.message:
        case Message(metadata={"retryAfter": int() | float() as seconds}) if not isinstance(seconds, bool):
            return seconds
    return None


def completed(reader: AnswerReader, status: TaskStatus, thread: ThreadState, ours: str) -> Iterator[AdapterEvent]:
    """The last events of a call that ended with one of the states `SETTLED`. `thread` is the state before it, and `ours` the
    gateway's task, which is empty where neither is known."""
    message, ending = status.message, _ENDINGS[status.state]
    questions = reader.tools.questions(message.metadata if message is not None else None)
    yield from reader.tools.ask(questions)
    parts = message.parts if message is not None else ()
    if questions:
        # The gateway asks its caller, and goes on with the task when everything is decided.
        ending, parts = Ending.COMPLETED, ()
    elif ending is Ending.AUTH_REQUIRED:
        pages = consent.pages(message)
        yield from pages
        parts = () if pages else parts
    elif ending is Ending.COMPLETED and parts:
        if reader.silent:
            yield from map(_event, parts)
            parts = ()
        elif _text(parts) == reader.said:
            parts = ()
    waiting = _waiting(reader, status, ours, questions) if ours else None
    following = thread.after(ours, reader.task, waiting) if ours else ThreadState(task=reader.task)
    if reader.bare:
        yield DirectReply(reader.bare, following.write(), reader.context)
        return
    yield CallCompleted(
        handle=reader.context, ending=ending, message=parts or None, usage=reader.usage, state=following.write()
    )


def broken_off(reader: AnswerReader, status: TaskStatus) -> Iterator[AdapterEvent]:
    """The last events of a task that failed or was cancelled, for the record of the conversation."""
    if reader.silent:
        yield TextDelta(f"({words(status)})")
    yield CallCompleted(handle=reader.context, state=ThreadState(task=reader.task).write())


def _waiting(reader: AnswerReader, status: TaskStatus, ours: str, questions: tuple[Asked, ...]) -> Waiting | None:
    if status.state not in INTERRUPTED or not reader.task:
        return None
    return Waiting(
        task=reader.task,
        ours=ours,
        since=state.mark(status),
        consent=status.state is TaskState.AUTH_REQUIRED,
        artifacts=reader.artifacts.left()[-state.GIVEN :],
        calls=tuple(reader.tools.told)[-state.GIVEN :],
        given=dict(list(reader.tools.given.items())[-state.GIVEN :]),
        asked=questions,
    )


def _event(part: Part) -> AdapterEvent:
    return TextDelta(part.text or "") if is_plain(part) else PartReady(part)


def _text(parts: tuple[Part, ...]) -> str:
    return "".join(part.text or "" for part in parts)
