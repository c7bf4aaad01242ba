"""The process dies at every point of a conversation: before, after and at the showing of each commit, and in each phase of a
backend call. Every invariant holds in the process that follows.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import httpx2
import pytest

from tests.a2a_client import A2A, COMPLETED, Json, Refused, a2a_http, text_of, user_message, why
from tests.emulators.scripts import Conversation, Pause, Say, Step
from tests.faults.agent_kinds import OF_THE_MATRIX, row_of_matrix, services
from tests.faults.crash_sweep import Sweep, configure
from tests.faults.unfinished import all_ended, expire_leases, tasks_to_complete
from tests.invariants import violations
from tests.support.fork_server import fork_server

_BOUND_SECONDS = 300
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
async def _backend(kind: str = "") -> AsyncIterator[Backend]:
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


async def _live_through(http: httpx2.AsyncClient, backend: Backend, story: Story) -> None:
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
    with closing(sqlite3.connect(database)) as connection:
        rows = connection.execute(
            "SELECT json_extract(payload, '$.parts[0].text') FROM input JOIN turn ON turn.id = turn"
            " JOIN thread ON thread.id = turn.thread JOIN context ON context.id = thread.context"
            " WHERE public_id = 'c' ORDER BY turn.number"
        ).fetchall()
    return [text for (text,) in rows]


async def _check(http: httpx2.AsyncClient, database: Path, story: Story, due: Iterable[str] = ()) -> None:
    """What was acknowledged is there and has ended, and well where it is `due`; a repeat runs once; the next turn knows all
    that was said."""
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
    assert text_of(following) == " | ".join([*accepted, "next"])
    assert violations(database) == []


async def _check_deleted(http: httpx2.AsyncClient, database: Path, story: Story) -> None:
    """A deletion that was confirmed is one; another has happened as a whole or not at all."""
    with closing(sqlite3.connect(database)) as connection:
        state = connection.execute("SELECT state FROM context WHERE public_id = 'd'").fetchone()
        turns = connection.execute(
            "SELECT count(*) FROM turn JOIN thread ON thread.id = turn.thread JOIN context ON context.id = context"
            " WHERE public_id = 'd'"
        ).fetchone()[0]
    assert turns == (1 if state == ("open",) else 0)
    if story.deleted:
        assert state == ("deleted",)
    if state == ("deleted",):
        with pytest.raises(Refused):
            await A2A(http, "agent").send("more", "d")


async def _sweep(folder: Path, kind: str, pattern: str) -> list[str]:
    """The points that killed, in order."""
    points: list[str] = []
    async with asyncio.timeout(_BOUND_SECONDS), _backend(kind) as backend, fork_server() as server:

        def begin() -> Story:
            backend.go = asyncio.Event()
            return Story()

        async def live(http: httpx2.AsyncClient, story: Story) -> None:
            await _live_through(http, backend, story)

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
                await _check(http, run.database, story, due)
    return points


def _phases(points: list[str]) -> list[str]:
    return [point.rpartition(".")[2] for point in points]


# How the events are grouped, and so how many points there are and which the K-th is, differs from run to run: the points
# that every run has are swept apart.
@pytest.mark.fault("K1", "K2", "K3", "K5", "K9", "K10")
@pytest.mark.parametrize("pattern", ["*", "call.*", "accept+*", "prepare*", "deletecontext*"])
@pytest.mark.parametrize("owner", ["backend", "gateway"])
async def test_a_process_that_dies_at_any_point_loses_and_doubles_nothing(
    tmp_path: Path, owner: str, pattern: str, capsys: pytest.CaptureFixture[str]
) -> None:
    points = await _sweep(tmp_path / "run", owner, pattern)
    with capsys.disabled():
        print(f"\n{len(points)} points {pattern} were tried with the history at the {owner}")  # noqa: T201
    match pattern:
        case "*":
            assert set(_phases(points)) >= {"before", "stored", "shown"}
        case "call.*":
            assert points == ["call.prepared", "call.first", "call.completed"] * 4
        case "accept+*":
            assert {point.partition(".")[0] for point in points} == {"accept+prepare", "accept+heartbeat"}
            assert len(points) == 4 * 3
        case "prepare*":
            assert _phases(points) == ["before", "stored", "shown"]
        case "deletecontext*":
            assert points == ["deletecontext.before", "deletecontext.stored"]


@pytest.mark.fault("K3", "K5", "K9", "K10")
@pytest.mark.parametrize("pattern", ["call.[pf]*", "*complete*"])
@pytest.mark.parametrize("kind", OF_THE_MATRIX)
async def test_a_process_that_dies_around_a_call_of_any_backend_loses_and_doubles_nothing(
    tmp_path: Path, kind: str, pattern: str
) -> None:
    points = await _sweep(tmp_path / "run", kind, pattern)
    if pattern == "*complete*":
        assert set(_phases(points)) == {"completed", "before", "stored", "shown"}
    else:
        assert points == ["call.prepared", "call.first"] * 4


@pytest.mark.fault("K4")
@pytest.mark.parametrize("owner", ["backend", "gateway", "conversation", "chat"])
async def test_a_process_that_dies_when_the_backend_has_the_request_and_says_nothing(
    tmp_path: Path, owner: str
) -> None:
    async with asyncio.timeout(_BOUND_SECONDS), _backend() as backend, fork_server() as parent:
        file = configure(tmp_path / "one", backend.agents[owner])
        child = await parent.serving(file)
        story = Story()
        backend.stop_at = "two"
        async with a2a_http(child.url.result()) as http, asyncio.TaskGroup() as group:
            living = group.create_task(_live_through(http, backend, story))
            await backend.reached.wait()
            await child.kill()
            await living
        backend.stop_at = ""
        expire_leases(file.parent / "gateway.db")
        due = tasks_to_complete(file.parent / "gateway.db")
        assert (story.tasks["two"]["id"] in due) is (owner != "conversation")
        again = await parent.serving(file)
        async with a2a_http(again.url.result()) as http:
            await _check(http, file.parent / "gateway.db", story, due)


@pytest.mark.fault("K12")
async def test_a_process_that_dies_at_any_point_of_its_recovery_is_recovered(tmp_path: Path) -> None:
    async with asyncio.timeout(_BOUND_SECONDS), _backend() as backend, fork_server() as parent:
        # A call in a conversation is not made again: recovery ends its turn.
        story, file = Story(), configure(tmp_path / "one", backend.agents["conversation"])
        database = file.parent / "gateway.db"
        child = await parent.serving(file)
        backend.stop_at = "three"
        async with a2a_http(child.url.result()) as http, asyncio.TaskGroup() as group:
            living = group.create_task(_live_through(http, backend, story))
            await backend.reached.wait()
            await child.kill()
            await living
        backend.stop_at = ""
        tried = 0
        for number in count(1):
            expire_leases(database)
            child = await parent.fork(file, f"*finish*:{number}")
            if await child.ready():
                break
            tried += 1
            assert await child.dead() == -9
            assert violations(database, settled=False) == []
        assert tried >= 2
        await child.kill()
        again = await parent.serving(file)
        async with a2a_http(again.url.result()) as http:
            await _check(http, database, story)


@pytest.mark.fault("K12")
@pytest.mark.parametrize("owner", ["backend", "gateway"])
async def test_a_process_that_dies_at_any_point_while_it_goes_on_with_what_was_left_is_followed_by_one_that_does(
    tmp_path: Path, owner: str
) -> None:
    async with asyncio.timeout(_BOUND_SECONDS), _backend() as backend, fork_server() as parent:
        story, file = Story(), configure(tmp_path / "one", backend.agents[owner])
        database = file.parent / "gateway.db"
        child = await parent.serving(file)
        async with a2a_http(child.url.result()) as http:
            caller = A2A(http, "agent")
            queued = {"returnImmediately": True}
            backend.stop_at = "first"
            for text in ("first", "one", "two", "three"):
                message = user_message(text, "c")
                http.headers["Idempotency-Key"] = "k" if text == "two" else text
                story.tasks[text] = (await caller.call("SendMessage", message=message, configuration=queued))["task"]
            await backend.reached.wait()
            await child.kill()
        backend.stop_at = ""
        backend.go.set()
        expire_leases(database)
        due = [task for task in tasks_to_complete(database) if task != story.tasks["first"]["id"]]
        assert len(due) == 3
        tried = 0
        for number in count(1):
            child = await parent.fork(file, f"*:{number}")
            if await child.ready() and await all_ended(database, child.ended):
                break
            tried += 1
            assert await child.dead() == -9
            assert violations(database, settled=False) == []
            expire_leases(database)
        assert tried >= 3
        await child.kill()
        again = await parent.serving(file)
        async with a2a_http(again.url.result()) as http:
            await _check(http, database, story)
