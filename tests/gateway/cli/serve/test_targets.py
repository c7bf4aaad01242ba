"""Targets: the file of each shorthand, and the errors of a wrong one."""

from pathlib import Path

import pytest

from gateway.cli.console.output import ExitCode, Stop
from gateway.cli.serve.sources import Settings, configuration, read_targets

FOLDER = Path("/srv/gateway")
KEY = {"OPENAI_API_KEY": "sk-secret"}
FORMS = "openai:MODEL, ollama:MODEL, chat:URL#MODEL, python:./file.py:name, python:module:name"


def read(*words: str, env: dict[str, str] | None = None) -> dict[str, Settings]:
    return read_targets(words, KEY if env is None else env, FOLDER)


def agent(name: str, kind: str, settings: Settings) -> dict[str, Settings]:
    return {name: {"type": kind, **settings}}


MEANINGS = {
    "openai:gpt-5.5": agent("gpt-5-5", "openai-responses", {"model": "gpt-5.5", "api_key": "${OPENAI_API_KEY}"}),
    "ollama:llama3.3:70b": agent(
        "llama3-3-70b", "openai-chat", {"model": "llama3.3:70b", "base_url": "http://localhost:11434/v1"}
    ),
    "chat:http://gpu:8000/v1#meta-llama/Llama-3": agent(
        "meta-llama-llama-3", "openai-chat", {"model": "meta-llama/Llama-3", "base_url": "http://gpu:8000/v1"}
    ),
    "chat:http://gpu/v1?a=b#m": agent("m", "openai-chat", {"model": "m", "base_url": "http://gpu/v1?a=b"}),
    "python:my_package.agents:reply": agent("agents", "python", {"ref": "my_package.agents:reply"}),
    "python:/opt/agents/my_agent.py:Bot.reply": agent(
        "my-agent", "python", {"ref": "/opt/agents/my_agent.py:Bot.reply"}
    ),
    "notes=ollama:llama3.3": agent(
        "notes", "openai-chat", {"model": "llama3.3", "base_url": "http://localhost:11434/v1"}
    ),
    "a=ollama:b=c": agent("a", "openai-chat", {"model": "b=c", "base_url": "http://localhost:11434/v1"}),
    "ollama:${HOME}": agent("home", "openai-chat", {"model": "$${HOME}", "base_url": "http://localhost:11434/v1"}),
}


@pytest.mark.parametrize(("text", "target"), MEANINGS.items())
def test_a_target_stands_for_an_agent(text: str, target: dict[str, Settings]) -> None:
    assert read(text) == target


def test_a_file_of_python_is_named_from_the_folder_of_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder, ref in ((tmp_path, "./my.py:f"), (tmp_path / "conf", "../my.py:f")):
        for file in ("./my.py", "my.py"):
            assert read_targets([f"python:{file}:f"], {}, folder)["my"]["ref"] == ref


def test_several_targets_are_one_file_with_everything_quoted_that_yaml_would_misread() -> None:
    targets = read("openai:gpt-5.5", "yes=ollama:4.10", "odd=ollama:a: b")
    assert configuration(targets, {"host": "::1", "port": 9000}) == (
        "version: 1\n"
        "server:\n"
        '  host: "::1"\n'
        "  port: 9000\n"
        "agents:\n"
        "  gpt-5-5:\n"
        "    type: openai-responses\n"
        "    model: gpt-5.5\n"
        "    api_key: ${OPENAI_API_KEY}\n"
        "  yes:\n"
        "    type: openai-chat\n"
        '    model: "4.10"\n'
        "    base_url: http://localhost:11434/v1\n"
        "  odd:\n"
        "    type: openai-chat\n"
        '    model: "a: b"\n'
        "    base_url: http://localhost:11434/v1\n"
    )


WRONG = {
    ("opnai:gpt-5.5",): "'opnai:gpt-5.5' is no target; did you mean 'openai:gpt-5.5'?",
    ("mine=pyton:a:b",): "'mine=pyton:a:b' is no target; did you mean 'mine=python:a:b'?",
    ("gpt-5.5",): f"'gpt-5.5' is no target; write one of {FORMS}",
    ("openai",): "'openai' names no model; write openai:MODEL, such as openai:gpt-5.5",
    ("langgraph:http://h",): f"'langgraph:http://h' is no target; write one of {FORMS}",
    ("gateway.yaml",): "'gateway.yaml' is no target; to serve a file, write: serve -c gateway.yaml",
    ("./my_agent.py:reply",): "'./my_agent.py:reply' is no target; did you mean 'python:./my_agent.py:reply'?",
    ("http://h:1/v1#m",): "'http://h:1/v1#m' is no target; did you mean 'chat:http://h:1/v1#m'?",
    ("openai:",): "'openai:' names no model; write openai:MODEL, such as openai:gpt-5.5",
    ("a=ollama:",): "'a=ollama:' names no model; write a=ollama:MODEL, such as ollama:llama3.3",
    ("chat:http://h/v1",): "'chat:http://h/v1' names no model; write it behind the address: 'chat:http://h/v1#MODEL'",
    ("chat:h:1/v1#m",): "'chat:h:1/v1#m' has no address of a server; did you mean 'chat:http://h:1/v1#m'?",
    ("chat:",): "'chat:' has no address of a server; did you mean 'chat:http://localhost:8000/v1#MODEL'?",
    ("python:./a.py",): "'python:./a.py' names no function; write it behind a colon: 'python:./a.py:reply'",
    ("python:",): "'python:' names no function; write it behind a colon: 'python:./my_agent.py:reply'",
    ("My_Bot=ollama:m",): (
        "'My_Bot=ollama:m' cannot be called 'My_Bot'; a name has 1 to 63 of a-z, 0-9 and -, and does not begin with -: "
        "it is part of the agent's URL"
    ),
    ("ollama:模型",): "'ollama:模型' gives no name that a URL could carry; write one in front: my-agent=ollama:模型",
}


@pytest.mark.parametrize(("words", "message"), WRONG.items(), ids=str)
def test_a_wrong_target_says_what_to_write(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(Stop) as stopped:
        read(*words)
    assert (stopped.value.code, stopped.value.text) == (ExitCode.USAGE, f"serve: {message}")


def test_two_targets_of_one_name_need_a_name() -> None:
    with pytest.raises(Stop) as stopped:
        read("ollama:m", "chat:http://h/v1#m")
    assert stopped.value.text == "serve: two targets are called 'm'; name one of them: another-name=chat:http://h/v1#m"


@pytest.mark.parametrize("env", [{}, {"OPENAI_API_KEY": ""}])
def test_a_missing_openai_key_is_reported(env: dict[str, str]) -> None:
    with pytest.raises(Stop) as stopped:
        read("openai:gpt-5.5", env=env)
    assert (stopped.value.code, stopped.value.text) == (
        ExitCode.CONFIG_INVALID,
        (
            "serve: 'openai:gpt-5.5' needs the key of an OpenAI account; set OPENAI_API_KEY, as in: "
            "OPENAI_API_KEY=sk-... a2a-gateway serve openai:gpt-5.5"
        ),
    )
