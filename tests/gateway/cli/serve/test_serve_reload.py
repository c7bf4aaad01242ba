"""SIGHUP: the configuration is read again, and a wrong one changes nothing."""

import asyncio
import json
import os
import pty
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.config.plugins import Registry
from tests.a2a_client import a2a_http
from tests.gateway.cli.served import answer, serving

CONFIG = """\
version: 1
agents:
  echo: {type: python, ref: "gateway.cli.demo.agent:reply"}
"""
IN_TERMINAL = """\
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from a2a_gateway import main
main()
"""
BOUND = 60.0


@pytest.fixture(autouse=True)
def hangups() -> Iterator[None]:
    """Tests that run under nohup ignore SIGHUP, and so would what they start."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "gateway.yaml"
    path.write_text(CONFIG)
    return path


def change(file: Path, text: str | None) -> None:
    if text is None:
        file.unlink()
    else:
        file.write_text(text)


async def test_a_file_that_is_not_taken_has_a_line_in_the_audit_log(file: Path, tmp_path: Path) -> None:
    change(file, f"{CONFIG}audit: {{path: audit.jsonl}}\n")
    async with serving("-c", str(file), folder=tmp_path) as child:
        change(file, CONFIG.replace("type: python", "type: pyton"))
        child.signal(signal.SIGHUP)
        await child.logged("reload.refused")
        line = json.loads((tmp_path / "audit.jsonl").read_text().splitlines()[-1])
    assert (line["action"], line["outcome"], line["target"]) == ("config.reloaded", "config_invalid", {})


async def test_at_sighup_the_file_is_read_again(file: Path, tmp_path: Path) -> None:
    async with serving("-c", str(file), folder=tmp_path) as child, a2a_http(child.url) as http:
        change(file, CONFIG.replace("echo:", "other:") + "server: {shutdown_grace: 5s}\n")
        child.signal(signal.SIGHUP)
        assert (await child.logged("reload.needs-restart"))["setting"] == "server.shutdown_grace"
        assert (await child.logged("reload.done"))["agents"] == ["other"]
        assert (await http.get("/a2a/echo/.well-known/agent-card.json")).status_code == 404
        assert (await http.get("/a2a/other/.well-known/agent-card.json")).json()["name"] == "other"

        change(file, CONFIG.replace("type: python", "type: pyton") + "limits: {parts: 0}\n")
        child.signal(signal.SIGHUP)
        problems = {(await child.logged("reload.refused"))["problem"] for _ in range(2)}
        assert problems == {
            (
                f"{file}:3:16: agents.echo.type: unknown type 'pyton'; did you mean 'python'? "
                f"Known types: {', '.join(Registry().known('agents'))}"
            ),
            f"{file}:4:17: limits.parts: must be at least 1, not 0",
        }
        assert await answer(child, "other") == "Your message has 1 word."

        change(file, None)
        child.signal(signal.SIGHUP)
        assert (await child.logged("reload.refused"))["problem"].startswith(f"{file}: there is no such file")
        child.signal(signal.SIGTERM)
        assert await child.ended() == 0


HANGS_UP = """
import os, pathlib, signal
file = pathlib.Path(__file__).with_name("gateway.yaml")
file.write_text(file.read_text() + '  other: {type: python, ref: "gateway.cli.demo.agent:reply"}\\n')
for _ in range(2):
    os.kill(os.getpid(), signal.SIGHUP)


def reply(text):
    return text
"""


@pytest.mark.parametrize("options", [(), ("--debug",)])
async def test_a_sighup_before_it_serves_is_done_right_after_the_start(
    file: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    (tmp_path / "mine.py").write_text(HANGS_UP)
    change(file, CONFIG + '  mine: {type: python, ref: "./mine.py:reply"}\n')
    async with serving("-c", str(file), *options, folder=tmp_path) as child:
        assert (await child.logged("reload.done"))["agents"] == ["echo", "mine", "other"]
        assert await answer(child, "other") == "Your message has 1 word."
        child.signal(signal.SIGTERM)
        assert await child.ended() == 0


async def code_after_closed_terminal(file: Path, seen: bytes) -> int:
    """The exit code of a gateway whose terminal is closed once its standard error has these bytes."""
    terminal, inside = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IN_TERMINAL, "serve", "-c", str(file), "--port", "0", "--log-format", "text",
        stdin=inside, stderr=PIPE, start_new_session=True,
    )  # fmt: skip
    os.close(inside)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(BOUND):
            await process.stderr.readuntil(seen)
            os.close(terminal)
            return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_closing_the_terminal_ends_a_gateway_that_does_not_serve_yet(file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import sys, threading\nprint('begun', file=sys.stderr)\nthreading.Event().wait()\n"
    )
    change(file, CONFIG + '  mine: {type: python, ref: "./mine.py:reply"}\n')
    assert await code_after_closed_terminal(file, b"begun") == -signal.SIGHUP


async def test_closing_the_terminal_ends_the_gateway(file: Path) -> None:
    assert await code_after_closed_terminal(file, b"Try: ") == 0
