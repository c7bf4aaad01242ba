"""Callers that leave, fall silent, read nothing, or all come at once: nothing that they began is lost, other callers are not
affected, and their resources are freed."""

import asyncio
import json
import socket
import struct
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.http.server import listen
from gateway.testing.serving import serve
from tests.a2a_client import A2A, COMPLETED, Json, Refused, a2a_http, text_of, user_message, why
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Conversation, Say, Step
from tests.faults.paused_agents import AGENTS, PausedAgents, paused_agents
from tests.invariants import violations
from tests.running import StartLocal
from tests.support.fork_server import Forked, fork_server
from tests.support.polling import until
from tests.support.rows import query
from tests.support.stores import ledger_url

MIB = 1024 * 1024

# --- C1 ---------------------------------------------------------------------------------------------------------------

LIMITS = "{stream_buffer_events: 200, stream_buffer_bytes: 64KiB, stream_blocked: 1s, stream_keepalive: 500ms}"
EACH = 8
"""Callers of each kind."""


class RawCaller:
    """A client that can misbehave: it opens a stream and reads only its beginning."""

    def __init__(self, url: str, agent: str, text: str) -> None:
        address = urlsplit(url)
        assert address.hostname is not None
        self._at = (address.hostname, address.port)
        message = {"message": user_message(text)}
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": message})
        head = f"POST /a2a/{agent} HTTP/1.1\r\nHost: localhost\r\nA2A-Version: 1.0\r\nContent-Type: application/json"
        self._request = f"{head}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()
        self._socket = socket.socket()

    async def open(self) -> str:
        """The id of its task."""
        loop = asyncio.get_running_loop()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self._socket.setblocking(False)
        await loop.sock_connect(self._socket, self._at)
        await loop.sock_sendall(self._socket, self._request)
        seen = b""
        async with asyncio.timeout(30):
            while b'"task":{"id":"' not in seen:
                seen += await loop.sock_recv(self._socket, 2048)
        return seen.partition(b'"task":{"id":"')[2].partition(b'"')[0].decode()

    def leave(self, *, reset: bool) -> None:
        if reset:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()


