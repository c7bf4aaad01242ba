"""Completion of commands, options and names of agents by the shell."""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from gateway.cli.console.parameters import agent_names
from gateway.testing.serving import serve
from tests.gateway.cli.conftest import Call
from tests.running import local_gateway

Complete = Callable[..., list[str]]
AGENTS = """
notes: {type: python, ref: "gateway.cli.demo.agent:reply"}
news: {type: python, ref: "gateway.cli.demo.agent:reply"}
"""


@pytest.fixture
def complete(call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Complete:
    """What bash would offer for the last of these words."""

    def ask(*words: str) -> list[str]:
        monkeypatch.setenv("_A2A_GATEWAY_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(["a2a-gateway", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit) as ended:
            call()
        assert ended.value.code == 0
        return capsys.readouterr().out.split()

    return ask


def test_commands_options_and_choices_are_completed(complete: Complete) -> None:
    assert complete("con") == ["contexts"]
    assert complete("tasks", "") == ["list", "get", "cancel", "watch"]
    assert complete("tasks", "list", "--st") == ["--state"]
    assert complete("tasks", "list", "--state", "in") == ["input-required"]


async def test_agents_are_completed_from_the_gateway_of_the_url(
    complete: Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_gateway(AGENTS, tmp_path) as gateway:
        monkeypatch.setenv("A2A_GATEWAY_URL", gateway.url)
        assert await asyncio.to_thread(complete, "chat", "") == ["notes", "news"]
        assert await asyncio.to_thread(complete, "send", "-a", "ne") == ["news"]


def test_without_a_gateway_nothing_is_completed_and_no_error_is_shown(
    complete: Complete, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("A2A_GATEWAY_URL", "http://127.0.0.1:1")
    assert complete("card", "") == []
    assert capsys.readouterr().err == ""


def test_files_are_completed_by_the_shell(complete: Complete) -> None:
    assert complete("send", "--file", "") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_is_shown_its_script(shell: str) -> None:
    shown = subprocess.run(
        [sys.executable, "-m", "gateway", "--show-completion", shell],
        capture_output=True,
        text=True,
        check=True,
        env={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert f"_A2A_GATEWAY_COMPLETE=complete_{shell}" in shown.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_with_the_printed_script(tmp_path: Path) -> None:
    program = tmp_path / "a2a-gateway"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from gateway.__main__ import main; main()" "$@"\n')
    program.chmod(0o755)
    script = f"""
        source <(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION=1 {program} --show-completion bash)
        COMP_WORDS=(a2a-gateway he); COMP_CWORD=1
        $(complete -p a2a-gateway | sed 's/.*-F \\([^ ]*\\).*/\\1/') {program}
        echo "${{COMPREPLY[@]}}"
    """
    completed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert completed.stdout.split() == ["health"]


async def names(answer: Response) -> list[str]:
    async def listing(_: Request) -> Response:
        return answer

    async with serve(Starlette(routes=[Route("/base/a2a", listing)])) as url:
        return await asyncio.to_thread(agent_names, f"{url}/base/")


async def test_the_names_are_those_of_the_listing() -> None:
    assert await names(JSONResponse({"agents": [{"agent": "notes"}, {"agent": "news"}]})) == ["notes", "news"]


@pytest.mark.parametrize(
    "answer",
    [PlainTextResponse("hello"), JSONResponse({"agents": 1}), JSONResponse([]), JSONResponse({"agents": [{}]})],
)
async def test_an_answer_of_another_shape_gives_no_names(answer: Response) -> None:
    assert await names(answer) == []


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://[", "http://127.0.0.1:x"])
def test_an_address_without_a_gateway_gives_no_names(url: str) -> None:
    assert agent_names(url) == []
