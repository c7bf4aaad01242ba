"""An audit log tells of every line that was changed, removed, exchanged or torn."""

from collections.abc import Callable

import pytest

from gateway.telemetry.audit_chain import FIRST, Chain, Verified, latest_hash, verify

KEY = b"k"
AT = "2026-01-01T00:00:00.000Z"


def written(count: int = 5, process: str = "p", key: bytes | None = None) -> list[bytes]:
    """By a process that has a chain of its own."""
    chain = Chain(process, key)
    return [chain.line(AT, {"action": "key.used", "n": number}) for number in range(count)]


def shared(*processes: str, key: bytes | None = None, head: str = FIRST) -> list[bytes]:
    """A file to which these have written, in this order."""
    chains = {process: Chain(process, key) for process in processes}
    lines = []
    for number, process in enumerate(processes):
        lines.append(chains[process].line(AT, {"action": "key.used", "n": number}, head))
        head = chains[process].head
    return lines


def without(lines: list[bytes], *at: int) -> list[bytes]:
    """Counted from 1."""
    return [line for number, line in enumerate(lines, 1) if number not in at]


def faults(lines: list[bytes], key: bytes | None = None) -> list[int]:
    return [fault.line for fault in verify(lines, key)]


@pytest.mark.parametrize("key", [None, KEY])
def test_what_was_written_is_whole(key: bytes | None) -> None:
    assert faults(written(key=key), key) == []
    assert faults(shared("a", "b", "a", "c", "b", key=key), key) == []


def test_chains_of_several_processes_share_a_stream() -> None:
    one, other = written(process="one"), written(process="other")
    assert faults([line for pair in zip(one, other, strict=True) for line in pair]) == []


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize(
    ("change", "at"),
    [
        (lambda lines: without(lines, 3), [3]),
        (lambda lines: without(lines, 4), [4]),
        (lambda lines: without(lines, 1, 2, 4), [1, 2]),
        (lambda lines: [lines[2], *without(lines, 3)], [1, 2, 4]),
        (lambda lines: [*lines, lines[2]], [7]),
        (lambda lines: without(lines, 6), []),
    ],
    ids=[
        "the line of a command",
        "the last line of a process that has ended",
        "all lines of a process",
        "a line moved to the front",
        "a line repeated",
        "the end",
    ],
)
def test_a_line_that_is_missing_in_a_shared_file_is_named_whichever_process_wrote_it(
    change: Callable[[list[bytes]], list[bytes]], at: list[int], key: bytes | None
) -> None:
    assert faults(change(shared("first", "first", "command", "first", "second", "second", key=key)), key) == at


def test_a_line_that_was_never_written_is_missing_in_the_numbers_of_its_process() -> None:
    chain = Chain("p")
    first = chain.line(AT, {}, FIRST)
    head = chain.head
    chain.line(AT, {}, head)
    assert faults([first, chain.line(AT, {}, head)]) == [2]


def test_a_torn_line_is_named_once_and_what_follows_goes_on_from_the_line_before_it() -> None:
    [first, second] = shared("a", "a")
    [after] = shared("b", head=str(latest_hash(first)))
    told = list(verify([first, second[:-30] + b"\n", after]))
    assert [(fault.line, fault.what) for fault in told] == [(2, "is torn: only its beginning was written")]


TORN = "is torn: only its beginning was written"
NO_LINE = "is no whole line of an audit log"
CHANGED = "was changed, or made with another key"
FACTS = {
    "action": "a",
    "actor": {"principal": 'a "b" \\ c\x07é😀', "tenant": ""},
    "target": {"admin": True, "gone": None},
    "empty": {},
}


def test_every_beginning_of_a_line_is_torn() -> None:
    line = Chain("p").line(AT, FACTS, FIRST)
    told = [[fault.what for fault in verify([line[:length] + b"\n"])] for length in range(1, len(line) - 1)]
    assert told == [[TORN]] * (len(line) - 2)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda line: line + b" ", NO_LINE),
        (lambda line: line + b"\r", NO_LINE),
        (lambda line: line.replace(b"acti", b"a\0ti"), NO_LINE),
        (lambda line: line[:-20].replace(b"acti", b"a\0ti"), NO_LINE),
        (lambda line: line[:-20].replace(b"acti", b"a\xffti"), NO_LINE),
        (lambda line: line[:-10] + b'zzzzzzzz"}', NO_LINE),
        (lambda line: line[:-10] + b"z", NO_LINE),
        (lambda line: line + line, NO_LINE),
        (lambda line: line[:-20] + line, NO_LINE),
        (lambda line: line[:6] + line, NO_LINE),
        (lambda line: line[:30] + b'"}', NO_LINE),
        (lambda line: b'{"v":2,"process":"p', NO_LINE),
        (lambda line: b'{"v":3,"at":"', NO_LINE),
        (lambda line: b'{"v":1}', NO_LINE),
        (lambda line: line.replace(b'"v":2', b'"v":3'), NO_LINE),
        (lambda line: line[:-10] + b'00000000"}', CHANGED),
        (lambda line: line.replace(b'"action"', b' "action"'), CHANGED),
        (lambda line: line.replace(b'{"v":2', b'{"x":1,"v":2'), CHANGED),
    ],
)
def test_a_line_that_was_changed_is_not_torn(change: Callable[[bytes], bytes], what: str) -> None:
    line = Chain("p").line(AT, FACTS, FIRST)[:-1]
    assert next(verify([change(line) + b"\n"])).what == what


