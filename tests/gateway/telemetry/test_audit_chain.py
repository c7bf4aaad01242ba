"""An audit log tells of every line that was changed, removed, exchanged or torn."""

from collections.abc import Callable

import pytest

from gateway.telemetry.audit_chain import Chain, verify

KEY = b"k"


def written(count: int = 5, process: str = "p", key: bytes | None = None) -> list[bytes]:
    chain = Chain(process, key)
    return [chain.line("2026-01-01T00:00:00.000Z", {"action": "key.used", "n": number}) for number in range(count)]


def faults(lines: list[bytes], key: bytes | None = None) -> list[int]:
    return [fault.line for fault in verify(lines, key)]


@pytest.mark.parametrize("key", [None, KEY])
def test_what_was_written_is_whole(key: bytes | None) -> None:
    assert faults(written(key=key), key) == []


def test_chains_of_several_processes_share_a_file() -> None:
    one, other = written(process="one"), written(process="other")
    assert faults([line for pair in zip(one, other, strict=True) for line in pair]) == []


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


def test_a_chain_goes_on_in_the_next_file() -> None:
    lines, heads = written(), dict[str, tuple[int, str]]()
    assert [*verify(lines[:2], heads=heads), *verify(lines[2:], heads=heads)] == []
