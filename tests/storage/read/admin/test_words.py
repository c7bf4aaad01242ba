"""Words out of pieces of JSON."""

import msgspec
import pytest

from gateway.a2a.model import Message, Part, Role
from storage.read.admin.words import first_text, needle, text_around

SAID = msgspec.json.encode(Message(message_id="m", role=Role.USER, parts=(Part(text='Say "hé"\nand stop'),))).decode()


def test_the_first_text_of_a_message_is_told_without_escapes() -> None:
    assert first_text(SAID, 600) == 'Say "hé"\nand stop'
    assert first_text(SAID, 5) == 'Say "'


@pytest.mark.parametrize("at", range(len(SAID)))
def test_a_piece_may_end_anywhere(at: int) -> None:
    found = first_text(SAID[:at], 600)
    assert 'Say "hé"\nand stop'.startswith(found.replace("\\", ""))


def test_nothing_is_told_where_there_is_no_text_or_what_is_damaged() -> None:
    assert [first_text(piece, 600) for piece in (None, "", "{", '{"parts":[{"url":"x"}]}')] == ["", "", "", ""]
    assert first_text(r'{"text":"a\ud800b"}', 600) != ""


def test_a_text_is_found_in_values_and_not_in_the_names_of_fields() -> None:
    assert text_around(SAID, needle("AND"), 600) == 'Say "hé"\nand stop'
    assert text_around(SAID, needle("parts"), 600) is None
    assert text_around(SAID, needle("text"), 600) is None


def test_a_text_is_found_as_its_caller_wrote_it() -> None:
    assert text_around(SAID, needle('"hé"\n'), 600) is not None
    assert text_around(SAID, needle("hÉ"), 600) is None, "only letters of ASCII are alike"


def test_a_piece_may_begin_within_a_value_or_a_name() -> None:
    assert text_around('to the shop","metadata":{"text":"no"}', needle("shop"), 600) == "to the shop"
    assert text_around('s":[{"text":"shop"}]', needle("shop"), 600) == "shop"


def test_only_what_is_around_it_is_told() -> None:
    long = msgspec.json.encode({"text": "a" * 500 + "needle" + "b" * 500}).decode()
    found = text_around(long, "needle", 20)
    assert found == "a" * 7 + "needle" + "b" * 7