def test_a_changed_line_without_its_end_was_changed() -> None:
    [line] = shared("p")
    assert [fault.what for fault in verify([line[:-1].replace(b"used", b"lost")])] == [CHANGED]


def test_a_line_that_somebody_has_torn_is_missing_as_well() -> None:
    lines = shared("a", "a", "b")
    assert faults([lines[0], lines[1][:-30] + b"\n", lines[2]]) == [2, 3]


def test_a_file_of_gateways_before_goes_on_with_one_chain() -> None:
    before = [line for pair in zip(written(process="x"), written(process="y"), strict=True) for line in pair]
    after = shared("a", "b", head=str(latest_hash(before[-1])))
    assert faults([*before, *after]) == []
    assert faults([*before[:-1], *after]) == [10]


@pytest.mark.parametrize(
    ("end", "found"),
    [
        (b"", None),
        (b"what is this\n", None),
        (shared("a", "b")[1], shared("a", "b")[1][-67:-3].decode()),
        (shared("a", "b")[1][:-1], shared("a", "b")[1][-67:-3].decode()),
        (shared("a", "b")[1] + b'{"v":2,"at', shared("a", "b")[1][-67:-3].decode()),
        (shared("a", "b")[1][9:], None),
    ],
    ids=["nothing", "something else", "whole", "without its end of line", "torn", "cut in front"],
)
def test_a_writer_finds_the_latest_whole_line(end: bytes, found: str | None) -> None:
    assert latest_hash(end) == found


@pytest.mark.parametrize(
    ("change", "at"),
    [
        (lambda lines: [*lines[:2], lines[2].replace(b'"n":2', b'"n":9'), *lines[3:]], [3]),
        (lambda lines: [*lines[:2], *lines[3:]], [3]),
        (lambda lines: [lines[1], lines[0], *lines[2:]], [1, 2, 3]),
        (lambda lines: [*lines, lines[2]], [6]),
        (lambda lines: lines[1:], [1]),
        (lambda lines: [*lines[:4], lines[4][:-10]], [5]),
        (lambda lines: [*lines[:4], lines[4][:-1]], [5]),
        (lambda lines: [*lines[:2], b"\n", *lines[2:]], [3]),
        (lambda lines: [*lines[:2], b'{"v":1}\n', *lines[2:]], [3]),
        (lambda lines: [*lines[:2], b"\xff\xfe\n", *lines[2:]], [3]),
    ],
    ids=[
        "changed",
        "removed",
        "exchanged",
        "repeated",
        "begun later",
        "torn",
        "without its end",
        "empty",
        "another",
        "no text",
    ],
)
def test_a_line_that_is_not_as_it_was_written_is_named(
    change: Callable[[list[bytes]], list[bytes]], at: list[int]
) -> None:
    assert faults(change(written())) == at


def test_without_the_key_nobody_makes_lines_that_fit() -> None:
    assert faults(written(key=b"another"), KEY) == [1, 2, 3, 4, 5]
    assert faults(written(), KEY) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("lines", [written(), shared("a", "b", "a", "b", "a")], ids=["of a process", "of a file"])
def test_a_chain_goes_on_in_the_next_file(lines: list[bytes]) -> None:
    verified = Verified()
    assert [*verify(lines[:2], verified=verified), *verify(lines[2:], verified=verified)] == []
    assert verified.head == latest_hash(lines[-1])


def test_a_file_that_goes_on_from_one_that_is_not_there_says_so() -> None:
    lines = shared("a", "b", "c", "d")
    verified = Verified()
    told = [*verify(lines[:1], verified=verified), *verify(lines[3:], verified=verified)]
    assert [fault.what for fault in told] == [
        "goes on from a line that is in no file before: lines before it are missing"
    ]


def test_a_writer_may_go_on_in_the_next_file_while_another_is_still_in_the_one_before() -> None:
    [first, *_] = lines = shared("a", "b")
    after = shared("c", head=str(latest_hash(first)))
    verified = Verified()
    assert [*verify(lines, verified=verified), *verify(after, verified=verified)] == []
