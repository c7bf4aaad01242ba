"""A conversation of two turns, a queued one and a deleted context, and a sweep over the points at which its gateway may die:
every invariant holds in the process that follows.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import httpx2
import pytest

from tests.a2a_client import A2A, COMPLETED, Json, Refused, text_of, user_message, why
from tests.emulators.scripts import Conversation, Pause, Say, Step
from tests.faults.agent_kinds import OF_THE_MATRIX, row_of_matrix, services
from tests.faults.crash_sweep import Sweep
from tests.faults.unfinished import all_ended, tasks_to_complete
from tests.invariants import violations
from tests.support.fork_server import fork_server
from tests.support.rows import first_text, query

BOUND_SECONDS = 300
_FINAL = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED"})


@dataclass(slots=True)
class Backend:
    """Answers with all that was said. To `two` it says the first word and waits until `go`. `agents` has settings by kind."""

    agents: Mapping[str, str] = field(default_factory=dict)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    stop_at: str = ""
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    def script(self, conversation: Conversation) -> Iterator[Step]:
        whole = " | ".join(conversation.user_texts)
        if conversation.text == self.stop_at:
            self.reached.set()
            yield Pause(asyncio.Event())
        if conversation.text == "two":
            yield Say(whole[:1])
            yield Pause(self.go)
            yield Say(whole[1:])
        else:
            yield Say(whole)


@asynccontextmanager
async def backend_of(kind: str = "") -> AsyncIterator[Backend]:
    """All kinds, or one row of the contract matrix."""
    backend = Backend()
    if kind in OF_THE_MATRIX:
        async with row_of_matrix(kind, backend.script) as settings:
            backend.agents = {kind: settings}
            yield backend
        return
    async with services(backend.script) as made:
        backend.agents = made.settings
        yield backend


@dataclass(slots=True)
class Story:
    """What the client knows. `tasks`: each as the client saw it last; `whole`: nothing broke."""

    tasks: dict[str, Json] = field(default_factory=dict)
    deleted: bool = False
    whole: bool = False


async def live_through(http: httpx2.AsyncClient, backend: Backend, story: Story) -> None:
    """Two turns, a third one queued after the second; then a context that is deleted."""
    caller = A2A(http, "agent")
    try:
        story.tasks["one"] = await caller.send("one", "c")
        http.headers["Idempotency-Key"] = "k"
        async with caller.stream("two", "c") as stream:
            del http.headers["Idempotency-Key"]
            seen = await stream.read(1)
            if not seen:
                return
            story.tasks["two"] = seen[0].event["task"]
            await stream.read(2)
            queued = {"returnImmediately": True}
            message = user_message("three", "c")
            story.tasks["three"] = (await caller.call("SendMessage", message=message, configuration=queued))["task"]
            backend.go.set()
            await stream.rest()
            if stream.cut:
                return
        async with caller.subscribe(story.tasks["three"]["id"], after=0) as stream:
            await stream.rest()
        for text in ("two", "three"):
            story.tasks[text] = await caller.get(story.tasks[text]["id"])
        story.tasks["gone"] = await caller.send("gone", "d")
        response = await http.delete("/admin/api/v1/contexts/d")
        story.deleted = response.status_code == 204
        story.whole = True
    except httpx2.TransportError:
        return
    finally:
        http.headers.pop("Idempotency-Key", None)
        backend.go.set()


def _accepted(database: Path) -> list[str]:
    """The texts of all messages of context c, in the order of their turns."""
    rows = query(
        database,
        "SELECT payload FROM input JOIN turn ON turn.id = turn"
        " JOIN thread ON thread.id = turn.thread JOIN context ON context.id = thread.context"
        " WHERE public_id = 'c' ORDER BY turn.number",
    )
    return [first_text(payload) for (payload,) in rows]


async def check(
    http: httpx2.AsyncClient, database: Path, story: Story, due: Iterable[str] = (), *, doubles: bool = False
) -> bool:
    """What was acknowledged is there and has ended, and well where it is `due`; a repeat runs once; the next turn knows all
    that was said, once unless the backend `doubles`. Gives whether anything was said to it twice."""
    caller = A2A(http, "agent")
    await all_ended(database)
    assert violations(database) == []
    for text, seen in story.tasks.items():
        if text == "gone":
            continue
        now = await caller.get(seen["id"])
        assert now["status"]["state"] in _FINAL, text
        assert now["history"][0]["parts"] == [{"text": text}]
        if seen["id"] in due:
            assert why(now) == COMPLETED, text
        if seen["status"]["state"] in _FINAL:
            assert now == seen
    accepted = _accepted(database)
    assert sorted(set(accepted) | story.tasks.keys() - {"gone"}) == sorted(accepted)
    await _check_deleted(http, database, story)

    http.headers["Idempotency-Key"] = "k"
    repeated = await caller.send("two", "c")
    del http.headers["Idempotency-Key"]
    if "two" in story.tasks:
        assert repeated["id"] == story.tasks["two"]["id"]
    if "two" not in accepted:
        accepted.append("two")
    assert _accepted(database) == accepted

    following = await caller.send("next", "c")
    assert why(following) == ("TASK_STATE_COMPLETED", "")
    told = text_of(following).split(" | ")
    once = [text for text, _ in groupby(told)] if doubles else told
    assert once == [*accepted, "next"]
    assert violations(database) == []
    return told != once


async def _check_deleted(http: httpx2.AsyncClient, database: Path, story: Story) -> None:
    """A deletion that was confirmed is one; another has happened as a whole or not at all."""
    state = query(database, "SELECT state FROM context WHERE public_id = 'd'")
    turns = query(
        database,
        "SELECT count(*) FROM turn JOIN thread ON thread.id = turn.thread JOIN context ON context.id = context"
        " WHERE public_id = 'd'",
    )
    assert turns == [(1 if state == [("open",)] else 0,)]
    if story.deleted:
        assert state == [("deleted",)]
    if state == [("deleted",)]:
        with pytest.raises(Refused):
            await A2A(http, "agent").send("more", "d")


class Swept(NamedTuple):
    """The points that killed, in order, and whether the backend was told anything twice behind any of them."""

    points: list[str]
    doubled: bool


async def sweep(folder: Path, kind: str, pattern: str) -> Swept:
    points: list[str] = []
    doubled = False
    async with asyncio.timeout(BOUND_SECONDS), backend_of(kind) as backend, fork_server() as server:

        def begin() -> Story:
            backend.go = asyncio.Event()
            return Story()

        async def live(http: httpx2.AsyncClient, story: Story) -> None:
            await live_through(http, backend, story)

        async for run in Sweep(server, folder, backend.agents[kind], begin, live).runs(pattern):
            story = run.story
            if story.whole:
                assert {task["status"]["state"] for task in story.tasks.values()} == {"TASK_STATE_COMPLETED"}
                assert set(story.tasks) == {"one", "two", "three", "gone"}
                assert story.deleted
            else:
                points.append(run.point)
            due = tasks_to_complete(run.database, repeats=kind not in OF_THE_MATRIX or OF_THE_MATRIX[kind].repeats)
            async with run.next_process() as http:
                doubles = kind in OF_THE_MATRIX and OF_THE_MATRIX[kind].doubles
                doubled |= await check(http, run.database, story, due, doubles=doubles)
    return Swept(points, doubled)
