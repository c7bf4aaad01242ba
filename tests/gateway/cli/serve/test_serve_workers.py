"""`serve --workers`: several processes on one port and one database."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.foundation.shared_port import BALANCED
from gateway.ledger.calls import RESTARTED
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, text_of, user_message, why
from tests.gateway.cli.conftest import CommandLine
from tests.gateway.cli.served import Served, serving
from tests.support.databases import databases, name_of
from tests.support.polling import until
from tests.support.processes import alive

pytestmark = [
    pytest.mark.xdist_group("serve-workers"),
    pytest.mark.skipif(not BALANCED, reason="this system spreads no connections"),
]

_AGENT = """
import asyncio, os
from pathlib import Path


async def agent(text):
    if text.startswith("wait"):
        Path(text.split()[1]).write_text(str(os.getpid()))
        while not Path("go").exists():
            await asyncio.sleep(0.02)
    return f"{text} by {os.getpid()}"
"""
_FILE = """\
version: 1
storage: {{url: "{url}", lease_timeout: 1s}}
{more}
agents: {{mine: {{type: python, ref: "./mine.py:agent"}}}}
"""


@pytest.fixture(autouse=True)
def hangups() -> Iterator[None]:
    """Tests that run under nohup ignore SIGHUP, and so would what they start."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(_AGENT)
    return tmp_path


@pytest.fixture
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    name = name_of(request.node.nodeid)
    yield databases().make(name)
    databases().drop(name)


def write(folder: Path, url: str, more: str = "") -> Path:
    file = folder / "gateway.yaml"
    file.write_text(_FILE.format(url=url, more=more))
    return file


@asynccontextmanager
async def workers(folder: Path, count: str = "2", *options: str) -> AsyncIterator[tuple[Served, dict[int, int]]]:
    """A gateway, and the processes of its workers by their numbers."""
    async with serving("--workers", count, *options, folder=folder) as child:
        found = {
            line["worker"]: line["pid"] for line in [await child.logged("worker.serves") for _ in range(int(count))]
        }
        yield child, found


async def ask(url: str, text: str) -> str:
    """On a connection of its own."""
    async with a2a_http(url) as http:
        return text_of(await A2A(http, "mine").send(text))


async def ask_each(url: str, pids: set[int]) -> None:
    """Until every worker has answered."""
    async with asyncio.timeout(60):
        while pids:
            pids = pids - {int((await ask(url, "hello")).split()[-1])}


# --- that do not start


async def test_a_file_of_sqlite_is_refused_and_named(folder: Path, command_line: CommandLine) -> None:
    file = write(folder, "sqlite:///gateway.db")
    ended = await command_line("serve", "-c", str(file), "--workers", "2")
    assert ended.code == 78
    assert ended.err == (
        f"server.workers: 2 processes on sqlite:///{folder}/gateway.db would do hardly more than one, because they write one "
        "after the other; keep state in PostgreSQL (storage: {url: postgresql://...}), which they share, or serve by 1\n"
    )


@pytest.mark.parametrize(
    ("more", "environment", "place"),
    [
        ("server: {workers: 2}", {}, ":3:10: server.workers: "),
        ("", {"A2A_GATEWAY__SERVER__WORKERS": "2"}, ": server.workers: "),
    ],
    ids=["file", "environment"],
)
async def test_check_refuses_what_serve_refuses(
    folder: Path,
    command_line: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    more: str,
    environment: dict[str, str],
    place: str,
) -> None:
    file = write(folder, "sqlite:///gateway.db", more)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    checked = await command_line("check", "-c", str(file))
    served = await command_line("serve", "-c", str(file), "--port", "0")
    assert (checked.code, served.code, checked.out) == (78, 78, "")
    assert checked.err == f"{file}{place}{served.err.removeprefix('server.workers: ')}"


@pytest.mark.parametrize("count", ["0", "-1", "many", "1.5"])
async def test_what_is_no_number_of_processes_is_refused(folder: Path, count: str, command_line: CommandLine) -> None:
    file = write(folder, "sqlite:///gateway.db")
    ended = await command_line("serve", "-c", str(file), f"--workers={count}")
    assert ended.code == 78
    assert "server.workers: must be a number of processes from 1 to 256, or auto, not" in ended.err


async def test_auto_is_one_process_where_more_would_not_help(folder: Path) -> None:
    write(folder, "sqlite:///gateway.db")
    async with serving("--workers", "auto", folder=folder) as child:
        assert int((await ask(child.url, "hello")).split()[-1]) == child.pid


async def test_the_option_for_workers_alone_is_for_the_gateway_alone(command_line: CommandLine) -> None:
    with socket.socket() as neither, neither.dup() as given:
        ended = await command_line("serve", "--worker", str(given.detach()))
    assert (ended.code, ended.err) == (2, "serve: --worker is for processes that the gateway itself starts\n")


