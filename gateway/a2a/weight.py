"""How long the JSON of a result will be, roughly, before it is written. Law: takes microseconds, whatever the result, and is
never far too small for a large one."""

from collections.abc import Sequence

import msgspec

from gateway.a2a import tool_calls
from gateway.a2a.model import Artifact, Json, ListTasksResponse, Message, Part, Role, SendMessageResponse, Task
from gateway.foundation.sizes import LARGE

_VALUES = 2000
"""Parts, and values of JSON, that are looked at. A result with more of them counts as large."""

_MANY = 2**30

_encoder = msgspec.json.Encoder()


def weight(result: object) -> int:
    """Bytes of JSON: the texts and files of tasks, and their data; 0 for any other result."""
    size, left = 0, _VALUES
    data: list[Json] = []
    for task in _tasks(result):
        for holder in (*(task.artifacts or ()), *(task.history or ()), task.status.message):
            if holder is None:
                continue
            parts = holder.parts
            left -= len(parts)
            if left < 0 or size > LARGE:
                return _MANY
            for part in parts:
                if part.text is not None:
                    size += len(part.text)
                elif part.raw is not None:
                    size += len(part.raw)
                elif _is_of_call(part, holder):
                    # A tool call has a bound, and writing it takes a quarter of the time of looking at its values.
                    size += len(_encoder.encode(part.data))
                elif isinstance(part.data, dict | list | str):
                    data.append(part.data)
    return size + data_weight(data) if data else size


def _tasks(result: object) -> Sequence[Task]:
    if isinstance(result, Task):
        return (result,)
    if isinstance(result, SendMessageResponse):
        return () if result.task is None else (result.task,)
    return result.tasks if isinstance(result, ListTasksResponse) else ()


def _is_of_call(part: Part, holder: Artifact | Message) -> bool:
    """Only the agent's side tells of calls."""
    if part.metadata is None or tool_calls.URI not in part.metadata:
        return False
    return not isinstance(holder, Message) or holder.role is Role.AGENT


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
