"""A disk that fails, and a database that another process has locked: nothing is acknowledged that is not on disk, reads
continue, and the gateway recovers with the fault."""

import asyncio
import errno
import shutil
import sqlite3
import subprocess
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from msgspec.structs import replace

from gateway.config.plugins import Registry
from gateway.ledger.calls import RESTARTED
from gateway.ledger.port import AnyLedgerFactory
from storage.ledger import open_ledger
from tests.a2a_client import A2A, COMPLETED, Json, a2a_http, failed, streamed_text, text_of, user_message, why
from tests.faults.paused_agents import PausedAgents, paused_agents
from tests.interop.echo_agent import gate, knows
from tests.invariants import violations
from tests.running import local_gateway
from tests.support.fork_server import fork_server
from tests.support.polling import until

_AGENT = "function: {type: python, ref: 'tests.interop.echo_agent:reply'}"
_SHIM = Path(__file__).with_name("failing_disk.c")


async def _refused(http: httpx2.AsyncClient, agent: str) -> tuple[int, Any, bool]:
    answer = await http.post(f"/a2a/{agent}/message:send", json={"message": user_message("more")})
    error = answer.json()["error"]
    assert "sqlite" not in answer.text.lower()
    assert "database" not in answer.text.lower()
    return answer.status_code, error["details"][0]["metadata"]["storage"], "retry-after" in answer.headers


# --- D3 ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FailingDisk:
    """What `control` holds fails in the processes that have this `environment`."""

    control: Path
    environment: Mapping[str, str]


@pytest.fixture
def disk(tmp_path: Path) -> FailingDisk:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    library = tmp_path / "failing_disk.so"
    built = subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, _SHIM, "-ldl"], capture_output=True)
    if built.returncode != 0:
        pytest.skip("the C compiler cannot make it")
    control = tmp_path / "control"
    return FailingDisk(control, {"FAILING_DISK": str(control), "LD_PRELOAD": str(library)})


class Fault:
    """A call of the system that fails for as long as the block lasts."""

    def __init__(self, control: Path, call: str, number: int) -> None:
        self._control = control
        self._what = f"{call} {number}"

    def __enter__(self) -> None:
        self._control.write_text(self._what)

    def __exit__(self, *_: object) -> None:
        self._control.unlink()


@dataclass(slots=True)
class ClientLog:
    """What a gateway on such a disk has acknowledged: tasks that ended, and one for each fault that it cut short."""

    ended: list[Json] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)


async def _work_through(http: httpx2.AsyncClient, held: PausedAgents, fault: Fault, told: ClientLog, name: str) -> None:
    """A message before the fault, some in it while a turn runs, and one after it."""
    caller, text = A2A(http, "function"), f"talking {name}"
    first = await caller.send("one", name)
    async with caller.stream(text) as stream:
        await stream.read_until(lambda frames: streamed_text(frames) == "one two ")
        with fault:
            refusals = [await _refused(http, "function") for _ in range(3)]
            checks = (await http.get("/readyz?verbose")).json()["checks"]["database"]
            read = await caller.get(first["id"])
            held.go_on[text].set()
            seen = await stream.rest()
    assert refusals == [(503, "failing", True)] * 3
    assert (checks, read) == ("failing", first)
    # Nobody was shown what is not stored.
    assert streamed_text(seen) == "one two "
    assert stream.error is not None
    [info] = stream.error["data"]
    assert (info["reason"], info["metadata"]) == ("BUSY", {"storage": "failing"})
    assert (await http.get("/readyz")).status_code == 200
    after = await caller.send("two", name)
    assert (why(after), text_of(after)) == (COMPLETED, "one | two")
    told.ended += [first, after]
    told.cut.append(seen[0].event["task"]["id"])


async def _ended(caller: A2A, task: str) -> Json:
    """The next look at the leases ends it."""

    async def over() -> bool:
        return bool((await caller.get(task))["status"]["state"] != "TASK_STATE_WORKING")

    await until(over)
    return await caller.get(task)


