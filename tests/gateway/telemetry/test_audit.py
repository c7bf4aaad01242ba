"""The file of an audit log."""

import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec
import pytest
import structlog
from pydantic import SecretStr

from gateway.foundation.clock import Clock
from gateway.ports.observer import Actor, AuditEntry, Target
from gateway.telemetry.audit import audit_log
from gateway.telemetry.audit_chain import Verified, verify
from gateway.telemetry.audit_places import obstacle
from tests.support.nobody import as_nobody, open_folder

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
        "v": 2,
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


def test_the_lines_of_several_processes_are_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with audit_log(path, None, Clock()) as one:
        one.audited(ENTRY)
        with audit_log(path, None, Clock()) as command:
            command.audited(ENTRY)
        one.audited(ENTRY)
    first, _, last = lines(path)
    assert [fault.line for fault in verify([first, last])] == [2]


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


@pytest.mark.parametrize("left", [40, 4000], ids=["a part", "all but its end of line"])
def test_a_line_of_which_a_part_was_written_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    path = tmp_path / "audit.jsonl"
    write = os.write
    with audit_log(path, None, Clock()) as audit:
        audit.audited(ENTRY)
        with monkeypatch.context() as patched:
            patched.setattr(os, "write", lambda file, data: write(file, data[: min(left, len(data) - 1)]))
            audit.audited(ENTRY)
        audit.audited(ENTRY)
    assert len(lines(path)) == 3
    assert [fault.line for fault in verify(lines(path))] == ([2] if left == 40 else [])


@pytest.mark.parametrize(("cut", "faults"), [(30, [1]), (1, [])], ids=["torn", "without its end of line"])
def test_a_torn_end_swallows_no_line_of_the_next_process(tmp_path: Path, cut: int, faults: list[int]) -> None:
    path = tmp_path / "audit.jsonl"
    with audit_log(path, None, Clock()) as audit:
        audit.audited(ENTRY)
    os.truncate(path, path.stat().st_size - cut)
    with audit_log(path, None, Clock()) as audit:
        audit.audited(ENTRY)
        audit.audited(ENTRY)
    assert [fault.line for fault in verify(lines(path))] == faults
    assert len(lines(path)) == 3


def test_the_latest_line_is_found_behind_a_long_torn_one(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with audit_log(path, None, Clock()) as audit:
        audit.audited(ENTRY)
    with path.open("ab") as file:
        file.write(b'{"v":2,' + b"x" * 10_000)
    with audit_log(path, None, Clock()) as audit:
        audit.audited(ENTRY)
    assert [fault.line for fault in verify(lines(path))] == [2]


def test_what_is_cut_off_while_a_process_writes_shows(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with audit_log(path, None, Clock()) as audit:
        for _ in range(3):
            audit.audited(ENTRY)
        os.truncate(path, sum(map(len, lines(path)[:2])))
        audit.audited(ENTRY)
    assert [fault.line for fault in verify(lines(path))] == [3]


def test_a_new_file_goes_on_from_the_end_of_the_one_before_whoever_wrote_that(tmp_path: Path) -> None:
    path, before = tmp_path / "audit.jsonl", tmp_path / "audit.jsonl.1"
    with audit_log(path, None, Clock()) as audit:
        audit.audited(ENTRY)
        with audit_log(path, None, Clock()) as command:
            command.audited(ENTRY)
        path.rename(before)
        audit.reopen()
        audit.audited(ENTRY)
    verified = Verified()
    assert [*verify(lines(before), verified=verified), *verify(lines(path), verified=verified)] == []
    assert [fault.line for fault in verify(lines(path))] == [1]


def test_a_writer_that_stands_still_costs_no_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    with audit_log(path, None, Clock()) as audit, path.open() as other, structlog.testing.capture_logs() as told:
        fcntl.flock(other, fcntl.LOCK_EX)
        audit.audited(ENTRY)
        audit.audited(ENTRY)
        fcntl.flock(other, fcntl.LOCK_UN)
        audit.audited(ENTRY)
    assert [line["event"] for line in told] == ["audit.file-held"]
    assert (len(lines(path)), list(verify(lines(path)))) == (3, [])


def test_processes_that_write_at_once_make_one_chain(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    def write(_: int) -> None:
        with audit_log(path, None, Clock()) as audit:
            for _ in range(50):
                audit.audited(ENTRY)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(4)))
    assert (len(lines(path)), list(verify(lines(path)))) == (200, [])


def test_a_pipe_has_a_chain_for_each_process(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with audit_log(path, None, Clock()) as one, audit_log(path, None, Clock()) as other:
        for audit in (one, other, one):
            audit.audited(ENTRY)
    told = os.read(reader, 1 << 16).splitlines(keepends=True)
    os.close(reader)
    assert [msgspec.json.decode(line)["v"] for line in told] == [1, 1, 1]
    assert list(verify(told)) == []


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), audit_log(tmp_path / "no" / "audit.jsonl", None, Clock()):
        pass


def link(path: Path, target: str) -> Path:
    path.symlink_to(target)
    return path


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: folder / "no" / "audit.jsonl",
        lambda folder: folder / "file" / "audit.jsonl",
        lambda folder: folder,
        lambda folder: folder / ("a" * 300),
        lambda folder: link(folder / "link", "no/audit.jsonl"),
        lambda folder: link(folder / "link", "link"),
    ],
    ids=["no folder", "a file in place of one", "a folder", "a long name", "a link to nowhere", "a link to itself"],
)
def test_what_keeps_a_file_from_being_opened_is_seen_without_opening_it(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    (tmp_path / "file").touch()
    path = make(tmp_path)
    with pytest.raises(OSError, match=r"\[Errno") as refused, audit_log(path, None, Clock()):
        pass
    assert obstacle(path) == refused.value.strerror


def test_a_file_that_can_be_opened_or_made_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    link(tmp_path / "link", "other.jsonl")
    os.mkfifo(tmp_path / "pipe")
    there = sorted(tmp_path.iterdir())
    for path in (tmp_path / "audit.jsonl", *there, Path("/dev/null")):
        assert obstacle(path) is None
    assert sorted(tmp_path.iterdir()) == there


@pytest.mark.parametrize("path", ["audit", "audit.jsonl", "others/audit.jsonl", "closed/audit.jsonl"])
def test_a_file_that_this_user_may_not_write_is_seen(path: str) -> None:
    with open_folder() as folder:
        for name, mode in (("others", 0o555), ("closed", 0o000)):
            (folder / name).mkdir()
            (folder / name).chmod(mode)
        (folder / "audit").touch()
        (folder / "audit").chmod(0o444)
        folder.chmod(0o555)
        assert as_nobody(partial(obstacle, folder / path)) == "Permission denied"
