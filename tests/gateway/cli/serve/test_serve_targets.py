"""`serve TARGET...`: each shorthand in front of its backend, the saved file, and wrong command lines."""

from pathlib import Path

import pytest

from gateway.testing.serving import serve
from tests.emulators.chat import ChatServer
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Say
from tests.gateway.cli.conftest import Call
from tests.gateway.cli.served import answer, serving

WRONG: list[tuple[list[str], int, str]] = [
    (["serve", "opnai:gpt-5.5"], 2, "serve: 'opnai:gpt-5.5' is no target; did you mean 'openai:gpt-5.5'?"),
    (["serve", "gateway.yaml"], 2, "serve: 'gateway.yaml' is no target; to serve a file, write: serve -c gateway.yaml"),
    (["serve", "openai:"], 2, "serve: 'openai:' names no model; write openai:MODEL, such as openai:gpt-5.5"),
    (
        ["serve", "openai:gpt-5.5"],
        78,
        (
            "serve: 'openai:gpt-5.5' needs the key of an OpenAI account; set OPENAI_API_KEY, as in: "
            "OPENAI_API_KEY=sk-... a2a-gateway serve openai:gpt-5.5"
        ),
    ),
    (
        ["serve", "chat:http://localhost:8000/v1"],
        2,
        (
            "serve: 'chat:http://localhost:8000/v1' names no model; write it behind the address: "
            "'chat:http://localhost:8000/v1#MODEL'"
        ),
    ),
    (
        ["serve", "chat:ftp://localhost/v1#m"],
        78,
        (
            "command line: agents.m.base_url: must be an address that starts with http:// or https:// and a host, "
            "not 'ftp://localhost/v1'"
        ),
    ),
    (
        ["serve", "tasks=ollama:m", "--port", "0"],
        78,
        "command line: agents: an agent cannot be called 'tasks': /a2a/tasks is the list of tasks",
    ),
    (
        ["serve", "python:no_such_module:reply", "--port", "0"],
        78,
        (
            "command line: agents.no-such-module: 'no_such_module:reply': there is no module 'no_such_module'; install it "
            "beside the gateway, put it beside the configuration file, or write `./file.py:name`"
        ),
    ),
    (
        ["serve", "ollama:m", "-c", "gateway.yaml"],
        2,
        "serve: takes targets or a file, not both: leave -c out, or add the agent to the file",
    ),
    (
        ["serve", "--save", "gateway.yaml"],
        2,
        "serve: --save writes targets to a file, and there are none: serve TARGET --save FILE",
    ),
    (["serve", "ollama:m", "--force"], 2, "serve: --force goes with --save FILE: it writes over that file"),
    (
        ["serve", "ollama:m", "--host", "0.0.0.0"],
        78,
        (
            "server.host: '0.0.0.0' can be reached from other machines and auth.mode is none, so anyone could use the "
            "agents; ask for API keys (auth: {mode: any_of, api_keys: {enabled: true}}), listen on 127.0.0.1, or start with "
            "--insecure if that is what you want"
        ),
    ),
    (
        ["check", "--live", "--file", "gateway.yaml"],
        2,
        "a2a-gateway check: No such option: --file (Possible options: --live)\nSee: a2a-gateway check --help",
    ),
    (["init", "a", "b"], 2, "a2a-gateway init: Got unexpected extra argument(s) (b)\nSee: a2a-gateway init --help"),
]


@pytest.mark.parametrize(("arguments", "code", "words"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_command_line_says_what_and_what_next(
    arguments: list[str], code: int, words: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    ended = call(*arguments)
    assert (ended.code, ended.out, ended.err) == (code, "", f"{words}\n")


def test_save_overwrites_a_file_only_with_force(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text("mine")
    ended = call("serve", "ollama:m", "--save", str(file))
    expected = f"{file} is there already; write over it with --force, or choose another name: --save FILE\n"
    assert (ended.code, ended.err, file.read_text()) == (2, expected, "mine")


def test_targets_that_do_not_work_are_not_saved(call: Call, tmp_path: Path) -> None:
    ended = call("serve", "python:./gone.py:reply", "--save", str(tmp_path / "new.yaml"))
    assert ended.code == 78
    assert ended.err.startswith("command line: agents.gone: ")
    assert list(tmp_path.iterdir()) == []


async def test_a_function_is_served(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text("def reply(text):\n    return f'You said {text}.'\n")
    async with serving("python:./my_agent.py:reply", "python:gateway.cli.demo.agent:reply", folder=tmp_path) as child:
        assert await answer(child, "my-agent") == "You said Hello."
        assert await answer(child, "agent") == "Your message has 1 word."
    assert (tmp_path / "data" / "gateway.db").exists()


async def test_a_chat_server_is_served(tmp_path: Path) -> None:
    server = ChatServer(lambda _: [Say("Hello to you.")])
    async with serve(server.app) as url, serving(f"local=chat:{url}/v1#some-model", folder=tmp_path) as child:
        assert await answer(child, "local") == "Hello to you."
    assert [request["model"] for request in server.requests] == ["some-model"]


async def test_ollama_is_a_chat_server_at_its_usual_address(tmp_path: Path) -> None:
    server = ChatServer(lambda _: [Say("Hello to you.")])
    async with serve(server.app) as url:
        moved = {"A2A_GATEWAY__AGENTS__LLAMA3_3__BASE_URL": f"{url}/v1"}
        async with serving("ollama:llama3.3", folder=tmp_path, **moved) as child:
            assert await answer(child, "llama3-3") == "Hello to you."


async def test_openai_gets_the_key_of_the_environment(tmp_path: Path) -> None:
    server = ResponsesServer(lambda _: [Say("Hello to you.")], api_key="sk-of-the-environment")
    async with serve(server.app) as url:
        moved = {"A2A_GATEWAY__AGENTS__GPT_5_5__BASE_URL": f"{url}/v1", "OPENAI_API_KEY": "sk-of-the-environment"}
        async with serving("openai:gpt-5.5", folder=tmp_path, **moved) as child:
            assert await answer(child, "gpt-5-5") == "Hello to you."
    assert [request["model"] for request in server.requests] == ["gpt-5.5"]


async def test_the_saved_file_serves_the_same_and_holds_no_key(tmp_path: Path) -> None:
    (tmp_path / "my_agent.py").write_text("def reply(text):\n    return text.upper()\n")
    targets = ["openai:gpt-5.5", "mine=python:my_agent.py:reply"]
    key = {"OPENAI_API_KEY": "sk-of-the-environment"}
    async with serving(*targets, "--save", "gateway.yaml", folder=tmp_path, **key) as child:
        assert await answer(child, "mine") == "HELLO"
        assert b"wrote gateway.yaml; next time: " in child.output
    saved = (tmp_path / "gateway.yaml").read_text()
    assert saved == (
        "version: 1\n"
        "server:\n"
        "  port: 0\n"
        "agents:\n"
        "  gpt-5-5:\n"
        "    type: openai-responses\n"
        "    model: gpt-5.5\n"
        "    api_key: ${OPENAI_API_KEY}\n"
        "  mine:\n"
        "    type: python\n"
        "    ref: ./my_agent.py:reply\n"
    )
    async with serving(folder=tmp_path, **key) as child:
        assert await answer(child, "mine") == "HELLO"
