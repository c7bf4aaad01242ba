"""Whose an activity is."""

from typing import Any

import pytest

from adapters.copilot.activities import Activity, read
from adapters.copilot.direct_line.exchange import SIGNS, Exchange, Whose, is_own, latest, until_next

SENT, TOLD, NEITHER = Whose.SENT, Whose.TOLD, Whose.NEITHER


def activity(name: str | None = None, **given: Any) -> Activity:
    found = read({"type": "message", "id": name, **given})
    assert found is not None
    return found


def own(name: str, *signs: str) -> Activity:
    return activity(name, **{"from": {"id": "me"}, "channelData": {SIGNS: list(signs)}})


def bots(name: str | None, reply_to: str | None = None) -> Activity:
    return activity(name, **{"from": {"id": "bot", "role": "bot"}, "replyToId": reply_to})


def sort(exchange: Exchange, *activities: Activity) -> list[Whose]:
    return [exchange.sort(each) for each in activities]


def test_the_echo_of_the_message_names_it() -> None:
    exchange = Exchange("me", ["s1", "s2"])
    assert sort(exchange, own("a1", "s1", "s2")) == [SENT]
    assert exchange.sent == "a1"


def test_what_comes_again_is_told_once() -> None:
    assert sort(Exchange("me", []), bots("a1"), bots("a1"), bots("a2")) == [TOLD, NEITHER, TOLD]


def test_activities_without_an_id_are_told_each() -> None:
    assert sort(Exchange("me", []), bots(None), bots(None)) == [TOLD, TOLD]


def test_the_answer_to_a_message_that_was_given_up_is_left_out() -> None:
    exchange = Exchange("me", ["s2"], last="a0")
    found = sort(exchange, own("a1", "s1"), own("a3", "s2"), bots("a4", "a1"), bots("a5", "a3"))
    assert found == [NEITHER, SENT, NEITHER, TOLD]


def test_what_the_message_before_still_got_is_told() -> None:
    exchange = Exchange("me", ["s2"], last="a0")
    assert sort(exchange, own("a0", "s1"), bots("a1", "a0"), own("a2", "s2")) == [NEITHER, TOLD, SENT]


def test_the_answer_to_something_unknown_is_told() -> None:
    """As a greeting is, which answers the start of the conversation."""
    assert sort(Exchange("me", ["s1"]), bots("a1", "start")) == [TOLD]


def test_the_same_items_once_more_are_another_message() -> None:
    exchange = Exchange("me", ["s1"], sent="a2")
    assert sort(exchange, own("a1", "s1"), own("a2", "s1")) == [NEITHER, SENT]


@pytest.mark.parametrize(
    ("given", "mine"),
    [
        ({"from": {"id": "me"}}, True),
        ({"from": {"id": "renamed", "role": "user"}}, True),
        ({"from": {"id": "renamed", "role": 1}}, True),
        ({"from": {"id": "renamed"}, "channelData": {SIGNS: ["s"]}}, True),
        ({"from": {"id": "bot", "role": "bot"}}, False),
        ({"from": {"id": "bot"}}, False),
        ({"channelData": {SIGNS: "s"}}, False),
        ({}, False),
    ],
)
def test_a_message_is_known_as_ones_own_by_any_of_its_marks(given: dict[str, Any], mine: bool) -> None:
    assert is_own(activity("a", **given), "me") is mine


def test_without_a_name_nobody_is_oneself() -> None:
    assert not is_own(activity("a", **{"from": {"id": ""}}), "")


def test_the_latest_message_with_the_items_is_found() -> None:
    log = [own("a0", "s1"), bots("a1"), own("a2", "s1"), bots("a3"), own("a4", "s9")]
    assert latest(log, ["s1", "s2"]) == (2, 1)
    assert latest(log, ["s2", "s1"]) is None
    assert latest(log, []) is None
    assert latest([own("a0", "s1", "s2", "s3")], ["s1", "s2"]) is None


def test_an_answer_ends_at_the_next_message_of_the_caller() -> None:
    one, two = bots("a1"), bots("a2")
    assert until_next([one, two, own("a3", "s"), bots("a4")], "me") == [one, two]
