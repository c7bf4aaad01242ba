"""The log of a gateway that serves: every line of standard error in one form, requests and turns among them."""

import asyncio
import json
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.testing.serving import serve
from tests.adapters.tools.served_mcp import ROOT
from tests.emulators.chat import ChatServer
from tests.emulators.scripts import Call, Say, in_rounds
from tests.gateway.cli.pseudo_terminal import terminal

BOUND = 60.0

AGENT = """
import logging
import sys
import warnings

log = logging.getLogger("my_agent")


async def reply(turn):
    log.info("asked %s", turn.text)
    log.debug("closely")
    if "fail" in turn.text:
        raise ValueError("no such thing")
    logging.info("from the module itself")
    yield "Well."
"""

CONFIG = """\
version: 1
storage: {url: "sqlite:///gateway.db"}
agents:
  mine: {type: python, ref: "./mine.py:reply"}
"""

PROGRAM = """
import sys
print("a server begins", file=sys.stderr, flush=True)
print("a banner", "null", '{"ready": true}', sep="\\n", flush=True)
from tests.adapters.tools.mcp_server import server
server.run("stdio")
"""


class Served:
    """A gateway in a process of its own, and the lines of its standard error."""

    def __init__(self, process: Process, url: str, lines: list[str]) -> None:
        self.process = process
        self.url = url
        self.lines = lines

    async def send(self, text: str, agent: str = "mine") -> dict[str, Any]:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}], "contextId": "c"}
        body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        async with httpx2.AsyncClient(trust_env=False, headers={"A2A-Version": "1.0"}, timeout=BOUND) as client:
            answer: dict[str, Any] = (await client.post(f"{self.url}/a2a/{agent}", json=body)).json()
        return answer

    async def get(self, path: str) -> int:
        async with httpx2.AsyncClient(trust_env=False, timeout=BOUND) as client:
            return (await client.get(f"{self.url}{path}")).status_code

    async def say(self, head: bytes) -> bytes:
        """The answer to these bytes."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(head)
        writer.write_eof()
        async with asyncio.timeout(BOUND):
            answer = await reader.read()
        writer.close()
        return answer

    async def ended(self) -> list[str]:
        """All lines, once it has ended."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.stderr is not None
        async with asyncio.timeout(BOUND):
            rest = await self.process.stderr.read()
            assert await self.process.wait() == 0
        return self.lines + rest.decode().splitlines()


Start = Callable[..., Awaitable[Served]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    (tmp_path / "mine.py").write_text(AGENT, encoding="utf-8")
    file = tmp_path / "gateway.yaml"
    async with AsyncExitStack() as stack:

        async def started(*options: str, config: str = CONFIG) -> Served:
            file.write_text(config, encoding="utf-8")
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "gateway", "serve", "-c", str(file), "--port", "0", *options),
                stdout=PIPE,
                stderr=PIPE,
                cwd=ROOT,
            )

            async def close() -> None:
                if process.returncode is None:
                    process.kill()
                await process.communicate()

            stack.push_async_callback(close)
            assert process.stderr is not None
            lines: list[str] = []
            async with asyncio.timeout(BOUND):
                while not (found := re.search(r"http://127\.0\.0\.1:\d+", lines[-1] if lines else "")):
                    line = await process.stderr.readline()
                    assert line, lines
                    lines.append(line.decode().rstrip("\n"))
            return Served(process, found[0], lines)

        yield started


