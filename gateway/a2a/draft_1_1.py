"""What the draft of A2A 1.1 adds to the data model: the generations of tasks. Law: no result of another version has any of it.

A task is made in generation 1, and each event of its log leads to the next one. Source: A2A, main branch at 28491879,
section 3.2.7.
"""

from msgspec.structs import asdict

from gateway.a2a.model import GetTaskRequest, SendMessageConfiguration, SendMessageRequest, Task


def generation(number: int) -> int:
    """The generation of a task right after event `number` of its log; 0 stands for no event."""
    return number + 1


class NumberedTask(Task, frozen=True, kw_only=True):
    """`generation` is decimal: ProtoJSON writes integers of 64 bits as strings."""

    generation: str


def numbered(task: Task, number: int) -> NumberedTask:
    """The task as it was right after event `number`."""
    return NumberedTask(**asdict(task), generation=str(generation(number)))


class LongPollRequest(GetTaskRequest, frozen=True, kw_only=True):
    """With `current_generation`, the answer waits for a later generation."""

    current_generation: int | None = None


class ConditionalConfiguration(SendMessageConfiguration, frozen=True, kw_only=True):
    """With `if_generation_match`, the message is for a task of this generation and no other."""

    if_generation_match: int | None = None


class ConditionalMessageRequest(SendMessageRequest, frozen=True, kw_only=True):
    configuration: ConditionalConfiguration | None = None
