"""Texts on the wire of PostgreSQL: a NUL, which it cannot keep, comes back as it was given."""

import json

import msgspec
import pytest

from storage.postgres.text import Text, bound, decoded, prepared
from storage.statement import Value

_ESCAPE = "\ufdd0"

TEXTS = [
    "",
    "plain",
    "a\0b",
    "\0",
    f"{_ESCAPE}",
    f"a{_ESCAPE}b",
    f"{_ESCAPE}0",
    f"{_ESCAPE}\0{_ESCAPE}1\0",
    "\0" * 3 + "1",
]


def sent(value: Value) -> bytes | None:
    return bound(prepared("", Text("SELECT $1", ("value",))), {"value": value}).parameters[0]


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_text_comes_back_as_it_was_given_and_has_no_nul_meanwhile(text: str) -> None:
    stored = sent(text)
    assert stored is not None
    assert b"\0" not in stored
    assert decoded(stored) == text


def test_no_two_texts_are_stored_alike() -> None:
    assert len({sent(text) for text in TEXTS}) == len(TEXTS)


@pytest.mark.parametrize("text", ["plain", f"a{_ESCAPE}b", '{"text":"a\\u0000b"}'], ids=ascii)
def test_json_and_what_people_write_is_stored_as_it_is(text: str) -> None:
    assert sent(text) == text.encode()


@pytest.mark.parametrize("text", TEXTS, ids=ascii)
def test_a_text_in_a_list_is_the_same_as_one_alone(text: str) -> None:
    query = prepared("", Text("SELECT jsonb_array_elements_text(CAST($1 AS JSONB))", ("values",)))
    [given] = bound(query, {"values": msgspec.json.encode([text, "other"]).decode()}).parameters
    assert given is not None
    alone = sent(text)
    assert alone is not None
    assert json.loads(given) == [alone.decode(), "other"]


@pytest.mark.parametrize(
    ("value", "told"), [(None, None), (7, b"7"), (-(2**63), b"-9223372036854775808"), (True, b"1"), (b"\0a", b"\0a")]
)
def test_other_values_go_as_postgresql_reads_them(value: Value, told: bytes | None) -> None:
    assert sent(value) == told


def test_what_no_column_holds_is_refused() -> None:
    with pytest.raises(TypeError, match="float"):
        sent(1.5)  # type: ignore[arg-type]
    with pytest.raises(UnicodeEncodeError):
        sent("\ud800")
