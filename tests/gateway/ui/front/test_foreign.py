"""Texts of others on a page."""

import pytest

from gateway.ui.front.foreign import foreign


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain <b>&amp;", "plain <b>&amp;"),
        ("one\ntwo\tthree", "one two three"),
        ("a\x00b\x1b[31m", "a[U+0000]b[U+001B][31m"),
        ("\u202egnp.exe", "[U+202E]gnp.exe"),
        ("\u2066a\u2069", "[U+2066]a[U+2069]"),
        ("zero\u200bwidth", "zero[U+200B]width"),
        ("half \ud800", "half [U+D800]"),
        ("line\u2028end", "line[U+2028]end"),
        ("نمی\u200cخواهم", "نمی\u200cخواهم"),
        ("👩\u200d🚀", "👩\u200d🚀"),
        ("é ñ 漢字", "é ñ 漢字"),
    ],
)
def test_what_has_no_shape_is_named(text: str, expected: str) -> None:
    assert foreign(text, 100) == expected


def test_a_long_text_is_cut_and_says_so() -> None:
    assert foreign("x" * 8000, 10) == "xxxxxxxxxx…"
    assert foreign("x" * 10, 10) == "xxxxxxxxxx"
