"""Messages in pieces: what is told of each piece, whatever way it comes."""

from collections.abc import Sequence

import pytest

from adapters.copilot.activities import StreamInfo
from adapters.copilot.texts import Texts
from gateway.ports.adapter import AdapterEvent, MessageReady, Progress, TextDelta


def piece(sequence: int | None, name: str = "s", *, delta: bool = False) -> StreamInfo:
    return StreamInfo("streaming", name, sequence, delta=delta)


def told(texts: Texts, *given: str, name: str = "s", delta: bool = False) -> list[AdapterEvent]:
    return [
        event for number, text in enumerate(given, 1) for event in texts.add(piece(number, name, delta=delta), text)
    ]


def shown(events: Sequence[AdapterEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextDelta)]


def test_a_text_that_comes_whole_each_time_is_told_by_what_is_new() -> None:
    texts = Texts(cumulative=True)
    assert told(texts, "part0 ", "part0 part1 ") == [TextDelta("part0 "), TextDelta("part1 ")]
    assert texts.end("s", "part0 part1 part2") == [TextDelta("part2"), MessageReady("part0 part1 part2", "s")]


@pytest.mark.parametrize("delta", [True, False], ids=["said", "found out"])
def test_a_text_that_comes_by_what_is_new_is_told_so(delta: bool) -> None:
    texts = Texts(cumulative=False)
    assert shown(told(texts, "Hel", "lo", "!", delta=delta)) == ["Hel", "lo", "!"]
    assert texts.end("s", "Hello!") == [MessageReady("Hello!", "s")]


def test_which_it_is_is_found_out_at_the_second_piece() -> None:
    texts = Texts(cumulative=False)
    assert shown(told(texts, "Hel", "Hello", "Hello!")) == ["Hel", "lo", "!"]


def test_a_piece_that_says_that_it_is_new_is_not_the_whole_even_where_it_looks_so() -> None:
    texts = Texts(cumulative=False)
    assert shown(told(texts, "ha", "ha", delta=True)) == ["ha", "ha"]


def test_what_was_taken_for_the_wrong_kind_is_mended_by_the_whole_message() -> None:
    texts = Texts(cumulative=False)
    told(texts, "ha", "ha")
    assert texts.end("s", "haha") == [TextDelta("ha"), MessageReady("haha", "s")]


def test_a_text_that_was_taken_back_is_replaced_at_the_end() -> None:
    texts = Texts(cumulative=True)
    assert shown(told(texts, "I think", "No:")) == ["I think"]
    assert texts.end("s", "No: never") == [MessageReady("No: never", "s")]


def test_a_message_that_ends_without_a_text_is_void() -> None:
    texts = Texts(cumulative=True)
    told(texts, "I think")
    assert texts.end("s", "") == [MessageReady("", "s")]


def test_pieces_that_come_late_or_twice_say_nothing() -> None:
    texts = Texts(cumulative=True)
    assert texts.add(piece(2), "Hello") == [TextDelta("Hello")]
    assert texts.add(piece(1), "Hel") == ()
    assert texts.add(piece(2), "Hello") == ()
    texts.end("s", "Hello")
    assert texts.add(piece(3), "Hello there") == ()
    assert texts.end("s", "Hello") == ()


def test_pieces_without_numbers_are_taken_as_they_come() -> None:
    texts = Texts(cumulative=True)
    assert texts.add(piece(None), "Hel") == [TextDelta("Hel")]
    assert texts.add(piece(None), "Hello") == [TextDelta("lo")]


def test_what_comes_beside_a_message_waits_for_its_end() -> None:
    texts = Texts(cumulative=True)
    told(texts, "one")
    assert told(texts, "two", name="t") == []
    assert texts.hold((Progress("a step"),)) == ()
    assert texts.say("three", "m") == ()
    assert texts.end("t", "two") == ()
    assert texts.end("s", "one!") == [
        TextDelta("!"),
        MessageReady("one!", "s"),
        Progress("a step"),
        TextDelta("three"),
        MessageReady("three", "m"),
        TextDelta("two"),
        MessageReady("two", "t"),
    ]


def test_a_second_message_goes_on_in_pieces_behind_the_first() -> None:
    texts = Texts(cumulative=True)
    told(texts, "one")
    told(texts, "two", name="t")
    texts.end("s", "one")
    assert texts.add(piece(2, "t"), "two more") == [TextDelta("two more")]


def test_messages_that_have_not_ended_are_told_at_the_end_of_the_answer() -> None:
    texts = Texts(cumulative=True)
    told(texts, "one")
    told(texts, "two", name="t")
    assert texts.close() == [MessageReady("one", "s"), TextDelta("two"), MessageReady("two", "t")]


def test_an_announced_message_is_open_until_another_comes() -> None:
    texts = Texts(cumulative=True)
    texts.announce(piece(1))
    assert texts.open
    texts.say("done", "m")
    assert not texts.open
