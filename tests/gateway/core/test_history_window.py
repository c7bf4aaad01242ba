"""The window on a conversation, the weight of items, and the bytes of a token."""

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gateway.a2a.model import Json, Message, Part, Role
from gateway.core.history import Window, newest, project, weight_of_tokens
from gateway.ledger.calls import MeasuredCall
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    HandleKind,
    HistoryRecord,
    Item,
    OpaqueItem,
    OutputItem,
    Ownership,
    ReasoningItem,
    StorageOwner,
    UserItem,
    weigh,
    weight,
)

G_OPAQUE = Ownership(StorageOwner.GATEWAY, HandleKind.NONE, opaque_replay=True)
FRAME = 16


def user(*parts: Part) -> Item:
    return UserItem(Message(message_id="m", role=Role.USER, parts=parts))


def U(text: str) -> Item:  # noqa: N802
    return user(Part(text=text))


def A(text: str) -> Item:  # noqa: N802
    return AssistantItem((Part(text=text),))


C, O, R = CallItem("c", "f", "{}"), OutputItem("c", "ok"), ReasoningItem("", {"of": 1})  # noqa: E741


def thread(*turns: list[Item]) -> list[HistoryRecord]:
    records: list[HistoryRecord] = []
    for number, turn in enumerate(turns, 1):
        records += [
            HistoryRecord(len(records) + place, number, item, turn_id=f"turn-{number}")
            for place, item in enumerate(turn, 1)
        ]
    return records


def kept(window: Window, *turns: list[Item]) -> list[Item]:
    return [record.item for record in newest(thread(*turns), window)]


# --- what fits ---

TALK = [[U("1"), A("one")], [U("2"), R, C, O, A("two")], [U("3")]]


@pytest.mark.parametrize(
    ("most", "first"), [(1, 2), (2, 2), (3, 1), (4, 1), (5, 0), (1000, 0)], ids=lambda value: str(value)
)
def test_messages_are_those_of_the_caller_and_of_the_agent_and_turns_go_whole(most: int, first: int) -> None:
    assert kept(Window(most, None), *TALK) == [item for turn in TALK[first:] for item in turn]


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_window_by_weight_takes_what_fits_to_the_last_byte(first: int) -> None:
    expected = [item for turn in TALK[first:] for item in turn]
    assert kept(Window(None, weigh(expected)), *TALK) == expected
    if first < 2:
        later = [item for turn in TALK[first + 1 :] for item in turn]
        assert kept(Window(None, weigh(expected) - 1), *TALK) == later


def test_of_two_limits_the_narrower_counts() -> None:
    assert kept(Window(3, 10**6), *TALK) == kept(Window(3, None), *TALK)
    assert kept(Window(1000, 0), *TALK) == [U("3")]


def test_the_turn_that_runs_stays_whole_however_long_it_is() -> None:
    now = [U("x" * 1000), R, C, O]
    assert kept(Window(1, 1), [U("1"), A("one")], now) == now


def test_an_older_turn_is_not_sent_after_one_that_does_not_fit() -> None:
    assert kept(Window(None, 100), [U("1")], [U("2" * 1000)], [U("3")]) == [U("3")]


def test_without_limits_all_of_it_stays() -> None:
    assert kept(Window(None, None), *TALK) == [item for turn in TALK for item in turn]


def test_of_nothing_stays_nothing() -> None:
    assert kept(Window(1, 1)) == []


# --- any history at all ---

_ITEM = some.sampled_from(
    [
        CallItem("a", "f", "{}"),
        CallItem("b", "f", "{}"),
        OutputItem("a", "x" * 50),
        OutputItem("b", None),
        R,
        OpaqueItem("note", {}),
        OpaqueItem("compaction", {}, boundary=True),
        A("x"),
        A("y" * 200),
        A(""),
    ]
)
_WINDOWS = some.builds(
    Window,
    some.none() | some.integers(min_value=1, max_value=12),
    some.none() | some.integers(min_value=1, max_value=1500),
)


@given(some.lists(some.lists(_ITEM, max_size=8), max_size=8), _WINDOWS)
def test_what_is_left_is_the_end_of_the_whole_view_in_whole_turns_with_the_message(
    turns: list[list[Item]], window: Window
) -> None:
    records = thread(*([U(str(number)), *items] for number, items in enumerate(turns)), [U("now")])
    now = f"turn-{len(turns) + 1}"
    whole = project(G_OPAQUE, records, now).items
    view = project(G_OPAQUE, records, now, window).items
    assert view == whole[len(whole) - len(view) :]
    assert view[-1] == U("now")
    assert view[0] == whole[0] or isinstance(view[0], UserItem)
    _check_pairs(view)
    _check_reasoning(view)
    assert _fits(view, window) or view == (U("now"),)
    left_out = whole[: len(whole) - len(view)]
    if left_out:
        starts = [index for index, item in enumerate(left_out) if isinstance(item, UserItem)] or [0]
        assert not _fits(whole[starts[-1] :], window)


