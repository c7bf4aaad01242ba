"""The process dies at every point of a conversation: before, after and at the showing of each commit, and in each phase of a
backend call. Every invariant holds in the process that follows.
"""

import asyncio
from itertools import count
from pathlib import Path

import pytest

from tests.a2a_client import A2A, a2a_http, user_message
from tests.faults.conversation_sweep import BOUND_SECONDS, Story, backend_of, check, live_through, sweep
from tests.faults.crash_sweep import configure
from tests.faults.unfinished import all_ended, expire_leases, tasks_to_complete
from tests.invariants import violations
from tests.support.fork_server import fork_server


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
    points, _ = await sweep(tmp_path / "run", owner, pattern)
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


@pytest.mark.fault("K4")
@pytest.mark.parametrize("owner", ["backend", "gateway", "conversation", "chat"])
async def test_a_process_that_dies_when_the_backend_has_the_request_and_says_nothing(
    tmp_path: Path, owner: str
) -> None:
    async with asyncio.timeout(BOUND_SECONDS), backend_of() as backend, fork_server() as parent:
        file = configure(tmp_path / "one", backend.agents[owner])
        child = await parent.serving(file)
        story = Story()
        backend.stop_at = "two"
        async with a2a_http(child.url.result()) as http, asyncio.TaskGroup() as group:
            living = group.create_task(live_through(http, backend, story))
            await backend.reached.wait()
            await child.kill()
            await living
        backend.stop_at = ""
        expire_leases(file.parent / "gateway.db")
        due = tasks_to_complete(file.parent / "gateway.db")
        assert (story.tasks["two"]["id"] in due) is (owner != "conversation")
        again = await parent.serving(file)
        async with a2a_http(again.url.result()) as http:
            await check(http, file.parent / "gateway.db", story, due)


@pytest.mark.fault("K12")
async def test_a_process_that_dies_at_any_point_of_its_recovery_is_recovered(tmp_path: Path) -> None:
    async with asyncio.timeout(BOUND_SECONDS), backend_of() as backend, fork_server() as parent:
        # A call in a conversation is not made again: recovery ends its turn.
        story, file = Story(), configure(tmp_path / "one", backend.agents["conversation"])
        database = file.parent / "gateway.db"
        child = await parent.serving(file)
        backend.stop_at = "three"
        async with a2a_http(child.url.result()) as http, asyncio.TaskGroup() as group:
            living = group.create_task(live_through(http, backend, story))
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
            await check(http, database, story)


@pytest.mark.fault("K12")
@pytest.mark.parametrize("owner", ["backend", "gateway"])
async def test_a_process_that_dies_at_any_point_while_it_goes_on_with_what_was_left_is_followed_by_one_that_does(
    tmp_path: Path, owner: str
) -> None:
    async with asyncio.timeout(BOUND_SECONDS), backend_of() as backend, fork_server() as parent:
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
            await check(http, database, story)
