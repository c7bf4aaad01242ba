"""The access log: nobody waits for it, and what it cannot write it counts."""

import threading
from collections.abc import Sequence
from typing import Any, cast

from gateway.foundation import access_log
from gateway.foundation.access_log import AccessLog
from gateway.foundation.logs import LogLine, TimedLine

BOUND = 30


class Line(LogLine, kw_only=True):
    lines: int = 0


class Written:
    def __init__(self) -> None:
        self.lines: list[tuple[int, Line]] = []
        self.pieces = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.begun = threading.Event()

    def __call__(self, lines: Sequence[TimedLine]) -> None:
        self.begun.set()
        assert self.may_go_on.wait(BOUND)
        self.pieces += 1
        self.lines += cast("Sequence[tuple[int, Line]]", lines)


def test_lines_are_written_in_order_and_several_in_one_piece_at_the_latest_at_the_end() -> None:
    written, now = Written(), iter(range(1000))
    with AccessLog(now=lambda: next(now), write=written) as log:
        for number in range(3):
            log.add(Line(event="turn", lines=number))
    assert written.lines == [(n, Line(event="turn", lines=n)) for n in range(3)]
    assert written.pieces == 1


def test_lines_are_written_while_it_goes_on() -> None:
    written = Written()
    with AccessLog(now=lambda: 7, write=written) as log:
        log.add(Line(event="turn"))
        assert written.begun.wait(BOUND)


def test_who_adds_does_not_wait_for_who_reads_and_what_is_lost_is_counted(monkeypatch: Any) -> None:
    monkeypatch.setattr(access_log, "_MOST", 2)
    written = Written()
    written.may_go_on.clear()
    with AccessLog(now=lambda: 7, write=written) as log:
        log.add(Line(event="first"))
        assert written.begun.wait(BOUND)
        for _ in range(5):
            log.add(Line(event="turn"))
        written.may_go_on.set()
    assert [(line.event, line.lines) for _, line in written.lines] == [
        ("first", 0),
        ("turn", 0),
        ("turn", 0),
        ("access.dropped", 3),
    ]


def test_a_reader_that_takes_nothing_does_not_keep_the_process(monkeypatch: Any) -> None:
    monkeypatch.setattr(access_log, "_END_SECONDS", 0.01)
    written = Written()
    written.may_go_on.clear()
    with AccessLog(now=lambda: 7, write=written) as log:
        log.add(Line(event="turn"))
    written.may_go_on.set()