def _fits(items: tuple[Item, ...], window: Window) -> bool:
    spoken = sum(isinstance(item, UserItem | AssistantItem) for item in items)
    return (window.messages is None or spoken <= window.messages) and (
        window.weight is None or weigh(items) <= window.weight
    )


def _check_pairs(view: tuple[Item, ...]) -> None:
    open_calls: list[str] = []
    for item in view:
        match item:
            case CallItem(call_id=call_id):
                open_calls.append(call_id)
            case OutputItem(call_id=call_id):
                open_calls.remove(call_id)
            case UserItem():
                assert open_calls == []
            case _:
                pass
    assert open_calls == []


def _check_reasoning(view: tuple[Item, ...]) -> None:
    for is_reasoning, run in groupby(pairwise(view), lambda pair: isinstance(pair[0], ReasoningItem)):
        if is_reasoning:
            assert isinstance([*run][-1][1], CallItem | AssistantItem | OpaqueItem)


# --- what an item weighs ---

PICTURE = 4000


@pytest.mark.parametrize(
    ("item", "more"),
    [
        (U("hello"), 5),
        (U("häh"), 4),
        (U(""), 0),
        (user(Part(data={"a": 1})), 7),
        (user(Part(data=None)), 4),
        (user(Part(text="a"), Part(text="b")), 2),
        (user(Part(raw="A" * 40_000, media_type="image/png")), PICTURE),
        (user(Part(url="https://x.example/a.png", media_type="image/png")), PICTURE),
        (user(Part(raw="A" * 4000, media_type="text/plain")), 3000),
        (user(Part(url="https://x.example/a.txt", media_type="text/plain")), PICTURE),
        (user(Part(raw="A" * 400_000, media_type="application/pdf")), 30_000),
        (user(Part(raw="A" * 40)), PICTURE),
        (AssistantItem((Part(text="hi"), Part(raw="A" * 40_000, media_type="image/png"))), 2 + FRAME),
        (CallItem("c", "add", '{"a":1}'), 10),
        (OutputItem("c", "three"), 5),
        (OutputItem("c", {"n": 3}), 7),
        (ReasoningItem("hmm"), 3),
        (ReasoningItem("not sent", {"of": 1}), 8),
        (OpaqueItem("compaction", {"of": 1}), 8),
    ],
)
def test_an_item_weighs_what_a_model_reads_of_it(item: Item, more: int) -> None:
    assert weight(item) == FRAME + more


@pytest.mark.parametrize("parts", [(), (Part(text=""), Part(text=""))])
def test_an_answer_of_nothing_weighs_nothing(parts: tuple[Part, ...]) -> None:
    assert weight(AssistantItem(parts)) == 0


# --- how many bytes make a token ---


@pytest.mark.parametrize(
    ("usage", "bytes_per_token"),
    [
        ({"input_tokens": 1000}, 4),
        ({"prompt_tokens": 2000, "completion_tokens": 9}, 2),
        ({"input_tokens": 100}, 8),
        ({"input_tokens": 100_000}, 1),
        (None, 3),
        ({}, 3),
        ([], 3),
        ("1000", 3),
        ({"input_tokens": None}, 3),
        ({"input_tokens": "1000"}, 3),
        ({"input_tokens": 0}, 3),
        ({"input_tokens": -5}, 3),
        ({"tokens": 7}, 3),
    ],
)
def test_the_backends_own_figures_say_how_many_bytes_make_a_token(usage: Json, bytes_per_token: int) -> None:
    assert weight_of_tokens(500, (MeasuredCall(4000, usage),)) == 500 * bytes_per_token


def test_the_latest_figure_counts_and_a_call_without_one_is_passed_over() -> None:
    old, new = MeasuredCall(4000, {"input_tokens": 2000}), MeasuredCall(4000, {"input_tokens": 1000})
    without = (MeasuredCall(None, {"input_tokens": 9}), MeasuredCall(0, {"input_tokens": 9}), MeasuredCall(5, None))
    assert weight_of_tokens(10, (*without, new, old)) == 40
    assert weight_of_tokens(10, ()) == 30
