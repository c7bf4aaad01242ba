"""`demo` as a process: the printed commands work, and no files remain; its configuration and its introduction."""

import asyncio
import json
import os
import shlex
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest

from gateway.cli.commands import app
from gateway.cli.demo.demo import configuration, introduction
from gateway.config.loader import load
from gateway.config.plugins import Registry
from tests.gateway.cli.conftest import Call

BOUND = 120.0
AGENTS = ("responses", "notes", "chat", "python")
URL = "http://127.0.0.1:8099"


@dataclass(frozen=True, slots=True)
class Demo:
    process: Process
    text: str

    def commands(self, verb: str) -> list[str]:
        """The printed lines that call this command."""
        return [line.strip() for line in self.text.splitlines() if f" {verb} " in line and line.startswith("  /")]


@asynccontextmanager
async def demo(folder: Path) -> AsyncIterator[Demo]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway",
        "demo",
        "--port",
        "0",
        stdout=PIPE,
        stderr=PIPE,
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(BOUND):
            yield Demo(process, (await process.stdout.readuntil(b"Ctrl-C")).decode())
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


def names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()]


async def outcome(command: str, folder: Path) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(*shlex.split(command), stdout=PIPE, stderr=PIPE, cwd=folder)
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


async def test_the_printed_commands_work_and_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    async with demo(tmp_path) as running:
        assert [name[:17] for name in names_in(tmp_path)] == ["a2a-gateway-demo-"]

        streams = running.commands("stream")
        asked, followed = streams[:4], streams[4:]
        results = await asyncio.gather(*(outcome(command, tmp_path) for command in asked))
        assert [code for code, _, _ in results] == [0, 0, 0, 0]
        assert ["tool: " in err for _, _, err in results] == [True, True, False, True]
        assert all(out.strip() for _, out, _ in results)

        introduced = await asyncio.gather(*(outcome(command, tmp_path) for command in running.commands("send")))
        assert [code for code, _, _ in introduced] == [0, 0]
        remembered = await asyncio.gather(*(outcome(command, tmp_path) for command in followed))
        knows = 'This is message 2 of our conversation. You first said: "My name is Ada.".\n'
        assert [(code, out) for code, out, _ in remembered] == [(0, knows), (0, knows)]

        await _the_printed_request_works(running.text)
        running.process.send_signal(signal.SIGINT)
        assert await running.process.wait() == 0
    assert names_in(tmp_path) == []


async def _the_printed_request_works(text: str) -> None:
    words = shlex.split(next(line for line in text.splitlines() if line.startswith("  curl ")))
    url, body = next(word for word in words if word.startswith("http")), words[-1]
    headers = dict(words[index + 1].split(": ") for index, word in enumerate(words) if word == "-H")
    async with httpx2.AsyncClient(trust_env=False, timeout=BOUND) as http:
        answer = (await http.post(url, content=body, headers=headers)).json()
    assert answer["result"]["task"]["status"]["state"] == "TASK_STATE_COMPLETED", json.dumps(answer)


def test_a_port_that_was_asked_for_is_not_replaced_by_another(call: Call) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = call("demo", "--port", str(port))
    assert ended.code == 69
    assert ended.err.startswith(f"cannot listen on 127.0.0.1:{port}: another program does")


async def test_without_a_port_it_takes_the_next_free_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        busy = taken.getsockname()[1]
        code = (
            f"import sys; from gateway.cli.demo import demo; demo._PORTS = ({busy}, 0); sys.exit(demo.run_demo(None))"
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, stdout=PIPE, stderr=PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}
        )
        assert process.stdout is not None
        async with asyncio.timeout(BOUND):
            first = (await process.stdout.readline()).decode()
            process.send_signal(signal.SIGTERM)
            await process.communicate()
    assert first.startswith("The demo runs on http://127.0.0.1:")
    assert f":{busy}:" not in first
    assert process.returncode == 0


@pytest.mark.parametrize("moment", ["before the gateway runs"])
def test_ctrl_c_ends_the_demo(moment: str, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(main: object) -> None:
        main.close()  # type: ignore[attr-defined]  # a coroutine that never runs
        raise KeyboardInterrupt(moment)

    monkeypatch.setattr("gateway.cli.demo.demo.run_loop", interrupted)
    assert call("demo").code == 0


def test_the_configuration_of_the_demo_is_valid(tmp_path: Path) -> None:
    text = configuration("http://127.0.0.1:1/v1", tmp_path / 'it\'s "here".db')
    config = load(text, source="demo", env={}, plugins=Registry(), base_dir=tmp_path)
    assert tuple(config.agents) == AGENTS
    assert config.storage.url == f'sqlite:///{tmp_path}/it\'s "here".db'
    assert [config.agents[name].type for name in AGENTS] == [
        "openai-responses",
        "openai-responses",
        "openai-chat",
        "python",
    ]
    assert [config.agents[name].settings.model_dump().get("history", {}).get("owner") for name in AGENTS] == [
        None,
        "gateway",
        None,
        None,
    ]


def test_the_introduction_names_every_card_and_prints_commands_that_exist() -> None:
    text = introduction(URL, "bin/a2a-gateway", AGENTS)
    for name in AGENTS:
        assert f"{URL}/a2a/{name}/.well-known/agent-card.json" in text
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith(("  bin/", "  curl "))]
    known = {info.callback.__name__ for info in app.registered_commands if info.callback}
    ours = [words for words in commands if words[0] == "bin/a2a-gateway"]
    assert {words[1] for words in ours} == {"stream", "send"} <= known
    assert all(words[2:4] == ["-u", URL] for words in ours)
    assert [words[0] for words in commands].count("curl") == 1


def test_the_pages_come_first_where_there_are_some() -> None:
    assert introduction(URL, "a2a-gateway", AGENTS, pages=True).splitlines()[1] == f"Look at it in a browser: {URL}/ui/"
    assert "/ui/" not in introduction(URL, "a2a-gateway", AGENTS)


def test_commands_do_not_name_the_default_address() -> None:
    assert " -u " not in introduction("http://127.0.0.1:8080", "a2a-gateway", AGENTS)
