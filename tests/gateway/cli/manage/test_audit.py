"""`audit verify`, and the lines of commands that change something."""

import json
from pathlib import Path

import pytest

from gateway.cli.console.output import ExitCode
from tests.gateway.cli.conftest import Call

AGENT = 'mine: {type: python, ref: "gateway.cli.demo.agent:reply"}'


def configuration(folder: Path, audit: str) -> str:
    file = folder / "gateway.yaml"
    asked = "auth: {mode: any_of, api_keys: {enabled: true}}"
    storage = "storage: {url: 'sqlite:///gateway.db'}"
    file.write_text(f"version: 1\n{storage}\n{asked}\naudit: {{{audit}}}\nagents:\n  {AGENT}\n")
    return str(file)


def entries(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "audit.jsonl").read_text().splitlines()]


def test_making_and_revoking_a_key_have_a_line(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path, "path: audit.jsonl")
    call("keys", "create", "laptop", "-c", file)
    call("keys", "revoke", "laptop", "-c", file)
    told = [(entry["action"], entry["target"]) for entry in entries(tmp_path)]
    assert told == [("key.created", {"key": "laptop", "principal": "laptop"}), ("key.revoked", {"key": "laptop"})]
    verified = call("audit", "verify", str(tmp_path / "audit.jsonl"))
    assert (verified.code, verified.out) == (0, "2 lines of 2 processes are as they were written\n")


def test_a_log_without_a_line_is_not_called_intact(call: Call, tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    log.touch()
    verified = call("audit", "verify", str(log))
    assert (verified.code, verified.out, verified.err) == (
        1,
        "",
        "there is no line, although the first process that writes a log begins it with one\n",
    )


def test_the_line_of_a_new_key_says_whose_it_is_and_that_it_is_an_admins(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path, "path: audit.jsonl")
    call("keys", "create", "laptop", "--principal", "ada", "--tenant", "acme", "--admin", "-c", file)
    [entry] = entries(tmp_path)
    assert entry["target"] == {"key": "laptop", "principal": "ada", "tenant": "acme", "admin": True}


def test_a_command_that_is_refused_has_a_line_with_the_reason(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path, "path: audit.jsonl")
    call("keys", "create", "laptop", "-c", file)
    call("keys", "create", "laptop", "-c", file)
    call("keys", "revoke", "none", "-c", file)
    told = [(entry["action"], entry["outcome"], entry["target"]) for entry in entries(tmp_path)[1:]]
    assert told == [
        ("key.created", "conflict", {"key": "laptop", "principal": "laptop"}),
        ("key.revoked", "not_found", {"key": "none"}),
    ]


def test_a_command_whose_storage_does_not_take_it_has_a_line_which_says_so(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path, "path: audit.jsonl")
    (tmp_path / "gateway.db").write_text("no database")
    codes = {call("keys", done, "laptop", "-c", file).code for done in ("create", "revoke")}
    told = [(entry["action"], entry["outcome"]) for entry in entries(tmp_path)]
    assert (codes, told) == ({ExitCode.UNREACHABLE}, [("key.created", "busy"), ("key.revoked", "busy")])


def test_the_line_of_a_command_that_is_left_out_is_named(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path, "path: audit.jsonl")
    for name in ("one", "two", "three"):
        call("keys", "create", name, "-c", file)
    log = tmp_path / "audit.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join([lines[0], lines[2]]))
    verified = call("audit", "verify", str(log))
    assert (verified.code, verified.out.startswith(f"{log}:2: does not go on from the line before it")) == (1, True)


def test_a_line_that_was_changed_is_named(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path, "path: audit.jsonl")
    for name in ("one", "two"):
        call("keys", "create", name, "-c", file)
    log = tmp_path / "audit.jsonl"
    log.write_text(log.read_text().replace('"key":"two"', '"key":"six"'))
    verified = call("audit", "verify", str(log))
    assert verified.code == 1
    assert verified.out == f"{log}:2: was changed, or made with another key\n"
    assert verified.err.endswith("1 finding in 2 lines\n")


def test_findings_are_counted_and_not_lines(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path, "path: audit.jsonl")
    for name in ("one", "two"):
        call("keys", "create", name, "-c", file)
    log = tmp_path / "audit.jsonl"
    [first, second] = log.read_text().splitlines(keepends=True)
    prev = json.loads(second)["prev"]
    log.write_text(first + second.replace(prev, "0" * 64))
    verified = call("audit", "verify", str(log))
    assert len(verified.out.splitlines()) == 2
    assert verified.err.endswith("2 findings in 2 lines\n")


def test_the_key_of_a_log_comes_from_the_environment(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "a key of thirty-two characters....."
    file = configuration(tmp_path, f"path: audit.jsonl, key: '{secret}'")
    call("keys", "create", "one", "-c", file)
    log = str(tmp_path / "audit.jsonl")
    assert call("audit", "verify", log).code == 1
    assert call("audit", "verify", log, "--key-variable", "AUDIT_KEY").code == 2
    monkeypatch.setenv("AUDIT_KEY", secret)
    assert call("audit", "verify", log, "--key-variable", "AUDIT_KEY").code == 0


def test_json_has_the_heads_of_the_chains(call: Call, tmp_path: Path) -> None:
    file = configuration(tmp_path, "path: audit.jsonl")
    call("keys", "create", "one", "-c", file)
    found = json.loads(call("audit", "verify", str(tmp_path / "audit.jsonl"), "-o", "json").out)
    [(process, head)] = found["heads"].items()
    [entry] = entries(tmp_path)
    assert found["head"] == entry["hash"]
    assert (process, head) == (entry["process"], {"seq": 0, "hash": entry["hash"]})
    assert (found["lines"], found["faults"]) == (1, [])


def test_a_file_that_is_not_there_is_told(call: Call, tmp_path: Path) -> None:
    verified = call("audit", "verify", str(tmp_path / "no"))
    assert verified.code == 2
    assert "cannot be read: No such file or directory" in verified.err


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("no/audit.jsonl", "No such file or directory"),
        ("gateway.yaml/audit.jsonl", "Not a directory"),
        (".", "Is a directory"),
    ],
)
@pytest.mark.parametrize("command", [("check",), ("serve", "--port", "0")], ids=["check", "serve"])
def test_a_file_that_cannot_be_opened_is_refused_before_anything_is(
    call: Call, tmp_path: Path, path: str, why: str, command: tuple[str, ...]
) -> None:
    file = configuration(tmp_path, f"path: {path}")
    ended = call(*command, "-c", file)
    told = f"{file}:4:9: audit.path: {tmp_path / path} cannot be opened: {why}\n"
    assert (ended.code, ended.out, ended.err) == (78, "", told)
    assert [each.name for each in tmp_path.iterdir()] == ["gateway.yaml"]


def test_check_makes_no_file(call: Call, tmp_path: Path) -> None:
    assert call("check", "-c", configuration(tmp_path, "path: audit.jsonl")).code == 0
    assert [each.name for each in tmp_path.iterdir()] == ["gateway.yaml"]
