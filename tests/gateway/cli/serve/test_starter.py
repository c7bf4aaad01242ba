"""`init`: the files work unchanged, and existing files stay."""

import re
from pathlib import Path

import pytest

from gateway.cli.serve.starter import CONFIGURATION
from tests.a2a_client import A2A, a2a_http, text_of
from tests.gateway.cli.conftest import Call
from tests.running import local_gateway


@pytest.fixture(autouse=True)
def _there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_starter_files_pass_the_check(call: Call) -> None:
    ended = call("init")
    expected = "wrote gateway.yaml, my_agent.py\nTry: a2a-gateway check\n     a2a-gateway serve\n"
    assert (ended.code, ended.out, ended.err) == (0, expected, "")
    checked = call("check", "--live")
    assert (checked.code, checked.out.splitlines()[0]) == (0, "gateway.yaml: ok; agents: mine")


def test_the_commented_agents_are_valid(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call("init", "all of it")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    file = tmp_path / "all of it" / "gateway.yaml"
    file.write_text(re.sub(r"^( *)# (?= *[a-z_]+: ?)", r"\1", file.read_text(), flags=re.MULTILINE))
    checked = call("check", "-c", str(file))
    assert (checked.code, checked.out) == (0, f"{file}: ok; agents: mine, openai, local\n"), checked.err


async def test_its_agent_remembers_the_conversation(call: Call, tmp_path: Path) -> None:
    call("init")
    async with (
        local_gateway("mine: {type: python, ref: ./my_agent.py:reply}", tmp_path) as local,
        a2a_http(local.url) as http,
    ):
        mine = A2A(http, "mine")
        first = await mine.send("one two three")
        second = await mine.send("four", first["contextId"])
    assert text_of(first) == "That was 3 words, in message 1 of this conversation."
    assert text_of(second) == "That was 1 words, in message 2 of this conversation."


def test_a_missing_folder_is_created(call: Call, tmp_path: Path) -> None:
    ended = call("init", "my gateway")
    assert ended.out == (
        "wrote my gateway/gateway.yaml, my gateway/my_agent.py\n"
        "Try: a2a-gateway check -c 'my gateway/gateway.yaml'\n"
        "     a2a-gateway serve -c 'my gateway/gateway.yaml'\n"
    )
    assert (tmp_path / "my gateway" / "gateway.yaml").read_text() == CONFIGURATION


@pytest.mark.parametrize(
    ("present", "words"),
    [
        (["gateway.yaml"], "gateway.yaml is there already"),
        (["my_agent.py"], "my_agent.py is there already"),
        (["gateway.yaml", "my_agent.py"], "gateway.yaml and my_agent.py are there already"),
    ],
)
def test_no_file_is_overwritten(present: list[str], words: str, call: Call, tmp_path: Path) -> None:
    for name in present:
        (tmp_path / name).write_text("mine")
    ended = call("init")
    expected = f"init: {words}, nothing was written; choose another folder: a2a-gateway init FOLDER\n"
    assert (ended.code, ended.out, ended.err) == (2, "", expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(present)


def test_a_folder_that_cannot_be_created_is_reported(call: Call, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = call("init", "file/below")
    assert (ended.code, ended.err) == (2, "init: file/below cannot be written: not a directory\n")
