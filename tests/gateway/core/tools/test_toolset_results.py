"""Results of tools become JSON of bounded size."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.a2a.model import Json
from gateway.core.tools.toolset import beginning_of, bounded, cleaned
from gateway.ports.tools import ToolError, ToolOutput


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "", "grün", [], {}, {"a": [1, {"b": None}]}])
def test_what_fits_is_given_on_as_it_is(value: Json) -> None:
    output = ToolOutput(value, error=True)
    assert cleaned(output) == output
    assert bounded(output, 100) is output


def test_a_longer_text_is_cut_and_says_so() -> None:
    assert bounded(ToolOutput("x" * 20), 10).output == "x" * 10 + "\n[truncated: 10 of 20 bytes]"


def test_a_text_is_cut_between_characters() -> None:
    assert bounded(ToolOutput("aüü"), 4).output == "aü\n[truncated: 4 of 5 bytes]"


def test_a_text_is_measured_in_bytes() -> None:
    assert bounded(ToolOutput("ü" * 5), 10) == ToolOutput("ü" * 5)


def test_a_larger_value_becomes_its_beginning() -> None:
    assert bounded(ToolOutput({"a": "x" * 20}, error=True), 10) == ToolOutput(
        {"truncated": True, "bytes": 28, "beginning": '{"a":"xxxx'}, error=True
    )


@pytest.mark.parametrize("value", [{"a": "x" * 20}, ["x" * 20]])
def test_the_beginning_of_a_value_that_was_cut_is_found_again(value: Json) -> None:
    assert beginning_of(bounded(ToolOutput(value), 10).output) == msgspec.json.encode(value)[:10].decode()
    assert beginning_of(value) is msgspec.UNSET


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("a\0b", "a\ufffdb"),
        ("\ud83d", "\ufffd\ufffd\ufffd"),
        ({"\0": ("a", math.inf, 10**30)}, {"\ufffd": ["a", "inf", str(10**30)]}),
        ({1: math.nan}, {"1": "nan"}),
    ],
)
def test_values_that_json_does_not_have_are_replaced(value: Json, told: Json) -> None:
    assert cleaned(ToolOutput(value)).output == told


def test_an_object_of_python_is_no_result() -> None:
    with pytest.raises(ToolError, match="the result holds a object, which JSON does not have"):
        cleaned(ToolOutput([object()]))


def test_a_bottomless_value_is_no_result() -> None:
    value: Json = []
    for _ in range(200):
        value = [value]
    with pytest.raises(ToolError, match="nested more than 100 deep"):
        cleaned(ToolOutput(value))


@given(st.text(), st.integers(1, 50))
def test_no_text_is_larger_than_its_limit_and_a_line(text: str, limit: int) -> None:
    output = bounded(cleaned(ToolOutput(text)), limit).output
    assert isinstance(output, str)
    assert len(output.encode()) <= limit + len("\n[truncated: 50 of 9999 bytes]")
    msgspec.json.encode(output)
