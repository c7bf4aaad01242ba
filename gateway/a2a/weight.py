"""How long the JSON of a result will be, roughly, before it is written. Law: takes microseconds, whatever the result, and is
never far too small for a large one."""

from collections.abc import Iterator, Sequence

from gateway.a2a.model import Json, ListTasksResponse, Part, SendMessageResponse, Task

_VALUES = 2000
"""Parts, and values of JSON, that are looked at. A result with more of them counts as large."""

_MANY = 2**30


def weight(result: object) -> int:
    """Bytes of JSON: the texts and files of tasks, and their data; 0 for any other result."""
    size = 0
    data: list[Json] = []
    for count, part in enumerate(_parts(result)):
        if count == _VALUES:
            return _MANY
        if part.text is not None:
            size += len(part.text)
        elif part.raw is not None:
            size += len(part.raw)
        elif isinstance(part.data, dict | list | str):
            data.append(part.data)
    return size + data_weight(data) if data else size


def _parts(result: object) -> Iterator[Part]:
    for task in _tasks(result):
        for artifact in task.artifacts or ():
            yield from artifact.parts
        if task.status.message is not None:
            yield from task.status.message.parts
        for message in task.history or ():
            yield from message.parts


def _tasks(result: object) -> Sequence[Task]:
    match result:
        case Task():
            return (result,)
        case SendMessageResponse(task=Task() as task):
            return (task,)
        case ListTasksResponse(tasks=tasks):
            return tasks
    return ()


def data_weight(data: Json) -> int:
    """The same for any JSON."""
    size, waiting, left = 0, [data], _VALUES
    while waiting:
        match waiting.pop():
            case str() as text:
                size += len(text)
            case dict() | list() as members:
                left -= len(members)
                if left < 0:
                    return _MANY
                if isinstance(members, dict):
                    size += sum(map(len, members))
                    members = [*members.values()]
                waiting += members
            case _:
                size += 8
    return size
