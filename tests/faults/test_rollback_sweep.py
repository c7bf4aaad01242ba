"""The process dies at every point of a turn that a second message rolls back: before, after and at the showing of each commit
of both. In the process that follows, a displaced turn is no part of the conversation and every other turn is, the chain
continues where it has to, and nothing that a tool did is done twice.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from gateway.testing.serving import serve
from tests.a2a_client import A2A, Json, text_of, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Pause, Say, Step
from tests.faults.crash_sweep import Sweep
from tests.faults.effects import effect_errors
from tests.faults.unfinished import all_ended
from tests.invariants import violations
from tests.support.fork_server import fork_server
from tests.support.rows import first_text, query

_BOUND_SECONDS = 300
_FINAL = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED"})
_TURNS = "SELECT payload, status, displaced FROM turn JOIN input ON input.turn = turn.id ORDER BY number"


@dataclass(slots=True)
class Backend:
    """The message "book" makes the model book and answer, up to a pause until `go`; every other answer repeats all that the
    model was sent."""

    url: str = ""
    go: asyncio.Event = field(default_factory=asyncio.Event)

    def script(self, conversation: Conversation) -> Iterator[Step]:
        told = [str(item["output"]) for item in conversation.items if item.get("type") == "function_call_output"]
        if conversation.text != "book":
            yield Say(json.dumps([list(conversation.user_texts), told]))
        elif not conversation.tool_outputs:
            yield Call("book", {"what": "a"}, call_id="call-a")
        else:
            yield Say("booked")
            yield Pause(self.go)


@asynccontextmanager
async def _backend() -> AsyncIterator[Backend]:
    backend = Backend()
    async with serve(ResponsesServer(backend.script).app) as url:
        backend.url = url
        yield backend


@dataclass(slots=True)
class Story:
    """What the client knows. `tasks`: each as the client saw it last; `whole`: nothing broke."""

    tasks: dict[str, Json] = field(default_factory=dict)
    whole: bool = False


async def _live_through(http: httpx2.AsyncClient, story: Story) -> None:
    caller = A2A(http, "agent")
    try:
        story.tasks["one"] = await caller.send("one", "c")
        async with caller.stream("book", "c") as stream:
            seen = await stream.read(1)
            if not seen:
                return
            story.tasks["book"] = seen[0].event["task"]
            await stream.read_until(lambda frames: any("artifactUpdate" in frame.event for frame in frames))
            story.tasks["instead"] = await caller.send("instead", "c")
            await stream.rest()
            if stream.cut:
                return
        for text in ("book", "instead"):
            story.tasks[text] = await caller.get(story.tasks[text]["id"])
        story.whole = True
    except httpx2.TransportError:
        return


async def _check(http: httpx2.AsyncClient, folder: Path, story: Story) -> None:
    caller, database = A2A(http, "agent"), folder / "gateway.db"
    await all_ended(database)
    assert violations(database) == []
    assert effect_errors(folder, database) == []
    for seen in story.tasks.values():
        now = await caller.get(seen["id"])
        assert now["status"]["state"] in _FINAL
        if seen["status"]["state"] in _FINAL:
            assert now == seen
    turns = [(first_text(payload), status, displaced) for payload, status, displaced in query(database, _TURNS)]
    ended = {text: (status, displaced) for text, status, displaced in turns}
    if "instead" in ended:
        status, displaced = ended["book"]
        assert (status in ("cancelled", "failed"), displaced) == (True, 1)
    counting = [text for text, _, displaced in turns if not displaced]

    following = await caller.send("next", "c")
    assert why(following) == ("TASK_STATE_COMPLETED", "")
    users, told = json.loads(text_of(following))
    assert users == [*counting, "next"]
    assert not told or "book" in counting
    if "instead" in story.tasks:
        assert json.loads(text_of(story.tasks["instead"])) == [["one", "instead"], []]
    assert effect_errors(folder, database) == []
    assert violations(database) == []


async def _sweep(folder: Path, owner: str, pattern: str) -> list[str]:
    """The points that killed, in order."""
    points: list[str] = []
    async with asyncio.timeout(_BOUND_SECONDS), _backend() as backend, fork_server() as server:

        def begin() -> Story:
            backend.go = asyncio.Event()
            return Story()

        agent = (
            f"type: openai-responses, model: m, base_url: '{backend.url}/v1', busy_context: rollback,"
            f" history: {{owner: {owner}}}"
        )
        async for run in Sweep(server, folder, agent, begin, _live_through, tools=True).runs(pattern):
            story = run.story
            if story.whole:
                states = {
                    text: task["status"]["state"].removeprefix("TASK_STATE_") for text, task in story.tasks.items()
                }
                assert states == {"one": "COMPLETED", "book": "CANCELED", "instead": "COMPLETED"}
            else:
                points.append(run.point)
            backend.go.set()
            async with run.next_process() as http:
                await _check(http, folder, story)
    return points


@pytest.mark.fault("C3")
@pytest.mark.parametrize("owner", ["backend", "gateway"])
async def test_a_process_that_dies_at_any_point_of_a_turn_that_is_taken_back_leaves_all_of_it_out_or_nothing(
    tmp_path: Path, owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.TaskGroup() as group:
        sweeps = [
            group.create_task(_sweep(tmp_path / str(number), owner, pattern))
            for number, pattern in enumerate(("*accept*", "*complete*", "*finish*", "call.*"))
        ]
    points = [point for sweep in sweeps for point in sweep.result()]
    with capsys.disabled():
        print(f"\n{len(points)} points of a turn taken back were tried with the history at the {owner}")  # noqa: T201
    kinds = {kind for point in points for kind in point.rpartition(".")[0].split("+")}
    assert kinds >= {
        "accept",
        "displace",
        "complete",
        "fail",
        "finish",
        *(["revertifdisplaced"] if owner == "backend" else []),
    }
    assert {point.rpartition(".")[2] for point in points} >= {"before", "stored", "shown"}
