"""Long texts in pieces."""

import msgspec

from gateway.ledger.admin.timelines import Body, BodyKey


def test_a_piece_says_where_the_next_one_begins() -> None:
    assert [Body("ab", 0, 5).next, Body("cd", 2, 5).next, Body("e", 4, 5).next] == [2, 4, None]


def test_a_place_behind_the_end_is_followed_by_nothing() -> None:
    assert Body("", 9, 5).next is None


def test_a_key_goes_into_an_address_and_comes_back() -> None:
    key = BodyKey("item", "thread-1", 7)
    assert msgspec.json.decode(msgspec.json.encode(key), type=BodyKey) == key
