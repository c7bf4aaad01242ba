"""Events as lines, and back."""

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.recording.lines import Blocks, Rows, line, made, read, reads

_LINE = st.one_of(
    st.sampled_from(
        [b"data: {}", b'data: {"a": 1}', b"data:{}", b"data: [DONE]", b"event: delta", b"event: raw", b"id: 7"]
    ),
    st.sampled_from(
        [b": ping", b"retry: 10", b"data: ", b"", b'data: {"a": "\xc2\x85\xe2\x80\xa8"}', b"event: data: x"]
    ),
    st.binary(max_size=12),
    st.text(max_size=12).map(lambda text: b'data: "' + text.encode("utf-8", "surrogatepass") + b'"'),
)
_STREAM = st.lists(st.tuples(_LINE, st.sampled_from([b"\n", b"\r\n", b"\r", b"\n\n", b"\r\n\r\n"])), max_size=12).map(
    lambda lines: b"".join(text + end for text, end in lines)
)


def chunks(stream: bytes, sizes: list[int]) -> list[bytes]:
    found, at = [], 0
    for size in (*sizes, len(stream)):
        found.append(stream[at : at + size])
        at += size
    return [chunk for chunk in found if chunk]


@given(_STREAM, st.lists(st.integers(1, 20), max_size=6))
def test_any_bytes_survive_as_lines(stream: bytes, sizes: list[int]) -> None:
    blocks = Blocks()
    pieces = [piece for chunk in chunks(stream, sizes) for piece in blocks.feed(chunk)]
    pieces += [rest] if (rest := blocks.rest()) else []
    lines = [line(number / 1000, piece) for number, piece in enumerate(pieces)]
    assert b"".join(read(each)[1] for each in lines) == stream
    assert all("\n" not in each for each in lines)


@given(_STREAM, st.lists(st.integers(1, 20), max_size=6))
def test_each_line_is_yaml(stream: bytes, sizes: list[int]) -> None:
    blocks = Blocks()
    for chunk in chunks(stream, sizes):
        for piece in blocks.feed(chunk):
            at, *rest = yaml.safe_load(line(0.25, piece))
            assert at == 0.25
            assert rest


@given(st.binary(max_size=60), st.lists(st.integers(1, 20), max_size=6))
def test_an_answer_of_another_kind_survives_in_whole_rows(stream: bytes, sizes: list[int]) -> None:
    rows = Rows()
    pieces = [piece for chunk in chunks(stream, sizes) for piece in rows.feed(chunk)]
    assert all(piece.endswith(b"\n") for piece in pieces)
    assert b"".join((*pieces, rows.rest())) == stream


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b'event: delta\ndata: {"delta":"It "}\n\n', '[0.38, "delta", {"delta":"It "}]'),
        (b'data: {"a": [1, 2]}\n\n', '[0.38, "data", {"a": [1, 2]}]'),
        (b"data: [DONE]\n\n", '[0.38, "raw", "data: [DONE]\\n\\n"]'),
        (
            b'event: values\r\ndata: {"a":1}\r\nid: 7\r\n\r\n',
            '[0.38, "values", {"a":1}, "event: values\\r\\ndata: \\r\\nid: 7\\r\\n\\r\\n"]',
        ),
        (b": ping\n\n", '[0.38, "raw", ": ping\\n\\n"]'),
        (b"\xff\n\n", '[0.38, "base64", "/woK"]'),
        (b'event: raw\ndata: {"a":1}\n\n', '[0.38, "raw", "event: raw\\ndata: {\\"a\\":1}\\n\\n"]'),
    ],
)
def test_a_line_shows_name_and_data(block: bytes, expected: str) -> None:
    assert line(0.38, block) == expected
    assert read(expected) == (0.38, block)


def test_a_line_may_be_changed_by_hand() -> None:
    assert read('[1.5, "delta",   {"delta": "That "}]') == (1.5, b'event: delta\ndata: {"delta": "That "}\n\n')


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[1, "raw"]', '["x", "a", {}]', '[1, "a", {}, 2]', '[1, "base64", "?x"]', "[" * 9999]
)
def test_a_line_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no event|padd|base64|haracters"):
        read(text)


def test_what_came_together_is_read_together() -> None:
    assert list(reads([(0.1, b"a"), (0.1, b"b"), (0.2, b"c")])) == [(0.1, b"ab"), (0.2, b"c")]


def test_an_event_of_the_gateway_has_the_usual_form() -> None:
    block = made("TextDelta", {"text": "é\n"})
    assert block == b'event: TextDelta\ndata: {"text":"\xc3\xa9\\n"}\n\n'
    assert msgspec.json.decode(line(0.0, block))[:2] == [0.0, "TextDelta"]
