"""`check` and `schema`: the problems of a configuration file."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import jsonschema
import pytest
import yaml

from gateway.config.plugins import Registry
from tests.gateway.cli.conftest import Call

GOOD = """\
version: 1
agents:
  echo: {type: python, ref: "gateway.cli.demo.agent:reply"}
  other: {type: openai-chat, model: m, base_url: "http://127.0.0.1:1/v1"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "gateway.yaml"


def test_a_good_file_is_ok(file: Path, call: Call) -> None:
    file.write_text(GOOD)
    ended = call("check", "-c", str(file))
    assert (ended.code, ended.out, ended.err) == (0, f"{file}: ok; agents: echo, other\n", "")


def test_every_problem_is_a_line_with_its_place(file: Path, call: Call) -> None:
    file.write_text("version: 1\nserver: {prot: 1}\nagents:\n  a: {type: pyton, ref: x}\n")
    ended = call("check", "-c", str(file))
    assert (ended.code, ended.out) == (78, "")
    places = [line.split(": ")[:2] for line in ended.err.splitlines()]
    assert places == [[f"{file}:2:10", "server.prot"], [f"{file}:4:13", "agents.a.type"]]


def test_agents_that_cannot_be_built_are_found(file: Path, call: Call) -> None:
    refs = {"a": "gateway.cli.demo.agent:nothing", "b": "./gone.py:reply", "c": "gateway.cli.demo.agent:reply"}
    agents = "".join(f"  {name}: {{type: python, ref: '{ref}'}}\n" for name, ref in refs.items())
    file.write_text(f"version: 1\nagents:\n{agents}")
    ended = call("check", "-c", str(file))
    assert ended.code == 78
    starts = [f"{file}:{line}:3: agents.{name}: '{refs[name]}': " for line, name in enumerate("ab", 3)]
    assert [line.startswith(start) for line, start in zip(ended.err.splitlines(), starts, strict=True)] == [True, True]


@pytest.mark.parametrize("command", ["check", "serve"])
def test_a_module_that_interrupts_its_own_import_is_a_problem_like_any_other(
    file: Path, call: Call, tmp_path: Path, command: str
) -> None:
    (tmp_path / "mine.py").write_text("raise KeyboardInterrupt\n")
    file.write_text("version: 1\nserver: {port: 0}\nagents:\n  a: {type: python, ref: './mine.py:reply'}\n")
    ended = call(command, "-c", str(file))
    problem = (
        "importing './mine.py' failed with KeyboardInterrupt; mend it, or install what it needs beside the gateway"
    )
    assert ended.code == 78
    assert ended.err.splitlines()[-1] == f"{file}:4:3: agents.a: './mine.py:reply': {problem}"


@pytest.mark.parametrize("command", ["check", "serve"])
def test_ctrl_c_while_a_module_is_imported_ends_the_command(file: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "mine.py").write_text(
        "import sys\nprint('begun', file=sys.stderr, flush=True)\nsys.stdin.read()\ndef reply(text): return text\n"
    )
    file.write_text("version: 1\nserver: {port: 0}\nagents:\n  a: {type: python, ref: './mine.py:reply'}\n")
    words = [sys.executable, "-m", "gateway", command, "-c", str(file)]
    with subprocess.Popen(words, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stderr is not None
        while "begun" not in (line := process.stderr.readline()):
            assert line
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, "failed with" in err) == (130, False)


def test_flags_and_the_environment_come_before_the_file(
    file: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(GOOD)
    monkeypatch.setenv("A2A_GATEWAY__SERVER__PORT", "many")
    ended = call("check", "-c", str(file))
    assert ended.code == 78
    assert "A2A_GATEWAY__SERVER__PORT" in ended.err


def test_a_variable_that_names_no_authorities_is_a_problem(
    file: Path, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file.write_text(GOOD)
    (tmp_path / "empty.pem").touch()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "empty.pem"))
    expected = f"SSL_CERT_FILE: the file {tmp_path}/empty.pem holds no certificates in PEM\n"
    for words in (["check"], ["check", "--live"], ["serve"]):
        ended = call(*words, "-c", str(file))
        assert (ended.code, ended.out, ended.err) == (78, "", expected)


def test_authorities_that_are_not_there_are_told_before_what_is_wrong_with_the_file(
    file: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("version: 2\n")
    monkeypatch.setenv("SSL_CERT_FILE", "none.pem")
    ended = call("serve", "-c", str(file))
    assert (ended.code, ended.err) == (
        78,
        "SSL_CERT_FILE: the file none.pem cannot be read: no such file or directory\n",
    )


AGENT = "  a: {type: openai-chat, model: m}\n"
TYPES = ", ".join(Registry().known("agents"))
WRONG = {
    "nothing in it": (
        "",
        (
            "1:1: agents: is required, but missing; it must be a mapping of at least one agent: its name, then its settings\n"
            "FILE:1:1: version: is required, but missing (version of this file's format: 1)"
        ),
    ),
    "tab for spaces": (
        "version: 1\nagents:\n\ta: {type: python, ref: x:y}\n",
        (
            "3:1: not valid YAML: a value cannot begin with this character; "
            "indent with spaces and put the value in quotes"
        ),
    ),
    "bracket left open": (
        "version: 1\nagents: {a: {type: python}\n",
        "3:1: not valid YAML: a comma or the closing bracket is missing",
    ),
    "no version": (f"agents:\n{AGENT}", "1:1: version: is required, but missing (version of this file's format: 1)"),
    "misspelled section": (
        f"version: 1\nserer: {{port: 1}}\nagents:\n{AGENT}",
        "2:1: serer: unknown key; did you mean 'server'?",
    ),
    "misspelled key": (
        f"version: 1\nserver: {{prot: 1}}\nagents:\n{AGENT}",
        "2:10: server.prot: unknown key; did you mean 'port'?",
    ),
    "misspelled type": (
        "version: 1\nagents:\n  a: {type: openai, model: m}\n",
        f"3:13: agents.a.type: unknown type 'openai'; did you mean 'openai-chat'? Known types: {TYPES}",
    ),
    "no type": (
        "version: 1\nagents:\n  a: {model: m}\n",
        f"3:3: agents.a.type: is required, but missing; known types: {TYPES}",
    ),
    "no model": (
        "version: 1\nagents:\n  a: {type: openai-chat}\n",
        "3:3: agents.a.model: is required, but missing (name of the model)",
    ),
    "variable that is not set": (
        "version: 1\nagents:\n  a: {type: openai-chat, model: m, api_key: '${NO_SUCH_KEY}'}\n",
        (
            "3:45: agents.a.api_key: the environment variable NO_SUCH_KEY is not set; "
            "set it, or give a default: ${NO_SUCH_KEY:-...}"
        ),
    ),
    "address without http": (
        "version: 1\nagents:\n  a: {type: openai-chat, model: m, base_url: localhost:11434}\n",
        (
            "3:46: agents.a.base_url: must be an address that starts with http:// or https:// and a host, "
            "not 'localhost:11434'"
        ),
    ),
    "duration without unit": (
        f"version: 1\nlimits: {{turn_timeout: 60}}\nagents:\n{AGENT}",
        "2:24: limits.turn_timeout: must have a unit: write 60s, 60m or 60h, not 60",
    ),
    "path with a null character": (
        f'version: 1\naudit: {{path: "a\\0b"}}\nagents:\n{AGENT}',
        "2:15: audit.path: must be a path, and none has a null character, not 'a\\x00b'",
    ),
    "database without a file": (
        f"version: 1\nstorage: {{url: 'sqlite:///'}}\nagents:\n{AGENT}",
        "2:16: storage.url: must name a file and nothing else: sqlite:///./data/gateway.db",
    ),
    "database with a null character": (
        f'version: 1\nstorage: {{url: "sqlite:///a\\0b"}}\nagents:\n{AGENT}',
        "2:16: storage.url: must name a file and nothing else: sqlite:///./data/gateway.db",
    ),
    "beginning of a database's address": (
        f"version: 1\nstorage: {{url: 'postgresql://USER@HOST:5432/'}}\nagents:\n{AGENT}",
        "2:16: storage.url: must name a database, as postgresql://USER@HOST:5432/DATABASE",
    ),
    "other database": (
        f"version: 1\nstorage: {{url: 'mysql://h/db'}}\nagents:\n{AGENT}",
        "2:16: storage.url: unknown kind of storage 'mysql'; installed: postgres, postgresql, sqlite, temporary",
    ),
    "function without file": (
        "version: 1\nagents:\n  a: {type: python, ref: my_agent.py}\n",
        "3:26: agents.a.ref: must be `module:name` or `./file.py:name`",
    ),
    "window over a history of the service's": (
        "version: 1\nagents:\n  a: {type: openai-responses, model: m, history: {max_messages: 20, max_tokens: 9000}}\n",
        (
            "3:50: agents.a.history: history.max_messages and history.max_tokens can only limit a history that the gateway "
            "keeps, but history.owner is 'backend': remove that, or set `owner: gateway`"
        ),
    ),
    "owner that cannot be": (
        "version: 1\nagents:\n  a: {type: openai-chat, model: m, history: {owner: backend}}\n",
        "3:45: agents.a.history: a Chat Completions server keeps no conversation: the owner can only be 'gateway'",
    ),
}


@pytest.mark.parametrize(("text", "message"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_file_says_where_and_what_to_do(text: str, message: str, file: Path, call: Call) -> None:
    file.write_text(text)
    ended = call("check", "-c", str(file))
    assert (ended.code, ended.out, ended.err) == (78, "", f"{file}:{message}\n".replace("FILE", str(file)))


def test_print_writes_a_configuration_and_the_verdict_goes_to_standard_error(file: Path, call: Call) -> None:
    file.write_text(GOOD.replace("model: m", "model: m, api_key: sk-secret"))
    ended = call("check", "-c", str(file), "--print")
    assert (ended.code, ended.err) == (0, f"{file}: ok; agents: echo, other\n")
    assert "sk-secret" not in ended.out
    again = file.with_name("again.yaml")
    again.write_text(ended.out)
    printed = call("check", "-c", str(again), "--print")
    assert printed.out.replace("  # default", "") == ended.out.replace("  # default", "")


def test_what_a_module_prints_when_it_is_loaded_does_not_stand_in_the_printed_configuration(
    tmp_path: Path, file: Path, call: Call
) -> None:
    (tmp_path / "prints.py").write_text("print('hello')\ndef reply(text): return text\n")
    file.write_text("version: 1\nagents: {mine: {type: python, ref: './prints.py:reply'}}\n")
    ended = call("check", "-c", str(file), "--print")
    assert (ended.code, "hello" in ended.out) == (0, False)
    assert "python.output line=hello agent=mine" in ended.err


def test_an_unreadable_file_is_reported(tmp_path: Path, file: Path, call: Call) -> None:
    file.write_bytes(b"version: 1 # \xff")
    expected = {file: "is not UTF-8 text, from byte 13 on", tmp_path: "cannot be read: is a directory"}
    for path, words in expected.items():
        ended = call("check", "-c", str(path))
        assert (ended.code, ended.err) == (78, f"{path}: {words}\n")


def test_the_schema_knows_every_installed_type(call: Call) -> None:
    ended = call("schema")
    schema = json.loads(ended.out)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    assert validator.is_valid(yaml.safe_load(GOOD))
    assert not validator.is_valid({"version": 1, "agents": {"a": {"type": "pyton"}}})