def events(lines: list[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


async def test_every_line_is_an_object_and_each_request_and_each_turn_has_one(start: Start) -> None:
    served = await start()
    task = (await served.send("hello"))["result"]["task"]
    await served.send("fail")
    await served.send("hello", agent="nobody")
    assert await served.get("/nothing?key=secret") == 404
    assert b" 501 " in await served.say(b"CONNECT a:1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    told = events(await served.ended())
    assert [line["event"] for line in told][:2] == ["start.agents", "start.ready"]
    assert told[1]["url"] == served.url
    assert "drain.begun" in [line["event"] for line in told]

    turns = [line for line in told if line["event"] == "turn"]
    assert [(turn["outcome"], turn["agent"], turn["context"]) for turn in turns] == [
        ("completed", "mine", "c"),
        ("failed", "mine", "c"),
    ]
    assert (turns[0]["task"], turns[0]["level"]) == (task["id"], "info")
    assert all(turn["ms"] > 0 for turn in turns)

    requests = [line for line in told if line["event"] == "request"]
    assert [(each.get("method"), each.get("path"), each["status"], each.get("operation")) for each in requests] == [
        ("POST", "/a2a/mine", 200, "SendMessage"),
        ("POST", "/a2a/mine", 200, "SendMessage"),
        ("POST", "/a2a/nobody", 404, None),
        ("GET", "/nothing", 404, None),
        (None, None, 501, None),
    ]
    assert [(each.get("agent"), each.get("error")) for each in requests][:3] == [
        ("mine", None),
        ("mine", None),
        (None, "NOT_FOUND"),
    ]
    assert all(each.get("ms", 0) >= 0 and each["peer"] == "127.0.0.1" for each in requests)
    assert "secret" not in str(told)

    own = [(line["event"], line["logger"]) for line in told if "logger" in line]
    assert own[:2] == [("asked hello", "my_agent"), ("from the module itself", "root")]


async def test_text_has_stages_a_banner_and_readable_tracebacks(start: Start) -> None:
    served = await start("--log-format", "text")
    await served.send("fail")
    lines = await served.ended()
    banner = next(index for index, line in enumerate(lines) if line.startswith("a2a-gateway serves 1 agent on http://"))
    assert [line.split("] ")[1].split(" ")[0] for line in lines[:banner]] == ["start.agents"]
    assert any(re.search(r"\[info +\] turn agent=mine context=c task=\S+ .*outcome=failed ms=", line) for line in lines)
    assert any(re.search(r"\[info +\] asked fail agent=mine logger=my_agent$", line) for line in lines)
    assert any(line.endswith("ValueError: no such thing") and line.startswith("    ") for line in lines)


@pytest.mark.parametrize(
    ("options", "config", "expected"),
    [
        ((), f"{CONFIG}logs: {{requests: false}}\n", {"turn"}),
        ((), f"{CONFIG}logs: {{turns: false}}\n", {"request"}),
        (("--log-level", "debug"), f"{CONFIG}logs: {{turns: false, requests: false}}\n", set()),
    ],
)
async def test_the_lines_of_requests_and_turns_can_be_switched_off(
    start: Start, options: tuple[str, ...], config: str, expected: set[str]
) -> None:
    served = await start(*options, config=config)
    await served.send("hello")
    assert {line["event"] for line in events(await served.ended())} & {"turn", "request"} == expected


async def test_only_warnings_are_said_where_that_is_asked_for(start: Start) -> None:
    served = await start("--log-level", "warning", "--log-format", "text")
    await served.send("hello")
    lines = await served.ended()
    assert [line for line in lines if "[info" in line] == []
    assert lines[0].startswith("a2a-gateway serves 1 agent on http://")


async def test_what_a_program_of_tools_writes_beside_its_messages_is_a_line_with_the_name_of_its_source(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    server = ChatServer(in_rounds([Call("echo", {"text": "hi"})], [Say("Done.")]))
    async with serve(server.app) as backend:
        config = (
            'version: 1\nstorage: {url: "sqlite:///gateway.db"}\n'
            f"tools: {{small: {{type: mcp, command: [{sys.executable}, {tmp_path}/program.py], cwd: {ROOT}, "
            f"env: {{PYTHONPATH: {ROOT}}}}}}}\n"
            f"agents: {{mine: {{type: openai-chat, model: m, base_url: '{backend}/v1', tools: [small]}}}}\n"
        )
        served = await start(config=config)
        task = (await served.send("hello"))["result"]["task"]
        told = events(await served.ended())
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    said = [(line["source"], line["line"], line["level"]) for line in told if line["event"] == "tools.output"]
    written = ("a server begins", "a banner", "null", '{"ready":true}')
    assert {("small", line, "info") for line in written} - {*said} == set()


async def test_on_a_terminal_it_is_text(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(AGENT, encoding="utf-8")
    (tmp_path / "gateway.yaml").write_text(CONFIG, encoding="utf-8")
    async with terminal("serve", "-c", str(tmp_path / "gateway.yaml"), "--port", "0") as screen:
        await screen.until("a2a-gateway serves 1 agent on http://")
        assert re.search(r"^\S+ \S+ \[info +\] start\.agents agents=\['mine'\] tools=\[\] ", screen.shown, re.MULTILINE)
        screen.type("\x03")
        assert await screen.ended() == 0


async def test_the_line_of_a_turn_has_the_tokens_that_its_task_shows(start: Start) -> None:
    async with serve(ChatServer(in_rounds([Say("Done.")])).app) as backend:
        agents = f"agents: {{mine: {{type: openai-chat, model: m, base_url: '{backend}/v1'}}}}\n"
        served = await start(config=f'version: 1\nstorage: {{url: "sqlite:///gateway.db"}}\n{agents}')
        shown = (await served.send("hello"))["result"]["task"]["metadata"]["usage"]["turn"]
        (turn,) = [line for line in events(await served.ended()) if line["event"] == "turn"]
    assert shown["inputTokens"] > 0
    assert (turn["input_tokens"], turn["output_tokens"], turn["total_tokens"]) == (
        shown["inputTokens"],
        shown["outputTokens"],
        shown["totalTokens"],
    )


PRINTS = """
import asyncio
print("loaded")


async def reply(turn):
    print("asked", turn.text)
    await asyncio.to_thread(print, "in a thread", flush=True)
    yield "Well."


def other(turn):
    print("begun", end="")
    return "Well."
"""


async def test_what_an_agent_prints_is_a_line_with_its_name_and_standard_output_stays_empty(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "prints.py").write_text(PRINTS, encoding="utf-8")
    config = CONFIG.replace("./mine.py", "./prints.py") + '  other: {type: python, ref: "./prints.py:other"}\n'
    served = await start(config=config)
    await served.send("hello")
    await served.send("hello", agent="other")
    told = events(await served.ended())
    assert [(line["agent"], line["line"]) for line in told if line["event"] == "python.output"] == [
        ("mine", "loaded"),
        ("mine", "asked hello"),
        ("mine", "in a thread"),
        ("other", "begun"),
    ]
    assert served.process.stdout is not None
    assert await served.process.stdout.read() == b""


FAULTY = """
import logging

log = logging.getLogger("my_agent")


async def reply(turn):
    log.info("got %d items", "three")
    log.info("half \\ud800")
    yield "Well."


def in_thread(turn):
    log.info("got %d items", "three")
    return "Well."
"""


@pytest.mark.parametrize("run_in", ["thread", "process"])
@pytest.mark.parametrize("function", ["reply", "in_thread"])
@pytest.mark.parametrize("form", ["json", "text"])
async def test_a_faulty_call_of_logging_is_a_line_and_harms_no_turn(
    start: Start, tmp_path: Path, run_in: str, function: str, form: str
) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY, encoding="utf-8")
    config = CONFIG.replace("./mine.py:reply", f"./faulty.py:{function}").replace(
        f'{function}"', f'{function}", run_in: {run_in}'
    )
    served = await start("--log-format", form, config=config)
    task = (await served.send("hello"))["result"]["task"]
    lines = await served.ended()
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    (line,) = [line for line in lines if "got %d items" in line]
    assert not any("Traceback" in line or "Logging error" in line for line in lines)
    if form == "json":
        told = json.loads(line)
        assert (told["event"], told["agent"], told["logger"]) == ("python.log-failed", "mine", "my_agent")
        assert (told["message"], told["arguments"], told["function"]) == ("got %d items", "('three',)", function)
        assert told["file"] == str(tmp_path / "faulty.py")
        assert told["detail"].startswith("TypeError: %d format")


async def test_an_agent_that_closes_standard_error_silences_no_line(start: Start, tmp_path: Path) -> None:
    (tmp_path / "closes.py").write_text("import sys\ndef reply(text): sys.stderr.close(); return text\n")
    served = await start(config=CONFIG.replace("./mine.py", "./closes.py"))
    await served.send("hello")
    await served.send("hello")
    told = [line["event"] for line in events(await served.ended())]
    assert (told.count("turn"), told.count("drain.begun")) == (2, 1)


async def test_an_agent_in_a_process_of_its_own_logs_like_any_other(start: Start) -> None:
    served = await start("--log-level", "debug", config=CONFIG.replace('reply"}', 'reply", run_in: process}'))
    await served.send("hello")
    told = events(await served.ended())
    own = [(line["event"], line["level"], line["agent"]) for line in told if line.get("logger") in ("my_agent", "root")]
    assert own == [
        ("asked hello", "info", "mine"),
        ("closely", "debug", "mine"),
        ("from the module itself", "info", "mine"),
    ]
