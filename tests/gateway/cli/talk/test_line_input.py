"""Lines of a pipe and of a terminal, also during a wait."""

import io
import os
import pty
import select
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack
from typing import Any

import pytest

from gateway.cli.talk.line_input import LineInput
from tests.support.core import BOUND


class Pipe:
    """The lines of a pipe, and its writing end."""

    def __init__(self, stack: ExitStack) -> None:
        read, self._write = os.pipe()
        self.unread = read
        self.err = io.StringIO()
        self.lines = stack.enter_context(LineInput(stack.enter_context(os.fdopen(read)), io.StringIO(), self.err))

    def write(self, text: bytes) -> None:
        os.write(self._write, text)

    def end(self) -> None:
        os.close(self._write)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    with ExitStack() as stack:
        yield Pipe(stack)


def nothing_is_urgent(_: str) -> bool:
    return False


def test_a_pipe_gives_its_lines_and_then_none(pipe: Pipe) -> None:
    pipe.write("one\r\n\ntw\u00f6".encode())
    pipe.end()
    assert [pipe.lines.read("> ") for _ in range(5)] == ["one", "", "twö", None, None]
    assert pipe.err.getvalue() == ""
    assert not pipe.lines.typed


def test_bytes_that_are_not_utf8_are_kept(pipe: Pipe) -> None:
    pipe.write(b"a\xff\n")
    assert pipe.lines.read("> ") == "a\udcff"


def test_a_line_that_arrives_in_pieces_is_one(pipe: Pipe) -> None:
    pipe.write(b"on")
    later = threading.Timer(0, lambda: pipe.write(b"e\n"))
    later.start()
    assert pipe.lines.read("> ") == "one"
    later.join()


def test_during_a_wait_lines_are_kept_and_urgent_lines_taken(pipe: Pipe) -> None:
    done: Future[None] = Future()
    taken: list[str] = []

    def urgent(line: str) -> bool:
        if line != "/cancel":
            return False
        taken.append(line)
        done.set_result(None)
        return True

    pipe.write(b"/cancel\none\n")
    pipe.lines.wait_for(done, urgent)
    assert taken == ["/cancel"]
    assert pipe.lines.read("> ") == "one"


