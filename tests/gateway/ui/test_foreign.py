"""Text of others as HTML."""

import pytest

from gateway.ui.foreign import foreign, one_line, plain, visible


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("\" onload='x'", "&#34; onload=&#39;x&#39;"),
        ("{{ 7 * 7 }} {% raw %}", "{{ 7 * 7 }} {% raw %}"),
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("שלום", "שלום"),
        ("👍🏽", "👍🏽"),
        ("é", "é"),
        ("", ""),
    ],
)
def test_markup_is_shown_and_does_nothing(text: str, html: str) -> None:
    assert foreign(text) == f"<bdi>{html}</bdi>"


@pytest.mark.parametrize(
    "character",
    ["\x00", "\x1b", "\x7f", "\x85", "\xad", "\u061c", "\u200b", "\u200f", "\u2028", "\u202e", "\u2066"],
)
def test_what_is_not_seen_is_named(character: str) -> None:
    named = f"U+{ord(character):04X}"
    assert foreign(f"a{character}b") == f'<bdi>a<span class="unseen">{named}</span>b</bdi>'
    assert visible(f"a{character}b") == f"a⟨{named}⟩b"
    assert plain(f"a{character}b") == "a\N{REPLACEMENT CHARACTER}b"


@pytest.mark.parametrize(
    "character", ["\ufeff", "\ud800", "\ue000", "\ufdd0", "\u08e2", "\U00013430", "\U000e0041", "\U0010fffd"]
)
def test_halves_tags_and_private_characters_are_named(character: str) -> None:
    found = foreign(character)
    assert f"U+{ord(character):04X}" in found
    found.encode()


def test_a_heap_of_accents_stands_for_itself_once() -> None:
    found = foreign("Z" + "\u0301" * 5000, 10_000)
    assert found == ('<bdi>Z<span class="unseen">' + " ".join(["U+0301"] * 8) + " and 4992 more</span></bdi>")


def test_a_text_is_cut_and_says_by_how_much() -> None:
    assert foreign("x" * 1500, 10) == ('<bdi>xxxxxxxxxx</bdi> <span class="cut">… 1,490 more characters</span>')


def test_a_megabyte_is_no_more_than_what_is_shown_of_it() -> None:
    assert len(foreign("<\u202e" * 500_000)) < 100_000


def test_a_value_is_shown_as_json() -> None:
    assert foreign({"a": [1, None, "<"]}) == "<bdi>{&#34;a&#34;:[1,null,&#34;&lt;&#34;]}</bdi>"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("plain <b>&amp;", "plain <b>&amp;"),
        ("one\ntwo\tthree\rfour", "one two three four"),
        ("a\x00b\x1b[31m", "a⟨U+0000⟩b⟨U+001B⟩[31m"),
        ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"),
        ("\u2066a\u2069", "⟨U+2066⟩a⟨U+2069⟩"),
        ("zero\u200bwidth", "zero⟨U+200B⟩width"),
        ("half \ud800", "half ⟨U+D800⟩"),
        ("line\u2028end", "line⟨U+2028⟩end"),
        ("نمی\u200cخواهم", "نمی\u200cخواهم"),
        ("👩\u200d🚀", "👩\u200d🚀"),
        ("é ñ 漢字", "é ñ 漢字"),
        ("x" * 101, "x" * 100 + "…"),
    ],
)
def test_a_text_in_a_line_keeps_its_words_whole_and_names_what_is_not_seen(text: str, line: str) -> None:
    assert one_line(text, 100) == line
