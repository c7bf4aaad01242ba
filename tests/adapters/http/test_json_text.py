"""JSON that passes on what bots have written."""

from typing import Any

import pytest

from adapters.http.json_text import decode

DEEP = 300_000
"""More than any decoder follows."""


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (b'{"a": "g\\ud83d"}', {"a": "g\ufffd"}),
        (b'"\\ude00\\ud83d"', "\ufffd\ufffd"),
        (b'"\\ud83d\\ude00 \\ud83d"', "\U0001f600 \ufffd"),
        (b'"\\\\ud83d \\ud83d"', "\\ud83d \ufffd"),
        (b'"\xff"', "\ufffd"),
        (b'["[", ' + b"[" * DEEP + b'"]"' + b"]" * DEEP + b', "]"]', None),
    ],
    ids=["high", "low", "pair", "escaped", "no UTF-8", "deep"],
)
def test_what_cannot_be_kept_costs_itself_only(content: bytes, value: Any) -> None:
    found = decode(content)
    if value is None:
        assert (found[0], found[2]) == ("[", "]")
    else:
        assert found == value


@pytest.mark.parametrize("content", [b"", b"{no", b"<html>", b'"\\ud83d'])
def test_what_is_no_json_is_an_error(content: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(content)
