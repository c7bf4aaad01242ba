"""First mistakes: a wrong name, address or terminal, with the real command line and a real gateway."""

import asyncio
import os
import shlex
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.a2a_client import A2A, a2a_http
from tests.gateway.cli.conftest import CommandLine
from tests.running import Local, local_gateway

AGENT = """
async def reply(turn):
    yield f"you said {turn.text}"
"""
AGENTS = "mine: {type: python, ref: './agent.py:reply'}\nyours: {type: python, ref: './agent.py:reply'}"
_BOUND = 60

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def gateway(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Local]:
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "agent.py").write_text(AGENT)
    async with local_gateway(AGENTS, folder) as gateway:
        yield gateway


@dataclass(frozen=True, slots=True)
class Shell:
    code: int
    out: str
    err: str


async def shell(line: str, *words: str, **environment: str) -> Shell:
    """Runs `a2a-gateway WORDS...` in a shell; `$A` in `line` stands for the command."""
    command = shlex.join([sys.executable, "-m", "gateway", *words])
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("A2A_GATEWAY", "LC_", "LANG"))}
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", line.replace("$A", command), stdin=PIPE, stdout=PIPE, stderr=PIPE, env=kept | environment
    )
    async with asyncio.timeout(_BOUND):
        out, err = await process.communicate(b"")
    return Shell(process.returncode or 0, out.decode(), err.decode())


# --- names and addresses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-a", "mien"), "; did you mean 'mine'? The agents of this gateway are mine, yours"),
        (("-a", "zzz"), "; the agents of this gateway are mine, yours"),
        ((), "; this gateway has several agents: name one of mine, yours"),
    ],
)
async def test_a_missing_agent_is_reported_with_the_existing_ones(
    gateway: Local, command_line: CommandLine, words: tuple[str, ...], expected: str
) -> None:
    ended = await command_line("stream", "Hi", "-u", gateway.url, *words)
    assert (ended.code, ended.out) == (69, "")
    assert ended.err.endswith(f"{expected}\n")


async def test_an_address_without_an_agent_says_so(gateway: Local, command_line: CommandLine) -> None:
    ended = await command_line("stream", "Hi", "-u", f"{gateway.url}/nothing")
    expected = f"{gateway.url}/nothing answered HTTP 404 Not Found\nThere is no A2A agent at this address."
    assert (ended.code, ended.err.startswith(expected)) == (69, True)


@pytest.mark.parametrize(
    "words", [("send", "Hi", "-a", "mine"), ("card", "mine"), ("agents", "list"), ("tasks", "list")]
)
async def test_a_name_that_the_gateway_does_not_answer_to_is_reported_with_the_setting(
    gateway: Local, command_line: CommandLine, words: tuple[str, ...]
) -> None:
    ended = await command_line(*words, "-u", gateway.url, "--header", "Host: agents.example")
    assert (ended.code, ended.out) == (1, "")
    assert "needs server.public_url to be set to the address that clients use" in ended.err


async def test_https_to_a_plain_server_is_explained(gateway: Local, command_line: CommandLine) -> None:
    ended = await command_line("stream", "Hi", "-u", gateway.url.replace("http://", "https://"))
    assert (ended.code, "SSL" in ended.err) == (69, False)
    assert "does its address begin with http:// and not with https://?" in ended.err


@pytest.mark.parametrize("command", ["send", "stream"])
async def test_a_message_to_a_missing_task_is_reported_with_the_command_that_lists_tasks(
    gateway: Local, command_line: CommandLine, command: str
) -> None:
    ended = await command_line(command, "Hi", "-u", gateway.url, "-a", "mine", "--task", "nope")
    assert (ended.code, ended.err) == (
        1,
        (
            f"there is no task 'nope' at {gateway.url}, agent 'mine'\n"
            f"Those that are there: a2a-gateway tasks list -u {gateway.url} -a mine\n"
        ),
    )


# --- terminals and pipes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (("stream", "Hi"), 0, "you said Hi\n"),
        (("chat",), 0, ""),
        (("stream", "-"), 2, ""),
    ],
)
async def test_a_closed_standard_input_is_an_empty_one(
    gateway: Local, words: tuple[str, ...], code: int, expected: str
) -> None:
    ended = await shell("$A <&-", *words, "-u", f"{gateway.url}/a2a/mine")
    assert (ended.code, ended.out, "unexpected" in ended.err) == (code, expected, False)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
async def test_closed_outputs_do_not_stop_a_command(gateway: Local, closed: str) -> None:
    assert (await shell(f"$A {closed}", "stream", "Hi", "-u", f"{gateway.url}/a2a/mine")).code == 0


async def test_a_full_disk_is_reported() -> None:
    ended = await shell("$A >/dev/full", "schema")
    assert (ended.code, ended.err) == (1, "what there is to say cannot be written: No space left on device\n")


async def test_a_reader_that_closes_the_pipe_causes_no_error_message(gateway: Local) -> None:
    ended = await shell("$A | head -n 1", "stream", "Hi", "-o", "jsonl", "-u", f"{gateway.url}/a2a/mine")
    assert (ended.out.count("\n"), ended.err) == (1, "")


async def test_words_of_another_locale_arrive_as_they_were_typed(gateway: Local) -> None:
    old = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}
    ended = await shell("$A", "stream", "grün €", "-u", f"{gateway.url}/a2a/mine", **old)
    assert (ended.code, ended.out) == (0, "you said gr\\xfcn \\u20ac\n")
    async with a2a_http(gateway.url) as http:
        latest, *_ = (await A2A(http, "mine").call("ListTasks", includeArtifacts=True))["tasks"]
    assert latest["artifacts"][0]["parts"][0]["text"] == "you said grün €"
