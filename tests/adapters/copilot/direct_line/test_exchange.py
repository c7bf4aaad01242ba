"""Whose an activity is."""

from typing import Any

import pytest

from adapters.copilot.activities import Activity, read
from adapters.copilot.direct_line.exchange import SIGNS, Exchange, Whose, has_ended, is_own, latest, until_next
from adapters.copilot.direct_line.state import LineState

SENT, TOLD, NEITHER = Whose.SENT, Whose.TOLD, Whose.NEITHER


def activity(name: str | None = None, **given: Any) -> Activity:
    found = read({"type": "message", "id": name, **given})
    assert found is not None
    return found


def own(name: str, *signs: str) -> Activity:
    return activity(name, **{"from": {"id": "me"}, "channelData": {SIGNS: list(signs)}})


def bots(name: str | None, reply_to: str | None = None) -> Activity:
    return activity(name, **{"from": {"id": "bot", "role": "bot"}, "replyToId": reply_to})


def exchange_of(*signs: str, sent: str | None = None, **known: Any) -> Exchange:
    return Exchange(LineState(user="me", **known), list(signs), sent=sent)


def sort(exchange: Exchange, *activities: Activity) -> list[Whose]:
    return [exchange.sort(each) for each in activities]


def test_the_echo_of_the_message_names_it() -> None:
    exchange = exchange_of("s1", "s2")
    assert sort(exchange, own("a1", "s1", "s2")) == [SENT]
    assert exchange.sent == "a1"


def test_what_comes_again_is_told_once() -> None:
    assert sort(exchange_of(), bots("a1"), bots("a1"), bots("a2")) == [TOLD, NEITHER, TOLD]


def test_activities_without_an_id_are_known_by_what_they_say() -> None:
    """A service without watermarks gives them with every look."""
    one, two = activity(text="one"), activity(text="two")
    assert sort(exchange_of(), one, two, one) == [TOLD, TOLD, NEITHER]


def test_a_sign_of_typing_without_an_id_is_a_new_one() -> None:
    typing = activity(type="typing")
    assert sort(exchange_of(), typing, typing) == [TOLD, TOLD]


@pytest.mark.parametrize("names", [("c|0000001", "c|0000002", "c|0000003"), ("x", "y", "z")])
def test_what_was_told_in_an_earlier_turn_is_not_told_again(names: tuple[str, str, str]) -> None:
    first = exchange_of()
    assert sort(first, bots(names[0]), bots(names[1])) == [TOLD, TOLD]
    following = Exchange(first.state_after("7"), [])
    assert sort(following, bots(names[1]), bots(names[0]), bots(names[2])) == [NEITHER, NEITHER, TOLD]
    assert following.state.watermark == "7"


def test_what_is_kept_of_other_names_is_bounded() -> None:
    exchange = exchange_of(told=("old",), given_up=("message",))
    sort(exchange, *(bots(f"n{number}") for number in range(200)), *(own(f"m{number}", "s") for number in range(200)))
    after = exchange.state_after(None)
    assert (len(after.told), after.told[-1], len(after.given_up), after.given_up[-1]) == (100, "m199", 30, "m199")


def test_a_message_that_was_given_up_gets_no_answer_in_a_later_turn_either() -> None:
    first = exchange_of("s2")
    sort(first, own("a1", "s1"), own("a2", "s2"))
    following = Exchange(first.state_after(None), ["s3"])
    assert sort(following, own("a3", "s3"), bots("a4", "a1")) == [SENT, NEITHER]


def test_the_answer_to_a_message_that_the_service_never_showed_is_left_out() -> None:
    exchange = exchange_of(last="c|0000001", sent="c|0000005")
    assert sort(exchange, bots("c|0000006", "c|0000003"), bots("c|0000007", "c|0000005")) == [NEITHER, TOLD]


def test_a_message_whose_signs_were_lost_may_be_the_message_until_its_id_is_known() -> None:
    exchange, unsigned = exchange_of("s1"), [own("a1"), own("a2")]
    assert sort(exchange, *unsigned, bots("a3", "a2")) == [NEITHER, NEITHER, TOLD]
    exchange.sent = "a2"
    assert sort(exchange, bots("a4", "a2"), bots("a5", "a1")) == [TOLD, NEITHER]
    assert exchange.state_after(None).given_up == ("a1",)


def test_a_message_without_signs_from_before_is_not_the_message() -> None:
    exchange = exchange_of("s1")
    assert exchange.look_back([own("a1"), bots("a2", "a1")]) == []
    assert sort(exchange, bots("a3", "a1")) == [NEITHER]


def test_an_earlier_try_that_has_arrived_is_not_the_message() -> None:
    exchange = exchange_of("s1")
    late = bots("a2")
    assert exchange.look_back([own("a1", "s1"), late]) == [late]
    assert sort(exchange, own("a3", "s1"), bots("a4", "a1")) == [SENT, NEITHER]


@pytest.mark.parametrize(
    ("name", "reply_to", "before"),
    [("c|1", None, True), ("c|1", "c|2", False), ("c|3", None, False), ("x", None, False), (None, None, False)],
)
def test_what_stands_before_the_message_is_known_by_its_number(
    name: str | None, reply_to: str | None, before: bool
) -> None:
    assert exchange_of(sent="c|2").is_before(bots(name, reply_to)) is before


def test_a_conversation_has_ended_when_nobody_has_spoken_since() -> None:
    end = activity(type="endOfConversation")
    assert has_ended([bots("a1"), end], "me")
    assert has_ended([end, bots("a1")], "me")
    assert not has_ended([end, own("a1", "s")], "me")
    assert not has_ended([bots("a1")], "me")


def test_the_answer_to_a_message_that_was_given_up_is_left_out() -> None:
    exchange = exchange_of("s2", last="a0")
    found = sort(exchange, own("a1", "s1"), own("a3", "s2"), bots("a4", "a1"), bots("a5", "a3"))
    assert found == [NEITHER, SENT, NEITHER, TOLD]


def test_what_the_message_before_still_got_is_told() -> None:
    exchange = exchange_of("s2", last="a0")
    assert sort(exchange, own("a0", "s1"), bots("a1", "a0"), own("a2", "s2")) == [NEITHER, TOLD, SENT]


def test_the_answer_to_something_unknown_is_told() -> None:
    """As a greeting is, which answers the start of the conversation."""
    assert sort(exchange_of("s1"), bots("a1", "start")) == [TOLD]


def test_the_same_items_once_more_are_another_message() -> None:
    exchange = exchange_of("s1", sent="a2")
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
