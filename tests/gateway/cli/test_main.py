"""Whole command lines: wrong ones, the imports of help, and tracebacks only on request."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.cli.console.parameters import SendOptions
from gateway.cli.main import run
from tests.gateway.cli.conftest import CommandLine

UNREACHABLE = "Is it running? Another address is given with -u URL."
SEND_HELP = "See: a2a-gateway send --help"

WRONG: list[tuple[list[str], int, str]] = [
    (["sned", "hi"], 2, "a2a-gateway: No such command 'sned'. Did you mean 'send'?\nSee: a2a-gateway --help"),
    (["send"], 2, f"a2a-gateway send: Missing argument 'TEXT'\n{SEND_HELP}"),
    (
        ["send", "hi", "there", "it's me"],
        2,
        (
            "a2a-gateway send: Got unexpected extra argument(s) (there it's me)\n"
            "A text of several words stands in quotes: a2a-gateway send 'hi there it'\"'\"'s me'\n"
            f"{SEND_HELP}"
        ),
    ),
    (["send", "hi", "--header"], 2, f"a2a-gateway send: Option '--header' requires an argument\n{SEND_HELP}"),
    (
        ["send", "hi", "--timeout", "soon"],
        2,
        f"a2a-gateway send: Invalid value for '--timeout': must be a valid number\n{SEND_HELP}",
    ),
    (
        ["send", "hi", "-o", "xml"],
        2,
        f"a2a-gateway send: Invalid value for '-o' / '--output': 'xml' is not one of 'text', 'json', 'jsonl'\n{SEND_HELP}",
    ),
    (
        ["stream", "hi", "--contxt", "c"],
        2,
        "a2a-gateway stream: No such option: --contxt (Possible options: --context, --output)\nSee: a2a-gateway stream --help",
    ),
    (
        ["serve", "--port", "70000"],
        2,
        "a2a-gateway serve: Invalid value for '--port': must be less than or equal to 65535\nSee: a2a-gateway serve --help",
    ),
    (
        ["check", "my file.yaml"],
        2,
        (
            "a2a-gateway check: Got unexpected extra argument(s) (my file.yaml)\n"
            "A configuration file is named with -c: a2a-gateway check -c 'my file.yaml'\nSee: a2a-gateway check --help"
        ),
    ),
    *(
        (
            ["send", "hi", "--idempotency-key", key],
            2,
            "--idempotency-key must be visible ASCII characters, without spaces",
        )
        for key in ("\u00e9", "a b", "a\nb")
    ),
    (["send", ""], 2, "there is nothing to send: TEXT is empty; give a text, --file or --data"),
    (["send", "hi", "--header", "token"], 2, "--header must look like 'Name: value', not 'token'"),
    (
        ["send", "hi", "--data", "a=1"],
        2,
        """--data is not JSON: Expecting value: line 1 column 1 (char 0); quote it as in --data '{"a": 1}'""",
    ),
    (["send", "hi", "--file", "gone.png"], 2, "--file 'gone.png' cannot be read: no such file or directory"),
    (
        ["send", "hi", "-u", "localhost:8080"],
        2,
        "'localhost:8080' is no address; write one such as http://127.0.0.1:8080",
    ),
    (
        ["serve", "-c", "gone.yaml"],
        78,
        (
            "gone.yaml: there is no such file; name another with -c FILE, begin one with a2a-gateway init, "
            "or try without one: a2a-gateway demo"
        ),
    ),
    (
        ["send", "hi", "-u", "http://127.0.0.1:1"],
        69,
        f"http://127.0.0.1:1/.well-known/agent-card.json cannot be reached: connection refused\n{UNREACHABLE}",
    ),
]

NOWHERE = "http://127.0.0.1:1"
NEW_COMMANDS: list[tuple[list[str], int, str]] = [
    (["tasks"], 2, "a2a-gateway tasks: Missing command\nSee: a2a-gateway tasks --help"),
    (
        ["tasks", "lst"],
        2,
        "a2a-gateway tasks: No such command 'lst'. Did you mean 'list'?\nSee: a2a-gateway tasks --help",
    ),
    (["tasks", "get"], 2, "a2a-gateway tasks get: Missing argument 'ID'\nSee: a2a-gateway tasks get --help"),
    (
        ["tasks", "list", "--state", "done"],
        2,
        (
            "a2a-gateway tasks list: Invalid value for '--state': 'done' is not one of 'submitted', 'working', 'completed', "
            "'failed', 'canceled', 'rejected', 'input-required', 'auth-required'\nSee: a2a-gateway tasks list --help"
        ),
    ),
    (
        ["tasks", "list", "--limit", "0"],
        2,
        (
            "a2a-gateway tasks list: Invalid value for '--limit': must be greater than or equal to 1\n"
            "See: a2a-gateway tasks list --help"
        ),
    ),
    (
        ["tasks", "watch", "t-1", "--from", "start"],
        2,
        (
            "a2a-gateway tasks watch: Invalid value for '--from': must be a valid integer\n"
            "See: a2a-gateway tasks watch --help"
        ),
    ),
    (
        ["contexts", "delete", "c-1", "c-2"],
        2,
        "a2a-gateway contexts delete: Got unexpected extra argument(s) (c-2)\nSee: a2a-gateway contexts delete --help",
    ),
    (
        ["contexts", "show", "c-1", "-u", "notes"],
        2,
        "'notes' is no address; write one such as http://127.0.0.1:8080",
    ),
    (["chat", "a", "b"], 2, "a2a-gateway chat: Got unexpected extra argument(s) (b)\nSee: a2a-gateway chat --help"),
    (
        ["chat", "ftp://127.0.0.1"],
        2,
        "'ftp://127.0.0.1' is no address; write one such as http://127.0.0.1:8080",
    ),
    (
        ["tasks", "list", "-a", "notes", "-u", NOWHERE],
        69,
        f"{NOWHERE}/a2a/notes/.well-known/agent-card.json cannot be reached: connection refused\n{UNREACHABLE}",
    ),
    *(
        (
            [*words, "-u", "http://127.0.0.1:8080", "--proxy", "http://me:pw@127.0.0.1:1"],
            69,
            (
                f"http://127.0.0.1:8080/{path} cannot be reached: connection refused "
                "(through the proxy http://***@127.0.0.1:1, of --proxy)\n"
                "Is the proxy right? Another is given with --proxy URL; NO_PROXY names hosts that need none."
            ),
        )
        for words, path in (
            (["agents", "list"], "a2a"),
            (["send", "hi"], ".well-known/agent-card.json"),
            (["push", "list"], "admin/api/v1/push"),
        )
    ),
    (
        ["contexts", "delete", "c-1", "-u", NOWHERE],
        69,
        f"{NOWHERE}/admin/api/v1/contexts/c-1 cannot be reached: connection refused\n{UNREACHABLE}",
    ),
]

HEAVY = {
    "adapters", "aiohttp", "aiosqlite", "alembic", "anyio", "asyncio", "grpc", "httpx", "httpx2", "msgspec", "opentelemetry",
    "rich", "sqlalchemy", "sqlmodel", "starlette", "storage", "structlog", "uvicorn", "uvloop",
}  # fmt: skip
IMPORTED_FOR = "import sys; from gateway.cli.main import run; code = run({!r}); print(*sys.modules, file=sys.stderr)"


@pytest.mark.parametrize(("arguments", "code", "words"), [*WRONG, *NEW_COMMANDS], ids=lambda value: str(value)[:40])
async def test_a_wrong_command_line_says_what_where_and_what_next(
    arguments: list[str], code: int, words: str, command_line: CommandLine
) -> None:
    ended = await command_line(*arguments)
    assert (ended.code, ended.out, ended.err) == (code, "", f"{words}\n")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["check", "--help"], ["stream", "-h"], ["version"], ["chat", "-h"], ["tasks", "list", "-h"]],
)
def test_help_imports_neither_database_nor_server_nor_client(arguments: list[str]) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", IMPORTED_FOR.format(arguments)],
        capture_output=True,
        text=True,
        check=True,
        # Coverage in a subprocess imports modules of its own.
        env={name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")},
    )
    imported = {name.partition(".")[0] for name in ended.stderr.split()}
    assert "typer" in imported
    assert imported & HEAVY == set()


def test_the_module_is_the_command_and_its_status_the_exit_code(tmp_path: Path) -> None:
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "gateway", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    version = call("version")
    assert (version.returncode, version.stdout.split()[0]) == (0, "a2a-gateway")
    assert call("--version").stdout == version.stdout
    wrong = call("chatter")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "Traceback" not in wrong.stderr


@pytest.mark.parametrize(
    "start", [["-m", "a2a_gateway"], ["-c", "from a2a_gateway import main; main()"], ["-m", "gateway"]], ids=" ".join
)
def test_modules_of_a_user_do_not_take_the_place_of_the_gateways(tmp_path: Path, start: list[str]) -> None:
    """Python searches the working directory and PYTHONPATH first."""
    for name in ("gateway.py", "storage.py", "adapters/__init__.py"):
        if (name, start[1]) != ("gateway.py", "gateway"):  # Python itself runs that one
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("raise SystemExit('a module of the user')\n")
    (tmp_path / "agent.py").write_text("def reply(text): return text\n")
    agents = (
        'a: {type: python, ref: "./agent.py:reply"}, b: {type: openai-chat, model: m, base_url: "http://127.0.0.1:1"}'
    )
    (tmp_path / "gateway.yaml").write_text(f"version: 1\nagents: {{{agents}}}\n")
    ended = subprocess.run(
        [sys.executable, *start, "check"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "gateway.yaml: ok; agents: a, b\n", "")


async def test_without_arguments_there_is_help_and_a_usage_error(command_line: CommandLine) -> None:
    ended = await command_line()
    assert ended.code == 2
    assert ended.out == (await command_line("--help")).out
    assert ended.out.startswith("Usage: a2a-gateway [OPTIONS] COMMAND [ARGS]...")


async def test_an_unexpected_error_is_one_line_and_a_traceback_only_with_debug(
    command_line: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def surprise(*_: object) -> int:
        raise ZeroDivisionError("a \x1b[31m\nsurprise")

    monkeypatch.setattr("gateway.cli.talk.send.run_send", surprise)
    plain = await command_line("send", "hi")
    expected = "unexpected error: ZeroDivisionError: a \\x1b[31m surprise\nRun it again with --debug for the details.\n"
    assert (plain.code, plain.err) == (1, expected)
    debugged = await command_line("send", "hi", "--debug")
    assert debugged.code == 1
    assert debugged.err.startswith("Traceback (most recent call last):")
    assert debugged.err.endswith(expected)


async def test_debug_shows_where_a_known_error_came_from(command_line: CommandLine) -> None:
    ended = await command_line("--debug", "send", "hi", "--data", "{")
    assert "JSONDecodeError" in ended.err


async def test_after_two_dashes_debug_is_text(command_line: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    orders: list[str] = []

    def note(_: str, order: SendOptions) -> int:
        orders.append(order.text)
        return 0

    monkeypatch.setattr("gateway.cli.talk.send.run_send", note)
    assert (await command_line("send", "--", "--debug")).code == 0
    assert orders == ["--debug"]


def test_ctrl_c_ends_with_its_own_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("gateway.cli.talk.send.run_send", interrupted)
    assert run(["send", "hi"]) == 130
    assert capsys.readouterr().err in ("", "interrupted\n")


async def test_a_reader_that_closes_the_pipe_causes_no_traceback() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway", "schema", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout._transport.close()  # type: ignore[attr-defined]  # a reader that hangs up
    error = await process.stderr.read()
    assert await process.wait() in (0, 1)
    assert error == b""
