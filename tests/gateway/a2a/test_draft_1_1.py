"""What the draft of A2A 1.1 adds to the data model."""

import msgspec

from gateway.a2a.draft_1_1 import NumberedTask, generation, numbered
from gateway.a2a.model import Artifact, Message, Part, Role, Task, TaskState, TaskStatus

TASK = Task(
    id="t",
    context_id="c",
    status=TaskStatus(state=TaskState.WORKING, timestamp="2026-11-20T10:00:00.000Z"),
    artifacts=(Artifact(artifact_id="a", parts=(Part(text="hi"),)),),
    history=(Message(message_id="m", role=Role.USER, parts=(Part(text="Hello"),)),),
    metadata={"k": 1},
)


def test_a_task_begins_in_generation_1_and_each_event_leads_to_the_next() -> None:
    assert [generation(number) for number in (0, 1, 2)] == [1, 2, 3]


def test_a_numbered_task_is_the_same_task_with_its_generation_as_text() -> None:
    shown = numbered(TASK, 2**53)

    assert isinstance(shown, NumberedTask)
    assert msgspec.json.decode(msgspec.json.encode(shown)) == {
        **msgspec.json.decode(msgspec.json.encode(TASK)),
        "generation": "9007199254740993",
    }
