"""The artifacts of a task as callers get them are those of the agent, in whatever way they were told: any updates, over two
turns, streamed, looked at, or cut and listened to again, behind one gateway and behind two."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from hypothesis import given
from hypothesis import strategies as some

from adapters.a2a.answer import AnswerReader
from adapters.a2a.artifacts import joined
from adapters.a2a.ending import completed
from adapters.a2a.state import ThreadState, Waiting
from adapters.a2a.state import read as read_state
from gateway.a2a.model import (
    Artifact,
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
from gateway.core.replay import Replay, ShownOutput
from gateway.core.task_record import TurnOutput, answer_id, assemble
from gateway.core.turn.commands import Publish
from gateway.core.turn.machine import TurnFacts, TurnMachine
from gateway.foundation.clock import Clock
from gateway.ledger.events import Update
from gateway.ports.adapter import CallCompleted
from tests.support.scripted import BS

FILE = Part(raw="AA==", media_type="image/png")
ASKS = TaskStatus(state=TaskState.INPUT_REQUIRED, message=Message(message_id="q", role=Role.AGENT, parts=()))
DONE = TaskStatus(state=TaskState.COMPLETED)
NAMES = {"r": "report"}

Event: TypeAlias = TaskArtifactUpdateEvent | Message
"""An update, or a line on the work."""
Seen: TypeAlias = list[tuple[str, tuple[Part, ...]]]


def said(message: Message) -> StreamResponse:
    status = TaskStatus(state=TaskState.WORKING, message=message)
    return StreamResponse(status_update=TaskStatusUpdateEvent(task_id="t", context_id="c", status=status))


def seen(artifacts: Iterable[Artifact]) -> Seen:
    """Names and parts, of those that have any. An empty text is none, and the agent's texts need nothing between them."""
    found = [(each.name or "", joined(part for part in each.parts if part.text != "")) for each in artifacts]
    return sorted((each for each in found if each[1]), key=repr)


@dataclass
class Agent:
    """The agent's own record of its task."""

    artifacts: dict[str, Artifact] = field(default_factory=dict)

    def take(self, event: Event) -> StreamResponse:
        if isinstance(event, Message):
            return said(event)
        new = event.artifact
        old = self.artifacts.get(new.artifact_id)
        parts = (*old.parts, *new.parts) if old is not None and event.append else new.parts
        self.artifacts[new.artifact_id] = Artifact(artifact_id=new.artifact_id, name=new.name, parts=parts)
        return StreamResponse(artifact_update=event)

    def task(self, status: TaskStatus) -> StreamResponse:
        artifacts = tuple(self.artifacts.values())
        return StreamResponse(task=Task(id="t", context_id="c", status=status, artifacts=artifacts))


@dataclass
class Gateway:
    """The gateway's record of the task, turn by turn. `published` is what its callers got in the last one."""

    outputs: list[TurnOutput] = field(default_factory=list)
    published: list[Update] = field(default_factory=list)
    waiting: Waiting | None = None
    machine: TurnMachine = field(init=False)
    reader: AnswerReader = field(init=False)
    before: ShownOutput = field(init=False)
    replay: Replay | None = None

    def begin(self) -> None:
        turn = f"turn {len(self.outputs)}"
        self.outputs.append(TurnOutput(Message(message_id="m", role=Role.USER, parts=())))
        self.machine = TurnMachine(TurnFacts(task_id="ours", context_id="c", turn=turn, ownership=BS), Clock())
        self.replay = None
        self.before = ShownOutput(self.outputs[-1], "")
        self.published = []
        self.listen()

    def listen(self) -> None:
        """The call begins, or is listened to again."""
        public = answer_id(self.machine.facts.turn)
        shown = frozenset(self.outputs[-1].artifacts) - {public}
        self.reader = AnswerReader("c", "f", self.waiting, public=public, shown=shown)

    def listen_again(self) -> None:
        self.replay = Replay(self.before, ShownOutput(self.outputs[-1], self.machine.answer))
        self.machine.replay_call(self.replay.answer, self.replay.before, self.replay.calls)
        self.listen()

    def hear(self, found: StreamResponse) -> None:
        for event in self.reader.receive(found):
            self._publish(self.machine.receive(event))

    def end(self, status: TaskStatus) -> None:
        for event in completed(self.reader, status, ThreadState(), "ours"):
            self._publish(self.machine.receive(event))
            if isinstance(event, CallCompleted):
                self.waiting = read_state(event.state).waiting
        whole = self.replay.finish() if self.replay is not None else None
        if whole is not None:
            self._add(TaskArtifactUpdateEvent(task_id="ours", context_id="c", artifact=whole))

    def artifacts(self) -> tuple[Artifact, ...]:
        return assemble("ours", "c", DONE, self.outputs).artifacts or ()

    def _publish(self, commands: Sequence[object]) -> None:
        for command in commands:
            if isinstance(command, Publish):
                update = command.update if self.replay is None else self.replay.filter(command.update)
                if update is not None:
                    self._add(update)

    def _add(self, update: Update) -> None:
        self.published.append(update)
        self.outputs[-1].apply(update)


