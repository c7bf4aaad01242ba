"""`serve`: from the file to a listening gateway, and the reasons why one does not start."""

import asyncio
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import httpx2
import pytest

from gateway.cli.serve.serve import cannot_listen, read_config, run_loop
from gateway.cli.serve.sources import read_file
from gateway.config.problems import ConfigInvalid
from tests.gateway.cli.conftest import Call, CommandLine

CONFIG = """\
version: 1
storage: {url: "sqlite:///gateway.db"}
agents:
  echo: {type: python, ref: "gateway.cli.demo.agent:reply"}
"""
BOUND = 60.0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(CONFIG)
    return path


async def bounded(wait: Coroutine[Any, Any, Any]) -> Any:
    async with asyncio.timeout(BOUND):
        return await wait


def last(text: str) -> str:
    """The last line, behind those of the log."""
    return text.splitlines()[-1]


async def started(*arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "gateway", *arguments, stdout=PIPE, stderr=PIPE)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_says_where_it_serves_and_ends_well_at_a_signal(file: Path, number: signal.Signals) -> None:
    options = ("--log-format", "text", "--log-level", "warning")
    process = await started("serve", "-c", str(file), "--port", "0", *options)
    assert process.stderr is not None
    try:
        first = (await bounded(process.stderr.readline())).decode()
        url = first.split()[-1]
        assert first == f"a2a-gateway serves 1 agent on {url}\n"
        card = f"{url}/a2a/echo/.well-known/agent-card.json"
        assert (await bounded(process.stderr.readline())).decode() == f"  {card}\n"
        assert f" stream -u {url} -a echo 'Hello'\n" in (await bounded(process.stderr.readline())).decode()
        async with httpx2.AsyncClient(trust_env=False) as client:
            assert (await client.get(card)).json()["name"] == "echo"
        process.send_signal(number)
        assert await bounded(process.wait()) == 0
        assert (file.parent / "gateway.db").exists()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_port_in_use_is_reported(file: Path, command_line: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = await command_line("serve", "-c", str(file), "--port", str(port))
    expected = (
        f"cannot listen on 127.0.0.1:{port}: another program does; stop it, or choose another port: --port PORT\n"
    )
    assert (ended.code, ended.err) == (69, expected)


async def test_an_address_of_another_machine_is_an_invalid_configuration(file: Path, command_line: CommandLine) -> None:
    ended = await command_line("serve", "-c", str(file), "--port", "0", "--host", "192.0.2.1", "--insecure")
    assert ended.code == 78
    assert ended.err.startswith("cannot listen on 192.0.2.1:0: ")


def test_an_os_error_without_a_number_is_reported_by_its_text() -> None:
    assert cannot_listen(OSError("Odd"), "h", 1).text == "cannot listen on h:1: odd; choose another --host or --port"


async def test_without_authentication_it_is_not_opened_to_other_machines_by_accident(
    file: Path, command_line: CommandLine
) -> None:
    ended = await command_line("serve", "-c", str(file), "--host", "0.0.0.0")
    assert ended.code == 78
    assert ended.err.startswith("server.host: '0.0.0.0' can be reached from other machines")
    assert "--insecure" in ended.err


def test_a_reload_cannot_remove_authentication_from_a_reachable_gateway(file: Path) -> None:
    asked = "auth: {mode: any_of, api_keys: {enabled: true}}\n"
    file.write_text(f"{CONFIG}{asked}server: {{host: 0.0.0.0}}\n")
    served = read_file(file, {})
    assert read_config(lambda: read_file(file, {}), served, insecure=False) == served
    # The running gateway keeps the address of its start.
    file.write_text(CONFIG)
    with pytest.raises(ConfigInvalid, match=r"'0\.0\.0\.0' can be reached from other machines and auth\.mode is none"):
        read_config(lambda: read_file(file, {}), served, insecure=False)
    assert read_config(lambda: read_file(file, {}), served, insecure=True).auth.mode == "none"


def test_an_agent_that_cannot_be_built_is_reported(file: Path, call: Call) -> None:
    file.write_text(CONFIG.replace(":reply", ":nothing"))
    ended = call("serve", "-c", str(file), "--port", "0")
    assert ended.code == 78
    assert ended.err.startswith(f"{file}:4:3: agents.echo: 'gateway.cli.demo.agent:nothing': ")


def test_an_unusable_database_is_reported(file: Path, call: Call) -> None:
    (file.parent / "gateway.db").write_bytes(b"this is no database, and long enough to be sure of it" * 100)
    ended = call("serve", "-c", str(file), "--port", "0")
    assert (ended.code, ended.out) == (69, "")
    assert last(ended.err).startswith(f"the database sqlite:///{file.parent}/gateway.db cannot be used: ")
    assert "Traceback" not in ended.err


def test_without_uvloop_asyncio_runs_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    async def loop() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert run_loop(loop()).startswith("uvloop")
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert run_loop(loop()).startswith("asyncio")


def test_a_rule_about_approvals_that_fits_no_tool_is_reported_at_its_place_in_the_file(file: Path, call: Call) -> None:
    (file.parent / "desk.py").write_text("def book() -> str:\n    'Books.'\n    return 'booked'\n")
    file.write_text(
        "version: 1\n"
        "tools: {desk: {type: python, ref: './desk.py:book'}}\n"
        "agents:\n"
        "  a:\n"
        "    type: openai-chat\n"
        "    model: m\n"
        "    base_url: http://localhost:1/v1\n"
        "    tools: [desk]\n"
        "    approvals:\n"
        "      - {tool: desk.boook}\n"
    )
    ended = call("serve", "-c", str(file), "--port", "0")
    problem = "agents.a.approvals[0].tool: 'desk.boook' fits no tool; did you mean 'desk.book'? there: desk.book"
    assert (ended.code, last(ended.err)) == (78, f"{file}:10:10: {problem}")
    assert not (file.parent / "data").exists()
