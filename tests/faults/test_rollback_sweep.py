"""The process dies at every point of a turn that is taken back by a second message: before, behind and at the showing of each
commit of both. Then it starts again: what was displaced is no part of the conversation, what was not is, the chain stands where
it has to, and nothing that a tool did is done twice.

As in the other sweeps, the points are not listed: K = 1, 2, 3, ... until a run ends untouched.
"""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx2
import pytest

from gateway.testing.serving import serve
from tests.a2a_client import A2A, Json, a2a_http, text_of, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Call, Conversation, Pause, Say, Step
from tests.faults.effects import misdeeds
from tests.faults.leftovers import all_ended, time_passes
from tests.invariants import violations
from tests.support.fork_server import ForkServer, fork_server

_BOUND_SECONDS = 300
_FINAL = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED"})
_TURNS = (
    "SELECT json_extract(payload, '$.parts[0].text'), status, displaced FROM turn JOIN input ON input.turn = turn.id"
    " ORDER BY number"
)


@dataclass(slots=True)
class Backend:
    """Whoever says "book" has it booked, hears of it, and waits for more until `go`; every other answer is all that the model
    was told."""

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


def _configure(folder: Path, url: str, owner: str) -> Path:
    folder.mkdir()
    file = folder / "gateway.yaml"
    agent = (
        f"type: openai-responses, model: m, base_url: '{url}/v1', busy_context: rollback, history: {{owner: {owner}}}"
    )
    file.write_text(
        f"version: 1\nserver: {{port: 0}}\nstorage: {{url: 'sqlite:///gateway.db'}}\nagents:\n  agent: {{{agent}}}\n"
    )
    return file


@dataclass(slots=True)
class Story:
    """What the client knows. `tasks` are those that it was told of, as it saw them last; `whole`: nothing broke."""

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


async def _check(http: httpx2.AsyncClient, folder: Path, story: Story, owner: str) -> None:
    caller, database = A2A(http, "agent"), folder / "gateway.db"
    await all_ended(database)
    assert violations(database) == []
    assert misdeeds(folder, database) == []
    for seen in story.tasks.values():
        now = await caller.get(seen["id"])
        assert now["status"]["state"] in _FINAL
        if seen["status"]["state"] in _FINAL:
            assert now == seen
    with closing(sqlite3.connect(database)) as connection:
        turns = connection.execute(_TURNS).fetchall()
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
    assert misdeeds(folder, database) == []
    assert violations(database) == []


async def _sweep(folder: Path, backend: Backend, parent: ForkServer, owner: str, pattern: str) -> list[str]:
    """The points that killed, in order: one in each run, until a run ends untouched."""
    points: list[str] = []
    for number in count(1):
        file = _configure(folder, backend.url, owner)
        backend.go = asyncio.Event()
        story = Story()
        child = await parent.fork(file, f"{pattern}:{number}", tools=True)
        if await child.ready():
            async with a2a_http(child.url.result()) as http:
                await _live_through(http, story)
        if story.whole:
            states = {text: task["status"]["state"].removeprefix("TASK_STATE_") for text, task in story.tasks.items()}
            assert states == {"one": "COMPLETED", "book": "CANCELED", "instead": "COMPLETED"}
            await child.kill()
        else:
            await child.dead()
            points.append(child.point())
        backend.go.set()
        time_passes(folder / "gateway.db")
        again = await parent.serving(file, tools=True)
        async with a2a_http(again.url.result()) as http:
            await _check(http, folder, story, owner)
        await again.kill()
        shutil.rmtree(folder)
        if story.whole:
            break
    return points


@pytest.mark.fault("C3")
@pytest.mark.parametrize("owner", ["backend", "gateway"])
async def test_a_process_that_dies_at_any_point_of_a_turn_that_is_taken_back_leaves_all_of_it_out_or_nothing(
    tmp_path: Path, owner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.timeout(_BOUND_SECONDS), _backend() as backend, fork_server() as parent:
        points = [
            point
            for pattern in ("*accept*", "*complete*", "*finish*", "call.*")
            for point in await _sweep(tmp_path / "one", backend, parent, owner, pattern)
        ]
    with capsys.disabled():
        print(f"\n{len(points)} points of a turn taken back were tried with the history at the {owner}")  # noqa: T201
    kinds = {kind for point in points for kind in point.rpartition(".")[0].split("+")}
    assert kinds >= {"accept", "displace", "complete", "fail", "finish", *(["takeback"] if owner == "backend" else [])}
    assert {point.rpartition(".")[2] for point in points} >= {"before", "stored", "shown"}
