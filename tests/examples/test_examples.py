"""The examples run as their first lines say, against the agent of the examples."""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.a2a_client import A2A, a2a_http, text_of
from tests.running import local_gateway

EXAMPLES = Path(__file__).parents[2] / "examples"
OSLO = "In Oslo it is -3 degrees, with snow. Take a warm coat.\n"


@pytest.fixture
async def address(tmp_path: Path) -> AsyncIterator[str]:
    """Where the agent of examples/python-agent answers."""
    agent = f"trips: {{type: python, ref: '{EXAMPLES / 'python-agent' / 'trips.py'}:plan'}}"
    async with local_gateway(agent, tmp_path) as gateway:
        yield f"{gateway.url}/a2a/trips"


async def printed(program: str | None, *arguments: str) -> str:
    if program is None:
        pytest.skip("what the example runs on is not installed")
    process = await asyncio.create_subprocess_exec(
        program,
        *arguments,
        env={"PATH": os.environ["PATH"]},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_the_agent_asks_for_the_city_and_keeps_it(address: str) -> None:
    async with a2a_http(address.removesuffix("/a2a/trips")) as http:
        agent = A2A(http, "trips")
        asked = await agent.send("What do I pack?")
        assert asked["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
        answered = await agent.send("Bergen", asked["contextId"], taskId=asked["id"])
        assert text_of(answered) == "In Bergen it is 6 degrees, with rain. A jacket will do."
        again = await agent.send("And tomorrow?", asked["contextId"])
        assert text_of(again) == text_of(answered)


CONVERSATION = ("What do I pack?", "Oslo", "And tomorrow?")


async def test_the_client_with_the_official_sdk_holds_a_conversation(address: str) -> None:
    told = await printed(sys.executable, str(EXAMPLES / "clients" / "a2a_sdk.py"), address, *CONVERSATION)
    assert told == f"Where do you go? I know Oslo, Rome, Bergen.\n{OSLO}{OSLO}"


async def test_the_client_in_javascript_holds_a_conversation(address: str) -> None:
    told = await printed(shutil.which("node"), str(EXAMPLES / "clients" / "client.mjs"), address, *CONVERSATION)
    assert told == f"Where do you go? I know Oslo, Rome, Bergen.\n{OSLO}{OSLO}"


@asynccontextmanager
async def cutting(address: str) -> AsyncIterator[str]:
    """The same address through a proxy, which cuts the first connection behind the first event with a text."""
    to, cut = urlsplit(address), asyncio.Event()
    served: asyncio.Queue[None] = asyncio.Queue()

    async def copied(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            sink.write(data)
        sink.close()

    async def passed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection(to.hostname, to.port)
        async with asyncio.TaskGroup() as group:
            group.create_task(copied(reader, requests))
            if cut.is_set():
                await copied(answers, writer)
            else:
                cut.set()
                told = b""
                while b"In Oslo" not in told:
                    told = await answers.readuntil(b"\n\n")
                    writer.write(told)
                writer.close()
        for each in (requests, writer):
            await each.wait_closed()
        served.put_nowait(None)

    async with await asyncio.start_server(passed, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{to.path}"
    async with asyncio.timeout(60):
        for _ in range(2):  # the connection that was cut, and the one that went on
            await served.get()


async def test_the_client_in_javascript_goes_on_where_a_stream_broke(address: str) -> None:
    async with cutting(address) as broken:
        told = await printed(shutil.which("node"), str(EXAMPLES / "clients" / "client.mjs"), broken, "I go to Oslo")
    assert told == OSLO


async def test_the_requests_with_curl_show_a_card_an_answer_a_stream_and_its_rest(address: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    told = await printed("sh", str(EXAMPLES / "clients" / "curl.sh"), address, 'I "go" to Rome')
    card, answer, stream, rest = [part.partition("\n")[2] for part in told.split("== ")[1:]]
    assert '"name":"trips"' in card
    assert '"text":"In Rome it is 14 degrees, with sun. A jacket will do."' in answer
    assert [line for line in stream.splitlines() if line.startswith("id: ")][:3] == ["id: 0", "id: 1", "id: 2"]
    assert next(line for line in rest.splitlines() if line.startswith("id: ")) == "id: 2"
