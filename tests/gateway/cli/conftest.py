"""Command lines run in this process, against a scripted agent on loopback."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from gateway.cli.main import run


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    out: str
    err: str


Call = Callable[..., Ended]
CommandLine = Callable[..., Awaitable[Ended]]
Typing = Callable[..., Awaitable[Ended]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Runs `a2a-gateway ARGUMENTS...` here."""
    for variable in ("A2A_GATEWAY_URL", "A2A_GATEWAY_KEY"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("sys.argv", ["a2a-gateway"])

    def perform(*arguments: str) -> Ended:
        code = run(arguments)
        return Ended(code, *capsys.readouterr())

    return perform


@pytest.fixture
def command_line(call: Call) -> CommandLine:
    """Runs a command line in a thread, beside a server in the event loop of the test."""

    async def perform(*arguments: str) -> Ended:
        return await asyncio.to_thread(call, *arguments)

    return perform


@pytest.fixture
def typing(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Typing:
    """A command line with these lines on its standard input, which is a pipe."""

    async def perform(lines: str, *arguments: str) -> Ended:
        read, write = os.pipe()
        os.write(write, lines.encode())
        os.close(write)
        with os.fdopen(read) as stdin:
            monkeypatch.setattr("sys.stdin", stdin)
            return await command_line(*arguments)

    return perform