WORDS = [Part(text=f"{word} ") for word in "abc"]
REST = some.lists(some.sampled_from([*WORDS, FILE, Part(text="")]), max_size=2)
PARTS = some.builds(lambda first, rest: (first, *rest), some.sampled_from(WORDS), REST)
"""They begin with a text, as every answer does."""


def update(key: str, parts: tuple[Part, ...], append: bool) -> TaskArtifactUpdateEvent:
    artifact = Artifact(artifact_id=key, name=NAMES.get(key), parts=parts)
    return TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=artifact, append=append)


KEYS = some.sampled_from(["a", "a", "b", "r"])
UPDATES = some.builds(update, KEYS, PARTS, some.booleans())
ANY = some.builds(update, KEYS, some.one_of(PARTS, REST.map(tuple)), some.booleans())
LINES = some.sampled_from([Message(message_id=str(n), role=Role.AGENT, parts=(Part(text="hm"),)) for n in range(3)])
TURNS = some.lists(some.one_of(ANY, ANY, LINES), max_size=6)
WAYS = some.sampled_from(["streamed", "without the task", "looked at", "cut", "cut and looked at"])


def play(agent: Agent, gateway: Gateway, events: Sequence[Event], way: str, place: int, last: TaskStatus) -> None:
    """One turn. `place` is where a stream is cut, and the number of events that its listener misses."""
    gateway.begin()
    working = TaskStatus(state=TaskState.WORKING)
    streams, gap = way != "looked at", place % 3
    if way != "without the task":
        gateway.hear(agent.task(working))
    for index, event in enumerate(events):
        found = agent.take(event)
        if way.startswith("cut") and place <= index <= place + gap:
            streams = index == place + gap and way == "cut"
            if index == place + gap:
                gateway.listen_again()
                gateway.hear(agent.task(working))
        elif streams:
            gateway.hear(found)
        elif index % 2:
            gateway.hear(agent.task(working))
    if not streams:
        if way.startswith("cut") and place < len(events) <= place + gap:
            gateway.listen_again()
        gateway.hear(agent.task(last))
    gateway.end(last)


@given(TURNS, WAYS, TURNS, WAYS, some.integers(0, 5))
def test_callers_have_the_artifacts_of_the_agent(
    first: list[Event], way: str, second: list[Event], later: str, place: int
) -> None:
    agent, gateway = Agent(), Gateway()
    play(agent, gateway, first, way, place, ASKS)
    assert seen(gateway.artifacts()) == seen(agent.artifacts.values())
    play(agent, gateway, second, later, place, DONE)
    assert seen(gateway.artifacts()) == seen(agent.artifacts.values())


PIECES = some.builds(
    lambda key, word: update(key, (Part(text=word),), append=True),
    KEYS,
    some.sampled_from(["Hel", "lo", " wor", "ld. "]),
)
ASIDES = some.sampled_from(
    [Message(message_id=str(n), role=Role.AGENT, parts=(FILE, Part(text="hm"))) for n in range(3)]
)


@given(some.lists(some.one_of(PIECES, PIECES, LINES, ASIDES), max_size=8), WAYS, some.integers(0, 5))
def test_a_text_that_goes_on_behind_something_else_is_one_text(events: list[Event], way: str, place: int) -> None:
    agent, gateway = Agent(), Gateway()
    play(agent, gateway, events, way, place, DONE)
    named = {name: parts for name, parts in seen(gateway.artifacts()) if parts != (FILE,)}
    assert named == dict(seen(agent.artifacts.values()))


def told_of(each: Update) -> object:
    """The update without ids and times."""
    if isinstance(each, TaskStatusUpdateEvent):
        return each.status.message.parts if each.status.message is not None else None
    return each.append, each.artifact.name, each.artifact.parts


GLUED = some.lists(some.sampled_from([*WORDS, Part(text="d"), FILE]), max_size=3).map(lambda rest: (WORDS[0], *rest))
"""Some of their texts need a blank line between them."""


@given(some.lists(some.one_of(some.builds(update, KEYS, GLUED, some.booleans()), UPDATES, LINES), max_size=6))
def test_a_gateway_behind_a_gateway_changes_nothing(events: list[Event]) -> None:
    agent, behind, front = Agent(), Gateway(), Gateway()
    play(agent, behind, events, "streamed", 0, DONE)
    front.begin()
    for each in behind.published:
        if isinstance(each, TaskArtifactUpdateEvent):
            front.hear(StreamResponse(artifact_update=each))
        else:
            front.hear(StreamResponse(status_update=each))
    front.end(DONE)
    told = [[told_of(each) for each in one.published] for one in (behind, front)]
    assert told[1] == told[0]
