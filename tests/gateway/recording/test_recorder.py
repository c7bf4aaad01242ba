"""Folders of recordings: where an exchange lies, who may read it, how much there may be."""

import threading
from pathlib import Path

import structlog

from gateway.foundation.clock import Clock
from gateway.ports.wire import EVENTS, End, Request
from gateway.recording.recorder import Recording
from gateway.recording.recordings import Recordings
from tests.gateway.recording.support import at, post, record

ANSWER = b"data: {}\n\n"


def names(folder: Path) -> list[str]:
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.yaml"))


def test_each_conversation_has_a_folder_and_each_exchange_a_number(tmp_path: Path) -> None:
    for context in ("one", "two", "one"):
        with at(context=context):
            record(tmp_path, (post(), ANSWER))
    record(tmp_path, (post(), ANSWER))
    assert names(tmp_path) == [
        "support/c01/0001.yaml",
        "support/c01/0002.yaml",
        "support/c02/0001.yaml",
        "support/outside/0001.yaml",
    ]


def test_only_their_owner_reads_them(tmp_path: Path) -> None:
    with at():
        record(tmp_path / "new", (post(), ANSWER))
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*") if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "new").rglob("*.yaml")} == {0o600}


def test_an_exchange_is_found_by_its_service_call(tmp_path: Path) -> None:
    with at(call="first"):
        record(tmp_path, (post('{"n": 1}'), ANSWER))
        with Recording(tmp_path, Clock()) as recording:
            taking = recording.tap("tools.shop").begin(Request("CALL", "tool:shop/track", {}, b"{}", tool="t1"))
            taking.answered(200, EVENTS)
            taking.ended(End.COMPLETE)
    with at(call="second"):
        record(tmp_path, (post('{"n": 2}'), ANSWER))
    found = Recordings(tmp_path).of_call("context", "first")
    assert [(each.file, each.method, each.ids.tool) for each in found] == [
        ("support/c01/0001.yaml", "POST", ""),
        ("support/c01/0002.yaml", "CALL", "t1"),
    ]
    assert [each.body for each in Recordings(tmp_path).of_call("context", "second")] == [{"n": 2}]
    assert Recordings(tmp_path).of_call("another", "first") == ()


def test_a_folder_is_read_while_it_is_written(tmp_path: Path) -> None:
    found = Recordings(tmp_path)
    with at(), Recording(tmp_path, Clock()) as recording:
        assert found.of_call("context", "call") == ()
        taking = recording.tap("support").begin(post())
        taking.answered(200, EVENTS)
        taking.received(ANSWER)
        written = threading.Event()
        recording.do(written.set)
        assert written.wait(60)
        [exchange] = found.of_call("context", "call")
        assert (exchange.reads[0][1], exchange.end.how) == (ANSWER, End.CUT)
        taking.ended(End.COMPLETE)
    [exchange] = found.of_call("context", "call")
    assert exchange.end.how is End.COMPLETE


def test_nothing_is_written_beyond_the_limit(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as told, Recording(tmp_path, Clock(), most=2000) as recording:
        for _ in range(20):
            taking = recording.tap("support").begin(post())
            taking.answered(200, EVENTS)
            taking.received(ANSWER)
            taking.ended(End.COMPLETE)
    assert sum(file.stat().st_size for file in tmp_path.rglob("*.yaml")) <= 2000
    assert [entry["event"] for entry in told] == ["record.full"]


def test_a_disk_that_takes_nothing_is_told_once_and_stops_nobody(tmp_path: Path) -> None:
    with structlog.testing.capture_logs() as told, Recording(tmp_path / "r", Clock()) as recording:
        (tmp_path / "r" / "support").write_text("in the way")
        for _ in range(2):
            taking = recording.tap("support").begin(post())
            taking.received(ANSWER)
            taking.ended(End.COMPLETE)
    assert [entry["event"] for entry in told] == ["record.failed"]


def test_a_file_that_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    with at():
        record(tmp_path, (post(), ANSWER), (post(), ANSWER))
    (tmp_path / "support" / "c01" / "0001.yaml").write_text("ids: {}\n")
    with structlog.testing.capture_logs() as told:
        assert [each.file for each in Recordings(tmp_path).all()] == ["support/c01/0002.yaml"]
    assert [entry["file"] for entry in told] == ["support/c01/0001.yaml"]


def test_reads_keep_their_times(tmp_path: Path) -> None:
    moments = iter((0.0, 0.25, 0.5, 0.5, 0.75))
    with Recording(tmp_path, Clock(monotonic=lambda: next(moments))) as recording:
        taking = recording.tap("support").begin(post())
        taking.answered(200, EVENTS)
        taking.received(b"data: 1\n\ndata: ")
        taking.received(b"2\n\n")
        taking.ended(End.COMPLETE)
    [exchange] = Recordings(tmp_path).all()
    assert exchange.answered == 0.25
    assert exchange.reads == ((0.5, b"data: 1\n\n"), (0.501, b"data: 2\n\n"))
    assert exchange.end.at == 0.75
