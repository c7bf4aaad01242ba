"""Accepted and refused JSON; a refusal takes no longer than an acceptance."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.a2a.errors import InvalidParams, ParseError
from gateway.a2a.wire import strict_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20) + 1, 10**20 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
    max_leaves=20,
)


@given(VALUES, st.booleans())
def test_whatever_json_can_say_is_read_back_equal(value: Any, escaped: bool) -> None:
    body = json.dumps(value, ensure_ascii=escaped).encode()

    assert strict_json.decode(body, 100) == value


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b' \t\r\n{"a" : [ ] }\n', {"a": []}),
        (b"99999999999999999999", 99999999999999999999),
        (b"-99999999999999999999", -99999999999999999999),
        (b"1e2", 100.0),
        (b"1e-999", 0.0),
        (b"-0", 0),
        (b'"\\ud83d\\ude00"', "😀"),
        (b'"\\\\ud83d \\\\u0000"', "\\ud83d \\u0000"),
        (b'{"a":{"a":{"a":1}},"b":{"a":1}}', {"a": {"a": {"a": 1}}, "b": {"a": 1}}),
        (b'"' + b"[" * 1000 + b'"', "[" * 1000),
        (b'["\\"[[[", "\\\\"]', ['"[[[', "\\"]),
        (b"[" * 100 + b"]" * 100, None),
        (b"[" + b"[]," * 500 + b"[]]", [[]] * 501),
    ],
)
def test_odd_but_legal_json_is_read(body: bytes, value: Any) -> None:
    read = strict_json.decode(body, 100)
    strict_json.check_text(body, read)

    assert value is None or read == value


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"a":1,"b":2,"a":3}', "the key 'a' is given twice in one object"),
        (b'[{"a":[{"\\u0061":1,"a":3}]}]', "the key 'a' is given twice in one object"),
        (b"100000000000000000000", "an integer has more than 20 digits: '100000000000000000000'"),
        (b"-100000000000000000000", "an integer has more than 20 digits: '-100000000000000000000'"),
        (b"1" * 5000, f"an integer has more than 20 digits: '{'1' * 97}…'"),
        (b"-1e400", "the number '-1e400' is out of range"),
        (b'{\n"a": tru}', "it is no JSON from line 2, column 6 on"),
        (b"{'a': 1}", "it is no JSON from line 1, column 2 on"),
        (b"[" * 101 + b"]" * 101, "it is nested deeper than 100 levels"),
        (b'{"a":[' * 51, "it is nested deeper than 100 levels"),
    ],
)
def test_anything_else_is_refused(body: bytes, text: str) -> None:
    with pytest.raises(ParseError) as caught:
        strict_json.decode(body, 100)

    assert caught.value.message == f"Invalid JSON payload: {text}"


def test_a_depth_that_python_cannot_reach_is_refused_whatever_the_limit() -> None:
    with pytest.raises(ParseError, match="nested too deeply"):
        strict_json.decode(b"[" * 200_000 + b"]" * 200_000, 10**6)


@pytest.mark.parametrize(
    "body",
    [b'{"' * 1_000_000, b'"\\' * 1_000_000, b'"' * 1_000_000, b"[]" * 1_000_000, b"[" * 1_000_000, b'"[' * 1_000_000],
    ids=["keys", "escapes", "quotes", "pairs", "brackets", "strings"],
)
def test_hostile_megabytes_are_refused_in_one_pass(body: bytes) -> None:
    """A second scan from each position would take hours."""
    with pytest.raises(ParseError):
        strict_json.decode(body, 100)


@pytest.mark.parametrize(
    ("body", "field", "what"),
    [
        (b'{"a":["x",{"b":"\\u0000"}]}', "a[1].b", "NUL"),
        (b'{"a":{"x\\u0000":1}}', "a.'x\\x00'", "NUL"),
        (b'["\\ud800"]', "[0]", "a lone surrogate"),
        (b'{"a":"\\uDFFF\\uD800"}', "a", "a lone surrogate"),
    ],
)
def test_unsafe_text_is_named(body: bytes, field: str, what: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        strict_json.check_text(body, strict_json.decode(body, 100))

    assert [(v.field, v.description) for v in caught.value.violations] == [(field, f"must not contain {what}")]


@pytest.mark.parametrize("text", ['"' + "[,{" * 10 + '"', "[" + "1," * 8 + "1]", "[[],[],[],[],[]]"])
def test_so_many_values_are_read_and_one_more_is_not(text: str) -> None:
    assert strict_json.decode(text.encode(), 100, values=10) == json.loads(text)

    more = f'{{"a":{text},"b":1,"c":[1,2,3,4,5,6,7,8]}}'
    with pytest.raises(ParseError, match="Invalid JSON payload: it has more than 10 values"):
        strict_json.decode(more.encode(), 100, values=10)
