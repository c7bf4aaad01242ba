"""How long the JSON of a result will be, roughly, before it is written. Law: takes microseconds, whatever the result, and is
never far too small for a large one."""

from collections.abc import Sequence

import msgspec

from gateway.a2a import tool_calls
from gateway.a2a.model import Json, ListTasksResponse, Part, Role, SendMessageResponse, Task

_VALUES = 2000
"""Parts, and values of JSON, that are looked at. A result with more of them counts as large."""

_ENOUGH = 1024 * 1024
"""Bytes that are large, whatever follows them."""

_MANY = 2**30

_encoder = msgspec.json.Encoder()


def weight(result: object) -> int:
    """Bytes of JSON: the texts and files of tasks, and their data; 0 for any other result."""
    size, left = 0, _VALUES
    data: list[Json] = []
    for task in _tasks(result):
        for parts, ours in _parts(task):
            left -= len(parts)
            if left < 0 or size > _ENOUGH:
                return _MANY
            for part in parts:
                if part.text is not None:
                    size += len(part.text)
                elif part.raw is not None:
                    size += len(part.raw)
                elif ours and part.metadata is not None and tool_calls.URI in part.metadata:
                    # A tool call has a bound, and writing it takes a quarter of the time of looking at its values.
                    size += len(_encoder.encode(part.data))
                elif isinstance(part.data, dict | list | str):
                    data.append(part.data)
    return size + data_weight(data) if data else size


def _tasks(result: object) -> Sequence[Task]:
    match result:
        case Task():
            return (result,)
        case SendMessageResponse(task=Task() as task):
            return (task,)
        case ListTasksResponse(tasks=tasks):
            return tasks
    return ()


def _parts(task: Task) -> list[tuple[tuple[Part, ...], bool]]:
    """The parts of each artifact and of each message, and whether they come from the agent's side."""
    found = [(artifact.parts, True) for artifact in task.artifacts or ()]
    found += [(message.parts, message.role is Role.AGENT) for message in task.history or ()]
    if task.status.message is not None:
        found.append((task.status.message.parts, True))
    return found


def data_weight(data: Json) -> int:
    """The same for any JSON."""
    size, waiting, left = 0, [data], _VALUES
    while waiting:
        value = waiting.pop()
        # By the very type, which is quicker than a pattern.
        kind = type(value)
        if kind is str:
            size += len(value)
        elif kind is list or kind is dict:
            left -= len(value)
            if left < 0:
                return _MANY
            if kind is list:
                waiting += value
            else:
                size += len("".join(value))
                waiting += value.values()
        else:
            size += 8
    return size
