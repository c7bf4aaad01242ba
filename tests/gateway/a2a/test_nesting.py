"""One limit for the depth of values, and texts that are read with it."""

import msgspec
import pytest

from gateway.a2a import nesting
from gateway.a2a.model import Json


def nested(depth: int, inside: Json = 1) -> Json:
    value = inside
    for index in range(depth):
        value = [value] if index % 2 else {"a": value}
    return value


@pytest.mark.parametrize("value", [1, "[[[", None, [], {}, [[], {}], nested(100), nested(99, []), [nested(99), 1]])
def test_what_is_nested_up_to_the_limit_fits(value: Json) -> None:
    assert nesting.fits(value)


@pytest.mark.parametrize("value", [nested(101), nested(100, []), nested(5000), [1, nested(100)], (nested(100),)])
def test_what_is_nested_deeper_does_not(value: Json) -> None:
    assert not nesting.fits(value)


@pytest.mark.parametrize("text", ["1", '{"a": [1, {}]}', "[" * 100 + "]" * 100, '["' + "[" * 500 + '"]'])
def test_a_text_within_the_limit_is_read(text: str) -> None:
    assert nesting.decode(text) == msgspec.json.decode(text)


@pytest.mark.parametrize("depth", [101, 900, 1000, 5000, 100_000])
def test_a_text_beyond_it_is_too_deep(depth: int) -> None:
    with pytest.raises(nesting.TooDeep, match="nested more than 100 deep"):
        nesting.decode("[" * depth + "]" * depth)


@pytest.mark.parametrize("text", ["", "{", "[1,]", "nan"])
def test_a_text_that_is_no_json_is_not_too_deep(text: str) -> None:
    with pytest.raises(msgspec.DecodeError) as caught:
        nesting.decode(text)
    assert not isinstance(caught.value, nesting.TooDeep)