def _sockets(child: Forked) -> int:
    """What it has open for its callers and backends; of the database it may have opened another reader meanwhile."""
    found, database = 0, _connections(urlsplit(ledger_url(child.log.parent / "gateway.db")).port)
    for each in Path(f"/proc/{child.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            link = str(each.readlink())
            found += link.startswith("socket:") and link not in database
    return found


def _connections(port: int | None) -> set[str]:
    """To this port, each as the system names it; none where there is no port."""
    connections = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {f"socket:[{fields[9]}]" for fields in connections if int(fields[2].partition(":")[2], 16) == port}


def _memory(child: Forked) -> int:
    [line] = [line for line in Path(f"/proc/{child.pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) * 1024


async def _is_back(child: Forked, sockets: int) -> None:
    await until(lambda: _sockets(child) <= sockets)


@pytest.mark.fault("C1")
async def test_callers_that_leave_or_take_nothing_cancel_nothing_and_leave_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with paused_agents(tmp_path) as held, fork_server() as parent:
        file = tmp_path / "gateway.yaml"
        agents = "".join(f"  {line}\n" for line in held.agents.splitlines())
        storage = f"storage: {{url: '{ledger_url(tmp_path / 'gateway.db')}'}}"
        file.write_text(f"version: 1\nserver: {{port: 0}}\n{storage}\nlimits: {LIMITS}\nagents:\n{agents}")
        child = await parent.serving(file)
        url = child.url.result()
        async with a2a_http(url) as http:
            for agent in AGENTS:
                assert why(await A2A(http, agent).send("hello")) == COMPLETED
            sockets, memory = _sockets(child), _memory(child)

            silent, tasks = await _silent(held, url)
            for number, caller in enumerate(silent):
                caller.leave(reset=number % 2 == 0)
            deaf = [RawCaller(url, "function", f"flooding {number}") for number in range(5)]
            floods = [await caller.open() for caller in deaf]
            # Others are answered meanwhile.
            assert [why(await A2A(http, agent).send("hello")) for agent in AGENTS] == [COMPLETED] * 2
            for agent, task in tasks:
                assert why(await A2A(http, agent).get(task))[0] == "TASK_STATE_WORKING"
            for text in list(held.arrived):
                held.go_on[text].set()
            ended = [await _ended(A2A(http, agent), task) for agent, task in tasks]
            grown = _memory(child) - memory
            for task in floods:
                await A2A(http, "function").call("CancelTask", id=task)
            # Those who take nothing have been dropped, although they never left.
            await _is_back(child, sockets)
            for caller in deaf:
                caller.leave(reset=False)
        await child.kill()
    with capsys.disabled():
        told = f"{len(silent)} callers left and {len(deaf)} took nothing: {grown / MIB:.0f} MiB more, {sockets} sockets again"
        print(f"\n{told}")  # noqa: T201
    assert [why(task) for task in ended] == [COMPLETED] * len(tasks)
    assert grown < 200 * MIB
    assert violations(tmp_path / "gateway.db") == []


async def _silent(held: PausedAgents, url: str) -> tuple[list[RawCaller], list[tuple[str, str]]]:
    """Callers of turns that say nothing yet, with agents and ids of their tasks."""
    callers, tasks = [], []
    for agent in AGENTS:
        for number in range(EACH):
            text = f"silent {agent} {number}"
            callers.append(RawCaller(url, agent, text))
            tasks.append((agent, await callers[-1].open()))
            await held.arrived[text].wait()
    return callers, tasks


async def _ended(caller: A2A, task: str) -> Json:
    async with caller.subscribe(task, after=0) as stream:
        await stream.rest()
    return await caller.get(task)


@pytest.mark.fault("C1")
async def test_no_task_and_no_channel_is_left_of_streams_that_were_left(
    start_local: StartLocal, tmp_path: Path
) -> None:
    async with paused_agents(tmp_path) as held:
        gateway = await start_local(held.agents)
        async with a2a_http(gateway.url) as http:
            assert why(await A2A(http, "function").send("hello")) == COMPLETED
            await asyncio.sleep(0)
            before = len(asyncio.all_tasks())
            for round_ in range(2):
                callers = [RawCaller(gateway.url, "function", f"silent {round_}.{number}") for number in range(EACH)]
                tasks = [await caller.open() for caller in callers]
                for number, caller in enumerate(callers):
                    await held.arrived[f"silent {round_}.{number}"].wait()
                    caller.leave(reset=number % 2 == 0)
                for number in range(EACH):
                    held.go_on[f"silent {round_}.{number}"].set()
                assert [why(await _ended(A2A(http, "function"), task)) for task in tasks] == [COMPLETED] * EACH
            await until(lambda: len(asyncio.all_tasks()) <= before)


@pytest.mark.fault("C1")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such option")
def test_a_peer_that_acknowledges_nothing_is_given_up_by_the_system_within_a_minute() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) + 15_000 <= 60_000


@pytest.mark.fault("C1")
@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such option")
def test_the_system_keeps_little_that_a_slow_reader_has_no_room_for() -> None:
    with listen("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT) == 64 * 1024


# --- C2 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.fault("C2")
async def test_eight_callers_with_one_key_at_once_get_one_task_of_two_processes(tmp_path: Path) -> None:
    server = ResponsesServer(lambda conversation: [Say(conversation.text)])
    async with serve(server.app) as backend, fork_server() as parent:
        file = tmp_path / "gateway.yaml"
        file.write_text(
            f"version: 1\nserver: {{port: 0}}\nstorage: {{url: '{ledger_url(tmp_path / 'gateway.db')}'}}\n"
            f"agents: {{echo: {{type: openai-responses, model: m, base_url: '{backend}/v1'}}}}\n"
        )
        urls = [(await parent.serving(file)).url.result() for _ in range(2)]
        for key in ("one", "two", "three"):
            async with a2a_http(urls[0]) as http, a2a_http(urls[1]) as other:
                http.headers["Idempotency-Key"] = other.headers["Idempotency-Key"] = key

                async def ask(number: int, clients: tuple[object, ...] = (http, other), text: str = key) -> str:
                    caller = A2A(clients[number % 2], "echo")  # type: ignore[arg-type]
                    if number % 4 < 2:
                        task = await caller.send(text)
                        assert (why(task), text_of(task)) == (COMPLETED, text)
                        return str(task["id"])
                    async with caller.stream(text) as stream:
                        frames = await stream.rest()
                    assert why(frames[-1].event.get("statusUpdate") or frames[-1].event["task"]) == COMPLETED
                    return str(frames[0].event["task"]["id"])

                ids = await asyncio.gather(*(ask(number) for number in range(8)))
                assert len(set(ids)) == 1
    assert len(server.requests) == 3
    assert query(tmp_path / "gateway.db", "SELECT count(*) FROM task") == [(3,)]
    assert violations(tmp_path / "gateway.db") == []


# --- C3 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.fault("C3")
@pytest.mark.parametrize(
    ("policy", "owner"),
    [
        (policy, owner)
        for policy in ("queue", "reject", "interrupt", "rollback")
        for owner in ("history: {owner: backend}", "history: {owner: gateway}", "conversation: true")
        if (policy, owner) != ("rollback", "conversation: true")  # a conversation of the service forgets no turn
    ],
)
async def test_a_second_message_waits_is_refused_ends_the_first_or_takes_it_back_and_the_next_knows_what_was_said(
    start_local: StartLocal, tmp_path: Path, policy: str, owner: str
) -> None:
    numbers = count()
    async with paused_agents(tmp_path) as held:

        def script(conversation: Conversation) -> list[Step]:
            next(numbers)
            return list(held.script(conversation))

        server = ResponsesServer(script)
        async with serve(server.app) as url:
            settings = f"{owner}, busy_context: {policy}"
            gateway = await start_local(
                f"agent: {{type: openai-responses, model: m, base_url: '{url}/v1', {settings}}}"
            )
            async with a2a_http(gateway.url) as http:
                caller = A2A(http, "agent")
                async with caller.stream("silent one", "c") as stream:
                    await stream.read(1)
                    await held.arrived["silent one"].wait()
                    second = asyncio.ensure_future(caller.send("two", "c"))  # noqa: TID251
                    if policy == "reject":
                        with pytest.raises(Refused) as refused:
                            await second
                        assert refused.value.error["data"][0]["reason"] == "BUSY"
                    elif policy == "interrupt":
                        assert text_of(await second) == "silent one | two"
                    elif policy == "rollback":
                        assert text_of(await second) == "two"
                    held.go_on["silent one"].set()
                    frames = await stream.rest()
                if policy == "queue":
                    assert text_of(await second) == "silent one | two"
                third = await caller.send("three", "c")
                listed = [why(task)[0] for task in await caller.tasks("c")]

    first = "TASK_STATE_CANCELED" if policy in ("interrupt", "rollback") else "TASK_STATE_COMPLETED"
    assert why(frames[-1].event["statusUpdate"])[0] == first
    said = ["silent one", *([] if policy == "reject" else ["two"]), "three"]
    assert text_of(third) == " | ".join(said[policy == "rollback" :])
    assert sorted(listed) == sorted([first, *["TASK_STATE_COMPLETED"] * (len(said) - 1)])
    assert next(numbers) == len(said)
    assert violations(gateway.database) == []
