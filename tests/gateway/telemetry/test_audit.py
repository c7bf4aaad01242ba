"""The file of an audit log."""

import os
from pathlib import Path

import msgspec
import pytest
import structlog
from pydantic import SecretStr

from gateway.foundation.clock import Clock
from gateway.ports.observer import Actor, AuditEntry, Target
from gateway.telemetry.audit import audit_log
from gateway.telemetry.audit_chain import verify

ENTRY = AuditEntry("key.created", Actor("ada"), Target(key="k"))


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def test_a_line_says_what_was_done_by_whom_and_to_what(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with audit_log(path, None, Clock(now=lambda: 0)) as audit:
        audit.audited(ENTRY)
    [entry] = [msgspec.json.decode(line) for line in lines(path)]
    told = {name: entry[name] for name in ("v", "at", "action", "outcome", "actor", "target", "seq")}
    assert told == {
        "v": 1,
        "at": "1970-01-01T00:00:00.000Z",
        "action": "key.created",
        "outcome": "done",
        "actor": {"principal": "ada"},
        "target": {"key": "k"},
        "seq": 0,
    }


def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with audit_log(path, None, Clock()) as audit:
        audit.audited(ENTRY)
    assert path.stat().st_mode & 0o777 == 0o600


def test_several_processes_share_a_file(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with audit_log(path, None, Clock()) as one, audit_log(path, None, Clock()) as other:
        for _ in range(3):
            one.audited(ENTRY)
            other.audited(ENTRY)
    assert len(lines(path)) == 6
    assert list(verify(lines(path))) == []


def test_with_a_key_nobody_else_makes_lines_that_fit(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with audit_log(path, SecretStr("the key"), Clock()) as audit:
        audit.audited(ENTRY)
    assert list(verify(lines(path), b"the key")) == []
    assert [fault.line for fault in verify(lines(path))] == [1]


def test_a_line_that_could_not_be_written_is_told_and_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "audit.jsonl"
    with audit_log(path, None, Clock()) as audit:
        audit.audited(ENTRY)
        with monkeypatch.context() as patched, structlog.testing.capture_logs() as told:

            def full(_file: int, _data: bytes) -> int:
                raise OSError(28, "No space left on device")

            patched.setattr(os, "write", full)
            audit.audited(ENTRY)
            audit.audited(ENTRY)
        audit.audited(ENTRY)
    assert [line["event"] for line in told] == ["audit.not-written"]
    assert [fault.line for fault in verify(lines(path))] == [2]


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), audit_log(tmp_path / "no" / "audit.jsonl", None, Clock()):
        pass
