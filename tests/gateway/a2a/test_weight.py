"""The weight of a result, without writing it: never far below what is written."""

import msgspec
import pytest

from gateway.a2a import tool_calls
from gateway.a2a.model import (
    Artifact,
    GetTaskRequest,
    Json,
    ListTasksResponse,
    Message,
    Part,
    Role,
    SendMessageResponse,
    Task,
    TaskState,
    TaskStatus,
)
from gateway.a2a.weight import weight
from gateway.foundation.sizes import LARGE


def task(part: Part, place: str) -> Task:
    message = Message(message_id="m", role=Role.AGENT, parts=(part,))
    status = TaskStatus(state=TaskState.COMPLETED, message=message if place == "status" else None, timestamp="t")
    return Task(
        id="t",
        context_id="c",
        status=status,
        artifacts=(Artifact(artifact_id="a", parts=(part,)),) if place == "artifacts" else None,
        history=(message,) if place == "history" else None,
    )


LONG = "x" * 2_000_000
DATA: list[Json] = [LONG, [LONG], {"a": {LONG: 1}}, [1.5] * 100_000, {str(n): [] for n in range(100_000)}]
TOOL_CALL: dict[str, Json] = {tool_calls.URI: {"callId": "c1"}}


@pytest.mark.parametrize("place", ["status", "artifacts", "history"])
@pytest.mark.parametrize(
    "part",
    [
        Part(text=LONG),
        Part(raw=LONG),
        *(Part(data=data) for data in DATA),
        Part(data={"args": LONG}, metadata=TOOL_CALL),
    ],
    ids=["text", "raw", "text in data", "list", "key", "numbers", "members", "tool call"],
)
def test_a_large_part_makes_a_task_heavy_wherever_it_stands(part: Part, place: str) -> None:
    heavy = task(part, place)
    written = len(msgspec.json.encode(heavy))
    assert weight(heavy) > written * 0.9
    assert weight(SendMessageResponse(task=heavy)) == weight(heavy)
    page = ListTasksResponse(tasks=(heavy, heavy), next_page_token="", page_size=2, total_size=2)
    assert weight(page) > LARGE


@pytest.mark.parametrize("part", [Part(text="hi"), Part(data={"a": [1, 2]}), Part(data={"a": [1]}, metadata=TOOL_CALL)])
def test_a_task_of_very_many_small_parts_is_heavy_so_that_the_event_loop_does_not_look_at_all_of_them(
    part: Part,
) -> None:
    assert weight(task(part, "history")) < 100
    many = Message(message_id="m", role=Role.AGENT, parts=(part,) * 3000)
    assert weight(msgspec.structs.replace(task(part, "history"), history=(many,))) > LARGE


@pytest.mark.parametrize("part", [Part(text="hi"), Part(url="https://x.example/"), Part(data={"a": [1, "b", None]})])
def test_a_small_part_weighs_little(part: Part) -> None:
    assert weight(task(part, "history")) < 100


def test_what_is_no_task_weighs_nothing() -> None:
    assert weight(GetTaskRequest(id="t")) == weight(None) == 0
