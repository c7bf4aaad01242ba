"""How long the JSON of a result will be, roughly, before it is written. Law: takes microseconds for a usual task, and is
never far too small for a large one."""

from collections.abc import Iterable, Iterator

from gateway.a2a.model import Json, ListTasksResponse, Message, Part, SendMessageResponse, Task

_VALUES = 2000
"""Values of JSON that are looked at. Data with more of them counts as large."""

_MANY = 2**30


def weight(result: object) -> int:
    """Bytes of JSON: the texts and files of tasks, and their data; 0 for any other result."""
    match result:
        case Task():
            return sum(map(_part, _parts(result)))
        case SendMessageResponse(task=Task() as task):
            return weight(task)
        case ListTasksResponse(tasks=tasks):
            return sum(map(weight, tasks))
    return 0


def _parts(task: Task) -> Iterator[Part]:
    for artifact in task.artifacts or ():
        yield from artifact.parts
    if task.status.message is not None:
        yield from task.status.message.parts
    messages: Iterable[Message] = task.history or ()
    for message in messages:
        yield from message.parts


def _part(part: Part) -> int:
    if part.text is not None:
        return len(part.text)
    if part.raw is not None:
        return len(part.raw)
    return data_weight(part.data) if isinstance(part.data, dict | list | str) else 0


def data_weight(data: Json) -> int:
    """The same for any JSON."""
    size, waiting, left = 0, [data], _VALUES
    while waiting:
        if not (left := left - 1):
            return _MANY
        match waiting.pop():
            case str() as text:
                size += len(text)
            case dict() as members:
                size += sum(map(len, members))
                waiting.extend(members.values())
            case list() as members:
                waiting.extend(members)
            case _:
                size += 8
    return size