def start(folder: Path, *options: str) -> tuple[int, str]:
    """The exit code and the last line of a start that fails."""
    command = [sys.executable, "-m", "gateway", "serve", "--workers", "2", *options]
    done = subprocess.run(command, cwd=folder, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    return done.returncode, "\n".join(lines)


def test_a_port_in_use_is_told_once(folder: Path, database: str) -> None:
    write(folder, database)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        told = f"cannot listen on 127.0.0.1:{port}: another program does; stop it, or choose another port: --port PORT"
        assert start(folder, "--port", str(port)) == (69, told)


async def test_so_is_one_that_other_workers_serve(folder: Path, database: str) -> None:
    write(folder, database)
    async with workers(folder) as (child, _):
        code, told = await asyncio.to_thread(start, folder, "--port", child.url.rpartition(":")[2])
        assert (code, "another program does" in told) == (69, True)


def test_a_database_that_is_not_there_is_told_once(folder: Path, database: str) -> None:
    write(folder, database + "_none")
    code, told = start(folder, "--port", "0")
    assert (code, told.count("cannot be used"), told.count("\n")) == (69, 1, 0), told


def test_an_agent_that_cannot_be_built_is_told_once(folder: Path, database: str) -> None:
    file = write(folder, database)
    file.write_text(file.read_text().replace("mine.py:agent", "mine.py:other"))
    code, told = start(folder, "--port", "0")
    assert (code, told.count("has no 'other'"), told.count("\n")) == (78, 1, 0), told


# --- that serve


async def test_workers_share_a_port_and_a_database_and_say_so_once(folder: Path, database: str) -> None:
    write(folder, database)
    async with workers(folder) as (child, pids):
        assert sorted(pids) == [1, 2]
        await ask_each(child.url, set(pids.values()))
        async with a2a_http(child.url) as http:
            assert (await http.get("/readyz?verbose")).json()["checks"]["database"] == "ok"
        turns = [await child.logged("turn") for _ in range(2)]
        assert {line["worker"] for line in turns} <= {1, 2}
        child.signal(signal.SIGTERM)
        assert await child.ended() == 0
        assert child.output.count(b'"start.ready"') == 1
        assert not any(map(alive, pids.values()))


async def test_a_conversation_goes_on_at_any_worker(folder: Path, database: str) -> None:
    write(folder, database)
    async with workers(folder) as (child, pids):
        spoke: set[str] = set()
        async with asyncio.timeout(60):
            while len(spoke) < len(pids):
                async with a2a_http(child.url) as http:
                    spoke.add(text_of(await A2A(http, "mine").send("hello", "one")).split()[-1])


async def test_each_reads_the_configuration_again(folder: Path, database: str) -> None:
    file = write(folder, database)
    async with workers(folder) as (child, _):
        file.write_text(
            file.read_text().replace("agents: {mine:", "agents: {more: {type: python, ref: './mine.py:agent'}, mine:")
        )
        child.signal(signal.SIGHUP)
        done = [await child.logged("reload.done") for _ in range(2)]
        assert sorted((line["worker"], *line["agents"]) for line in done) == [(1, "more", "mine"), (2, "more", "mine")]


async def test_targets_are_saved_once_and_served_by_all(folder: Path, database: str) -> None:
    options = ("mine=python:./mine.py:agent", "--save", "saved.yaml")
    environment = {"A2A_GATEWAY__STORAGE__URL": database}
    async with serving(*options, "--workers", "2", folder=folder, **environment) as child:
        pids = {(await child.logged("worker.serves"))["pid"] for _ in range(2)}
        await ask_each(child.url, pids)
    assert "workers: 2" in (folder / "saved.yaml").read_text()


async def test_a_worker_that_is_killed_is_started_again_and_another_one_takes_its_tasks(
    folder: Path, database: str
) -> None:
    write(folder, database)
    async with workers(folder) as (child, pids):
        async with a2a_http(child.url) as http:
            caller, at_once = A2A(http, "mine"), {"returnImmediately": True}
            [running, waiting] = [
                (await caller.call("SendMessage", message=user_message(text, "one"), configuration=at_once))["task"][
                    "id"
                ]
                for text in ("wait begun", "next")
            ]
            await until(lambda: (folder / "begun").exists() and (folder / "begun").read_text() != "")
        killed = int((folder / "begun").read_text())
        os.kill(killed, signal.SIGKILL)
        told = await child.logged("worker.ended")
        assert (pids[told["worker"]], "was killed by SIGKILL" in told["detail"]) == (killed, True)
        async with a2a_http(child.url) as http, A2A(http, "mine").subscribe(waiting, after=0) as stream:
            await stream.rest()
            tasks = [await A2A(http, "mine").get(task) for task in (running, waiting)]
        assert [why(task) for task in tasks] == [failed(RESTARTED), COMPLETED]
        assert int(text_of(tasks[1]).split()[-1]) != killed
        again = await child.logged("worker.serves")
        assert again["worker"] == told["worker"]
        await ask_each(child.url, {again["pid"]})


async def test_one_that_would_serve_another_database_stays_away_until_the_file_is_as_it_was(
    folder: Path, database: str
) -> None:
    file = write(folder, database)
    given = file.read_text()
    async with workers(folder) as (child, pids):
        file.write_text(given.replace(database, f"{database}_other"))
        os.kill(pids[1], signal.SIGKILL)
        await child.logged("worker.ended")
        refused = await child.logged("worker.ended")
        assert refused["worker"] == 1
        assert refused["detail"] == "gateway.yaml: storage changed since the start: restart the gateway"
        await ask(child.url, "hello")
        file.write_text(given)
        again = await child.logged("worker.serves")
        assert again["worker"] == 1
        await ask_each(child.url, {again["pid"]})


async def test_workers_do_not_outlive_the_process_that_started_them(folder: Path, database: str) -> None:
    write(folder, database)
    async with workers(folder) as (child, pids):
        os.kill(pids[1], signal.SIGSTOP)
        await child.kill()
        await until(lambda: not any(map(alive, pids.values())))
        # The last threads of a process that is killed may be a moment behind it.
        await until(lambda: is_free(int(child.url.rpartition(":")[2])))


def is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


# --- that end


@asynccontextmanager
async def at_work(folder: Path) -> AsyncIterator[tuple[Served, dict[int, int], int, asyncio.Task[Any]]]:
    """A gateway, its workers, which of them has a turn that waits, and the answer to come."""
    async with workers(folder) as (child, pids), asyncio.TaskGroup() as group:
        answer = group.create_task(ask(child.url, "wait begun"))
        await until(lambda: (folder / "begun").exists() and (folder / "begun").read_text() != "")
        yield child, pids, int((folder / "begun").read_text()), answer


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_running_turn_ends_in_peace(folder: Path, database: str, number: signal.Signals) -> None:
    write(folder, database)
    async with at_work(folder) as (child, pids, busy, answer):
        child.signal(number)
        [idle] = set(pids.values()) - {busy}
        await until(lambda: not alive(idle))
        (folder / "go").touch()
        assert await child.ended() == 0
        assert await answer == f"wait begun by {busy}"


async def test_a_signal_to_every_process_is_one_drain(folder: Path, database: str) -> None:
    write(folder, database)
    async with at_work(folder) as (child, pids, busy, answer):
        for pid in (*pids.values(), child.pid, busy):
            os.kill(pid, signal.SIGTERM)
        await until(lambda: alive(busy) and sum(map(alive, pids.values())) == 1)
        (folder / "go").touch()
        assert await child.ended() == 0
        assert await answer == f"wait begun by {busy}"


async def test_a_second_signal_means_now(folder: Path, database: str) -> None:
    write(folder, database)
    async with workers(folder) as (child, pids), a2a_http(child.url) as http:
        message = user_message("wait begun", "one")
        await A2A(http, "mine").call("SendMessage", message=message, configuration={"returnImmediately": True})
        await until(lambda: (folder / "begun").exists())
        child.signal(signal.SIGINT)
        await child.logged("drain.begun")
        child.signal(signal.SIGINT)
        assert await child.ended() == 0
        assert not any(map(alive, pids.values()))


async def test_a_worker_that_hangs_in_its_drain_is_killed(folder: Path, database: str) -> None:
    write(folder, database, "server: {shutdown_grace: 100ms}")
    async with workers(folder) as (child, pids):
        os.kill(pids[2], signal.SIGSTOP)
        child.signal(signal.SIGTERM)
        assert (await child.logged("worker.killed"))["worker"] == 2
        assert await child.ended() == 0
        assert not any(map(alive, pids.values()))


async def test_one_that_is_asked_to_end_does_so_and_another_one_takes_its_place(folder: Path, database: str) -> None:
    write(folder, database)
    async with workers(folder) as (child, pids):
        os.kill(pids[1], signal.SIGTERM)
        told = await child.logged("worker.ended")
        assert (told["worker"], "ended with exit code 0" in told["detail"]) == (1, True)
        assert (await child.logged("worker.serves"))["worker"] == 1


async def test_a_signal_while_they_start_ends_them(folder: Path, database: str) -> None:
    (folder / "mine.py").write_text(
        f"{_AGENT}\nimport time\nPath(f'starting-{{os.getpid()}}').touch()\ntime.sleep(60)\n"
    )
    write(folder, database)
    command = [sys.executable, "-m", "gateway", "serve", "--workers", "2", "--port", "0"]
    process = await asyncio.create_subprocess_exec(*command, cwd=folder, stderr=asyncio.subprocess.PIPE)
    await until(lambda: len(starting(folder)) == 2)
    process.send_signal(signal.SIGTERM)
    _, told = await process.communicate()
    assert process.returncode == 130
    assert told.decode().splitlines()[-1] == "ended by a signal before all workers served"
    assert not any(map(alive, starting(folder)))


def starting(folder: Path) -> list[int]:
    """The processes that the agent's module has told of."""
    return [int(path.name.partition("-")[2]) for path in folder.glob("starting-*")]


# --- with gRPC


async def test_the_port_of_grpc_is_shared_as_well(folder: Path, database: str) -> None:
    grpc = pytest.importorskip("grpc")
    write(folder, database, "server: {port: 0, grpc: {port: 0}}")
    async with workers(folder) as (child, pids):
        ports = {(await child.logged("start.grpc"))["port"] for _ in pids}
        [port] = ports
        check = "/grpc.health.v1.Health/Check"
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            assert await channel.unary_unary(check)(b"") == b"\x08\x01"