def test_a_ctrl_c_just_before_the_wait_ends_it(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal goes to another thread, so that it does not interrupt `select`, as a signal just before it does not."""
    done: Future[None] = Future()
    waits, heard = threading.Event(), threading.Event()

    def select_(*of: Any) -> Any:
        waits.set()
        return waiting(*of)

    def interrupt() -> None:
        waits.wait(BOUND)
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        if not heard.wait(BOUND):
            done.set_result(None)

    waiting = select.select
    monkeypatch.setattr(select, "select", select_)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            pipe.lines.wait_for(done, nothing_is_urgent)
        assert not done.done()
    finally:
        heard.set()
        thread.join()


def test_a_ctrl_c_just_after_the_wait_leaves_no_closed_descriptor_to_signals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: Future[None] = Future()
    done.set_result(None)
    set_, descriptors = signal.set_wakeup_fd, list[int]()

    def interrupted(fd: int) -> int:
        descriptors.append(fd)
        if len(descriptors) == 2:
            raise KeyboardInterrupt
        return set_(fd)

    monkeypatch.setattr(signal, "set_wakeup_fd", interrupted)
    before = set_(-1)
    try:
        with pytest.raises(KeyboardInterrupt), ExitStack() as stack:
            Pipe(stack).lines.wait_for(done, nothing_is_urgent)
        assert set_(-1) == -1
    finally:
        set_(before)


def test_in_a_pipe_a_line_belongs_to_the_lines_before_it(pipe: Pipe) -> None:
    first: Future[None] = Future()
    pipe.write(b"one\n/cancel\n")
    taken: list[str] = []

    def urgent(line: str) -> bool:
        if line == "/cancel":
            taken.append(line)
        return line == "/cancel"

    threading.Timer(0, lambda: first.set_result(None)).start()
    pipe.lines.wait_for(first, urgent)
    assert taken == []
    assert pipe.lines.read("> ") == "one"
    second: Future[None] = Future()
    second.set_result(None)
    pipe.lines.wait_for(second, urgent)
    assert taken == ["/cancel"]


def test_a_pipe_that_ends_during_the_wait_does_not_spin_and_loses_nothing(pipe: Pipe) -> None:
    done: Future[None] = Future()
    pipe.write(b"last")
    pipe.end()
    timer = threading.Timer(0, lambda: done.set_result(None))
    timer.start()
    pipe.lines.wait_for(done, nothing_is_urgent)
    timer.join()
    assert [pipe.lines.read("> "), pipe.lines.read("> ")] == ["last", None]


def test_a_program_that_writes_endlessly_is_blocked(pipe: Pipe) -> None:
    first: Future[None] = Future()
    pipe.write(b"x\n" * 30_000)

    def once(_: str) -> bool:
        first.set_result(None)
        return False

    pipe.lines.wait_for(first, once)
    second: Future[None] = Future()
    later = threading.Timer(0, lambda: second.set_result(None))
    later.start()
    pipe.lines.wait_for(second, nothing_is_urgent)
    later.join()
    assert len(os.read(pipe.unread, 60_000)) > 50_000


@pytest.fixture
def person() -> Iterator[tuple[int, LineInput, io.StringIO]]:
    """A person at a terminal without a line editor, as standard output is not the terminal."""
    screen, inside = pty.openpty()
    err = io.StringIO()
    with os.fdopen(inside) as stream, LineInput(stream, io.StringIO(), err) as lines:
        yield screen, lines, err
    os.close(screen)


def test_a_person_sees_a_prompt_and_what_was_typed_ahead(person: tuple[int, LineInput, io.StringIO]) -> None:
    screen, lines, err = person
    os.write(screen, b"one\n")
    assert (lines.typed, lines.read("> "), err.getvalue()) == (True, "one", "> ")
    done: Future[None] = Future()

    def ahead(line: str) -> bool:
        done.set_result(None)
        return False

    os.write(screen, b"two\n")
    lines.wait_for(done, ahead)
    assert lines.read("> ") == "two"
    assert err.getvalue() == "> > two\n"


def test_an_urgent_line_of_a_person_precedes_the_lines_read_ahead(person: tuple[int, LineInput, io.StringIO]) -> None:
    screen, lines, _ = person
    done: Future[None] = Future()

    def urgent(line: str) -> bool:
        if line == "/cancel":
            done.set_result(None)
        return line == "/cancel"

    os.write(screen, b"two\n/cancel\n")
    lines.wait_for(done, urgent)
    assert lines.read("> ") == "two"


class Typist(io.StringIO):
    """Types a line as soon as a prompt is shown."""

    def __init__(self, screen: int) -> None:
        super().__init__()
        self._screen = screen

    def write(self, text: str) -> int:
        os.write(self._screen, b"no\n")
        return super().write(text)


def test_a_line_typed_before_a_question_does_not_answer_it() -> None:
    screen, inside = pty.openpty()
    done: Future[None] = Future()

    def ahead(line: str) -> bool:
        done.set_result(None)
        return False

    with os.fdopen(inside) as stream, LineInput(stream, io.StringIO(), Typist(screen)) as lines:
        os.write(screen, b"yes\n")
        lines.wait_for(done, ahead)
        os.write(screen, b"yes, unread\n")
        assert lines.read_fresh("allow? ") == "no"
        lines.put_back("no")
        assert [lines.read("> ") for _ in range(2)] == ["no", "yes"]
    os.close(screen)


def test_in_a_pipe_the_next_line_is_the_answer(pipe: Pipe) -> None:
    pipe.write(b"yes\n")
    assert pipe.lines.read_fresh("allow? ") == "yes"


def test_a_person_ends_with_ctrl_d(person: tuple[int, LineInput, io.StringIO]) -> None:
    screen, lines, err = person
    os.write(screen, b"\x04")
    assert lines.read("> ") is None
    assert err.getvalue() == "> \n"
