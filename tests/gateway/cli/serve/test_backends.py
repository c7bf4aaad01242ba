"""`backends`: what is installed and what it can do, also beside a plug-in that cannot be used."""

import json
import re
import socket
from pathlib import Path

import pytest

from gateway.cli.serve.backends import describe
from gateway.config.plugins import Registry
from tests.gateway.cli.conftest import Call
from tests.support.installed import install, run

BROKEN = {
    "acme-broken": {"broken": "no_gpu:factory"},
    "acme-other": {"twice": "no_gpu:x"},
    "acme-third": {"twice": "y:x"},
}
MODULES = {"no_gpu": "raise RuntimeError('no\\n GPU')\n"}
REASONS = {
    "broken": (
        "the plug-in 'broken' (entry point no_gpu:factory of acme-broken 1.2) cannot be loaded: RuntimeError: no GPU"
    ),
    "twice": "several packages bring a plug-in 'twice': acme-other 1.2, acme-third 1.2; keep one of them",
}


@pytest.mark.parametrize("command", [["backends"], ["backends", "--json"], ["backends", "-o", "jsonl"]])
def test_a_plug_in_that_cannot_be_used_is_listed_with_its_reason_among_the_others(
    tmp_path: Path, command: list[str]
) -> None:
    install(tmp_path, BROKEN, MODULES)
    ended = run(tmp_path, *command)
    assert (ended.returncode, ended.stderr) == (0, "")
    match command[1:]:
        case []:
            told = ended.stdout.splitlines()
            assert all(f"{name}: cannot be used: {reason}" in told for name, reason in REASONS.items())
            assert any(line.startswith("python: ") for line in told)
        case options:
            listed = (
                json.loads(ended.stdout)["backends"]
                if options == ["--json"]
                else [json.loads(line) for line in ended.stdout.splitlines()]
            )
            told_reasons = {each["type"]: each["problem"] for each in listed if "problem" in each}
            assert told_reasons == REASONS
            assert {"broken", "twice", "python"} <= {each["type"] for each in listed}


def test_no_service_is_asked(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert call("backends").code == 0


def described(kind: str) -> dict[str, object]:
    [adapter] = [each for each in Registry().adapters() if each.type == kind]
    [targets] = [each.shorthand for each in Registry().shorthands() if each.type == kind]
    found: dict[str, object] = describe(adapter, targets)
    return found


def test_every_way_of_keeping_a_conversation_has_the_abilities_of_its_adapter() -> None:
    responses = described("openai-responses")
    common = ["streaming", "tools", "approvals", "files in", "files out"]
    assert responses["states"] == [
        {
            "owner": "backend",
            "handle": "rotating",
            "setting": None,
            "abilities": [*common, "fetch", "delete", "probe", "adopt"],
        },
        {
            "owner": "backend",
            "handle": "rotating",
            "setting": "background: true",
            "abilities": [*common, "resume", "cancel", "fetch", "delete", "probe", "adopt"],
        },
        {
            "owner": "backend",
            "handle": "static",
            "setting": "conversation: true",
            "abilities": [*common, "reconcile", "delete", "probe", "adopt"],
        },
        {
            "owner": "backend",
            "handle": "static",
            "setting": "conversation: true, background: true",
            "abilities": [*common, "resume", "cancel", "fetch", "reconcile", "delete", "probe", "adopt"],
        },
        {"owner": "gateway", "handle": "none", "setting": "history: {owner: gateway}", "abilities": [*common, "probe"]},
    ]


def test_a_type_is_described_with_its_package_its_targets_and_its_modes() -> None:
    chat = described("openai-chat")
    assert chat.pop("package").startswith("a2a-gateway ")  # type: ignore[attr-defined]  # a text
    assert chat == {
        "type": "openai-chat",
        "summary": "Chat Completions: OpenAI, Ollama, vLLM, llama.cpp, LM Studio and other servers",
        "targets": ["ollama:MODEL", "chat:URL#MODEL"],
        "inputModes": ["text/plain", "text/*", "application/json", "application/*", "image/*", "audio/*"],
        "outputModes": ["text/plain"],
        "states": [
            {
                "owner": "gateway",
                "handle": "none",
                "setting": None,
                "abilities": ["streaming", "tools", "files in", "probe"],
            }
        ],
    }


def test_people_get_a_paragraph_for_each_type(call: Call) -> None:
    ended = call("backends")
    lines = ended.out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("openai-responses: "))
    assert lines[at].startswith("openai-responses: Responses: OpenAI, ")
    assert re.sub("  +", "  ", lines[at + 2]) == (
        "  backend, rotating (background: true)  streaming, tools, approvals, files in, files out, resume, cancel, fetch, "
        "delete, probe, adopt"
    )
    assert (ended.code, ended.err) == (0, "")


@pytest.mark.parametrize("adapter", Registry().adapters(), ids=lambda adapter: adapter.type)
def test_every_type_of_this_package_says_what_it_is_and_how_it_keeps_conversations(adapter: object) -> None:
    told = describe(adapter, None)  # type: ignore[arg-type]  # pytest gives the parameter
    assert told["summary"]
    assert "\n" not in told["summary"]
    assert told["states"]


# --- the adapter of the example ---------------------------------------------------------------------------------------

EXAMPLE = Path(__file__).parents[4] / "examples" / "echo_adapter"


@pytest.fixture
def echo(tmp_path: Path) -> Path:
    """A folder in which the adapter of the example is installed."""
    modules = {name: (EXAMPLE / f"{name}.py").read_text() for name in ("echo_adapter", "echo_targets")}
    install(
        tmp_path, {"a2a-gateway-echo": {"echo": "echo_adapter:factory"}}, modules, {"echo": "echo_targets:SHORTHAND"}
    )
    return tmp_path


def test_an_adapter_of_others_is_listed_like_those_of_the_gateway(echo: Path) -> None:
    lines = run(echo, "backends").stdout.splitlines()
    at = lines.index("echo: A service that says everything again (a2a-gateway-echo 1.2)")
    assert lines[at + 1] == "  gateway  streaming"


def test_its_shorthand_is_in_the_help_and_its_errors_are_those_of_the_command_line(echo: Path) -> None:
    assert re.search(
        r"^ +echo:URL +a service that says everything again$", run(echo, "serve", "--help").stdout, re.MULTILINE
    )
    ended = run(echo, "serve", "echo:")
    assert (ended.returncode, ended.stdout, ended.stderr) == (
        2,
        "",
        "serve: 'echo:' names no address; write echo:URL\n",
    )
    ended = run(echo, "serve", "ecko:http://h")
    assert (ended.returncode, ended.stderr) == (
        2,
        "serve: 'ecko:http://h' is no target; did you mean 'echo:http://h'?\n",
    )


def test_its_shorthand_is_saved_as_its_settings(echo: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run(echo, "serve", "echo:http://127.0.0.1:1/echo", "--save", "gateway.yaml", "--port", str(port))
    assert (ended.returncode, "another program does" in ended.stderr) == (69, True)
    saved = (echo / "gateway.yaml").read_text()
    assert saved.partition("agents:\n")[2] == "  echo:\n    type: echo\n    url: http://127.0.0.1:1/echo\n"
