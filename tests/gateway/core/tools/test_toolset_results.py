"""Results of tools become JSON of bounded size."""

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.a2a.model import Json
from gateway.core.tools.toolset import bounded
from gateway.ports.tools import ToolError, ToolOutput


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "", "grün", [], {}, {"a": [1, {"b": None}]}])
def test_what_fits_is_given_on_as_it_is(value: Json) -> None:
    assert bounded(ToolOutput(value, error=True), 100) == ToolOutput(value, error=True)


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
    assert bounded(ToolOutput(value), 100).output == told


def test_an_object_of_python_is_no_result() -> None:
    with pytest.raises(ToolError, match="the result holds a object, which JSON does not have"):
        bounded(ToolOutput([object()]), 100)


def test_a_bottomless_value_is_no_result() -> None:
    value: Json = []
    for _ in range(200):
        value = [value]
    with pytest.raises(ToolError, match="nested more than 100 deep"):
        bounded(ToolOutput(value), 10_000)


@given(st.text(), st.integers(1, 50))
def test_no_text_is_larger_than_its_limit_and_a_line(text: str, limit: int) -> None:
    output = bounded(ToolOutput(text), limit).output
    assert isinstance(output, str)
    assert len(output.encode()) <= limit + len("\n[truncated: 50 of 9999 bytes]")
    msgspec.json.encode(output)