_FAULTS = {"sync EIO": ("sync", errno.EIO), "write EIO": ("write", errno.EIO), "write EROFS": ("write", errno.EROFS)}


@pytest.mark.sqlite("PostgreSQL's disk is another process's")
@pytest.mark.fault("D3")
async def test_nothing_is_acknowledged_that_a_failing_disk_did_not_take(tmp_path: Path, disk: FailingDisk) -> None:
    told = ClientLog()
    async with paused_agents(tmp_path) as held, fork_server(**disk.environment) as parent:
        file = tmp_path / "gateway.yaml"
        file.write_text(
            "version: 1\nserver: {port: 0}\nstorage: {url: 'sqlite:///gateway.db', lease_timeout: 1s}\n"
            "agents: {function: {type: python, ref: './held.py:reply'}}\n"
        )
        child = await parent.serving(file)
        async with a2a_http(child.url.result()) as http:
            for name, (call, number) in _FAULTS.items():
                await _work_through(http, held, Fault(disk.control, call, number), told, name)
            cut = [await _ended(A2A(http, "function"), task) for task in told.cut]
        await child.kill()
        child = await parent.serving(file)
        async with a2a_http(child.url.result()) as http:
            with Fault(disk.control, "read", errno.EIO):
                unread = await http.get(f"/a2a/function/tasks/{told.ended[0]['id']}")
                live = (await http.get("/livez")).status_code
            caller = A2A(http, "function")
            assert [await caller.get(task["id"]) for task in (*told.ended, *cut)] == [*told.ended, *cut]
            listed = {task["id"] for task in (await caller.call("ListTasks"))["tasks"]}
        await child.kill()

    # SQLite may have had all of it in memory.
    assert (live, unread.status_code in (200, 503)) == (200, True)
    assert [(why(task), text_of(task)) for task in cut] == [(failed(RESTARTED), "one two ")] * len(_FAULTS)
    assert listed == {*(task["id"] for task in told.ended), *told.cut}
    assert violations(tmp_path / "gateway.db") == []
    with closing(sqlite3.connect(tmp_path / "gateway.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# --- D1 ---------------------------------------------------------------------------------------------------------------


class _Impatient(Registry):
    """A tenth of the usual time."""

    def ledger(self, url: str) -> AnyLedgerFactory:
        return replace(super().ledger(url), open=partial(open_ledger, busy_timeout_ms=500))


@pytest.mark.sqlite("nobody locks all of PostgreSQL")
@pytest.mark.fault("D1")
async def test_a_database_that_is_locked_for_longer_than_anybody_waits_refuses_in_plain_words(tmp_path: Path) -> None:
    holding = f"hold {tmp_path}"
    async with local_gateway(_AGENT, tmp_path, registry=_Impatient()) as gateway, a2a_http(gateway.url) as http:
        caller = A2A(http, "function")
        first = await caller.send("one", "c")
        async with caller.stream(holding) as stream:
            await stream.read_until(lambda frames: streamed_text(frames) == "before ")
            with closing(sqlite3.connect(gateway.database, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                gate(holding).set()
                async with asyncio.TaskGroup() as group:
                    refusals = [group.create_task(_refused(http, "function")) for _ in range(4)]
                    read = await caller.get(first["id"])
                    listed = await caller.tasks("c")
                checks = (await http.get("/readyz?verbose")).json()["checks"]["database"]
                other.execute("ROLLBACK")
            # A turn that runs waits longer than a caller has to.
            frames = await stream.rest()
        after = await caller.send("two", "c")

    assert [refusal.result() for refusal in refusals] == [(503, "locked", True)] * 4
    assert (read, [task["id"] for task in listed], checks) == (first, [first["id"]], "locked")
    assert (streamed_text(frames), why(frames[-1].event["statusUpdate"])) == ("before after", COMPLETED)
    assert text_of(after) == knows("one", "two")
    assert violations(gateway.database) == []
