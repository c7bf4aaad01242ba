"""Sources of a configuration: the folder of relative paths, and errors of reading and saving."""

from pathlib import Path

import pytest

from gateway.cli.console.output import ExitCode
from gateway.cli.serve.sources import compose, read_composed, read_file
from gateway.config.problems import ConfigInvalid
from tests.gateway.cli.conftest import Call


def test_the_default_database_lies_beside_the_configuration_file(tmp_path: Path) -> None:
    text = compose(["ollama:m"], {}, tmp_path)
    file = tmp_path / "gateway.yaml"
    file.write_text(text)
    assert read_composed(text, {}, tmp_path) == read_file(file, {})
    assert read_file(file, {}).storage.url == f"sqlite:///{tmp_path}/data/gateway.db"


def test_a_flag_is_saved_and_beats_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_GATEWAY__SERVER__PORT", "1")
    monkeypatch.setenv("A2A_GATEWAY__AGENTS__M__TEMPERATURE", "0.5")
    text = compose(["ollama:m"], {"server.port": 2}, tmp_path)
    assert "server:\n  port: 2\n" in text
    config = read_composed(text, {"server.port": 2}, tmp_path)
    assert (config.server.port, config.agents["m"].settings.model_dump()["temperature"]) == (2, 0.5)


def test_problems_of_targets_name_no_line_of_a_generated_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A2A_GATEWAY__SERVER__PORT", "many")
    with pytest.raises(ConfigInvalid) as refused:
        read_composed(compose(["chat:ftp://h#m"], {}, tmp_path), {}, tmp_path)
    assert str(refused.value).splitlines() == [
        (
            "command line: agents.m.base_url: must be an address that starts with http:// or https:// and a host, "
            "not 'ftp://h'"
        ),
        "environment: A2A_GATEWAY__SERVER__PORT: must be a whole number, not 'many'",
    ]


def test_an_existing_file_is_refused(call: Call, tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    file.touch()
    ended = call("serve", "ollama:m", "--save", str(file))
    expected = f"{file} is there already; write over it with --force, or choose another name: --save FILE\n"
    assert (ended.code, ended.err) == (ExitCode.USAGE, expected)


def test_a_file_that_cannot_be_written_is_reported(call: Call, tmp_path: Path) -> None:
    ended = call("serve", "ollama:m", "--save", str(tmp_path / "gone" / "gateway.yaml"))
    expected = f"{tmp_path}/gone/gateway.yaml cannot be written: no such file or directory\n"
    assert (ended.code, ended.err) == (ExitCode.USAGE, expected)
