"""The view of the next service call, as a table: stored items in, items out."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from gateway.a2a.model import Message, Part, Role
from gateway.core.history import View, Window, project
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
)

G = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)
G_OPAQUE = Ownership(StorageOwner.GATEWAY, HandleKind.NONE, opaque_replay=True)
BR = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)


def U(text: str) -> Item:  # noqa: N802
    return UserItem(Message(message_id="m", role=Role.USER, parts=(Part(text=text),)))


def A(text: str) -> Item:  # noqa: N802
    return AssistantItem((Part(text=text),))


def C(call_id: str) -> Item:  # noqa: N802
    return CallItem(call_id, "tool", "{}")


def O(call_id: str, output: str = "ok") -> Item:  # noqa: E743, N802
    return OutputItem(call_id, output)


def R(text: str) -> Item:  # noqa: N802
    return ReasoningItem(text, {"of": text})


X = OpaqueItem("compaction", {})


def thread(*turns: list[Item], sent: int = 0) -> list[HistoryRecord]:
    """Turns 1.. of a thread; the items of the first `sent` turns are on the backend's chain."""
    records: list[HistoryRecord] = []
    for number, turn in enumerate(turns, 1):
        for item in turn:
            carried = f"call-{number}" if number <= sent else None
            records.append(HistoryRecord(len(records) + 1, number, item, sent_in=carried, turn_id=f"turn-{number}"))
    return records


def view(ownership: Ownership, *turns: list[Item], sent: int = 0) -> list[Item]:
    """The items for the last turn."""
    return list(project(ownership, thread(*turns, sent=sent), f"turn-{len(turns)}").items)


# --- the gateway keeps the conversation ---


@pytest.mark.parametrize("ownership", [G, G_OPAQUE])
def test_the_whole_conversation_goes_out(ownership: Ownership) -> None:
    assert view(ownership, [U("1"), A("one")], [U("2")], sent=1) == [U("1"), A("one"), U("2")]


def test_a_call_goes_with_its_output() -> None:
    answered = [U("1"), C("c"), O("c"), A("one")]
    assert view(G, answered, [U("2")]) == [*answered, U("2")]


@pytest.mark.parametrize(
    ("turn", "kept"),
    [
        ([C("c")], []),
        ([O("c")], []),
        ([O("c"), C("c")], []),
        ([C("c"), C("d"), O("d")], [C("d"), O("d")]),
        ([C("c"), C("c"), O("c")], [C("c"), O("c")]),
        ([C("c"), O("c", "1"), O("c", "2")], [C("c"), O("c", "1")]),
        ([C("c"), O("c", "1"), C("c"), O("c", "2")], [C("c"), O("c", "1"), C("c"), O("c", "2")]),
    ],
)
def test_a_call_without_output_and_an_output_without_call_are_left_out(turn: list[Item], kept: list[Item]) -> None:
    assert view(G, [U("1"), *turn], [U("2")]) == [U("1"), *kept, U("2")]


def test_a_call_that_stayed_open_is_not_closed_by_a_later_turns_output_of_the_same_id() -> None:
    open_call, later = CallItem("c", "first", "{}"), CallItem("c", "second", "{}")
    assert view(G, [U("1"), open_call], [U("2"), later, O("c")], [U("3")]) == [U("1"), U("2"), later, O("c"), U("3")]


def test_an_output_does_not_close_a_call_of_another_turn() -> None:
    assert view(G, [U("1"), C("c")], [U("2"), O("c")], [U("3")]) == [U("1"), U("2"), U("3")]


def test_parallel_calls_stay_in_their_order() -> None:
    turn = [U("1"), C("c"), C("d"), O("c"), O("d"), A("done")]
    assert view(G, turn, [U("2")]) == [*turn, U("2")]


def test_what_must_not_be_shown_again_is_left_out() -> None:
    records = thread([U("1"), A("par")], [U("2")])
    records[1] = replace(records[1], replayable=False)
    assert project(G, records, "turn-2").items == (U("1"), U("2"))


@pytest.mark.parametrize("ownership", [G, G_OPAQUE, BR])
@pytest.mark.parametrize("new_chain", [False, True])
def test_a_turn_that_was_displaced_is_left_out_whole(ownership: Ownership, new_chain: bool) -> None:
    compaction = OpaqueItem("compaction", {}, boundary=True)
    records = thread([U("1"), A("one")], [U("2"), compaction, R("r"), C("c"), O("c"), A("par")], [U("3")], sent=1)
    records = [replace(record, displaced=record.turn == 2) for record in records]
    told = project(ownership, records, "turn-3", new_chain=new_chain)
    if ownership is BR and not new_chain:
        assert (told.items, told.positions) == ((U("3"),), (9,))
    else:
        assert (told.items, told.positions) == ((U("1"), A("one"), U("3")), (9,))


@pytest.mark.parametrize("parts", [(), (Part(text=""),), (Part(text=""), Part(text=""))])
def test_an_answer_of_nothing_is_left_out(parts: tuple[Part, ...]) -> None:
    assert view(G, [U("1"), AssistantItem(parts)], [U("2")]) == [U("1"), U("2")]


def test_an_answer_of_data_is_one() -> None:
    of_null = AssistantItem((Part(data=None),))
    assert view(G, [U("1"), of_null], [U("2")]) == [U("1"), of_null, U("2")]


# --- reasoning ---


def test_reasoning_and_opaque_items_go_back_only_where_the_backend_takes_them() -> None:
    turn = [U("1"), R("r"), C("c"), O("c"), X, A("one")]
    assert view(G_OPAQUE, turn, [U("2")]) == [*turn, U("2")]
    assert view(G, turn, [U("2")]) == [U("1"), C("c"), O("c"), A("one"), U("2")]


@pytest.mark.parametrize(
    ("turn", "kept"),
    [
        ([R("r"), C("c")], []),
        ([R("r"), C("c"), A("one")], [A("one")]),
        ([R("r"), R("s"), C("c")], []),
        ([R("r"), C("c"), C("d"), O("d")], [R("r"), C("d"), O("d")]),
        ([R("r"), C("c"), O("c"), R("s"), C("d")], [R("r"), C("c"), O("c")]),
        ([R("r"), C("c"), O("c"), R("s"), A("one")], [R("r"), C("c"), O("c"), R("s"), A("one")]),
        ([R("r")], []),
        ([R("r"), AssistantItem(())], []),
        ([R("r"), X], [R("r"), X]),
        ([R("r"), R("s"), A("one")], [R("r"), R("s"), A("one")]),
    ],
)
def test_reasoning_stays_with_what_it_led_to(turn: list[Item], kept: list[Item]) -> None:
    assert view(G_OPAQUE, [U("1"), *turn], [U("2")]) == [U("1"), *kept, U("2")]


# --- what the backend has compacted ---

B = OpaqueItem("compaction", {"of": "all before"}, boundary=True)


@pytest.mark.parametrize(
    ("turns", "sent"),
    [
        ([[U("1"), A("one"), B], [U("2")]], [B, U("2")]),
        ([[U("1"), A("one")], [U("2"), B, A("two")], [U("3")]], [B, A("two"), U("3")]),
        ([[U("1"), B, A("one")], [U("2"), B, A("two")], [U("3")]], [B, A("two"), U("3")]),
        ([[U("1"), C("c"), B, O("c")], [U("2")]], [B, U("2")]),
        ([[U("1"), R("r"), B, A("one")], [U("2")]], [B, A("one"), U("2")]),
        ([[U("1"), A("one")], [U("2"), C("c"), O("c"), B]], [B]),
    ],
)
def test_what_stands_for_all_before_it_goes_instead_of_it(turns: list[list[Item]], sent: list[Item]) -> None:
    assert view(G_OPAQUE, *turns) == sent


def test_it_replaces_nothing_where_the_backend_does_not_take_it_back() -> None:
    assert view(G, [U("1"), A("one"), B], [U("2")]) == [U("1"), A("one"), U("2")]


# --- a window ---


def test_of_a_window_only_the_items_inside_count_as_sent() -> None:
    records = thread([U("1")], [U("2"), A("two")], [U("3")], sent=0)
    assert project(G, records, "turn-3", Window(1, None)) == View((U("3"),), (4,))
    assert project(G, records, "turn-3", Window(3, None)) == View(
        (U("2"), A("two"), U("3")), (2, 3, 4), earlier=((2, 3),)
    )


def test_what_is_left_out_of_the_view_takes_no_room_in_its_window() -> None:
    long = CallItem("c", "x" * 1000, "")
    fits = weigh([U("1"), A("one"), U("2")])
    turns = thread([U("1"), R("r" * 1000), long, A("one")], [U("2")])
    assert project(G, turns, "turn-2", Window(None, fits)).items == (U("1"), A("one"), U("2"))


def test_a_window_does_not_touch_what_goes_to_a_backend_that_keeps_the_conversation() -> None:
    records = thread([U("1")], [U("2")])
    assert project(BR, records, "turn-2", Window(1, 1)).items == (U("1"), U("2"))


# --- the backend keeps it ---


def test_the_backend_gets_what_its_chain_does_not_hold() -> None:
    assert view(BR, [U("1"), A("one")], [U("2")], sent=1) == [U("2")]


def test_outputs_come_before_messages() -> None:
    assert view(BR, [U("1"), A("one")], [U("2"), C("c"), O("c")], [U("3")], sent=1) == [O("c"), U("2"), U("3")]


def test_a_message_that_failed_goes_along_with_the_next_one() -> None:
    assert view(BR, [U("1")], [U("2")]) == [U("1"), U("2")]


def test_the_output_of_a_failed_call_is_not_sent() -> None:
    records = thread([U("1"), O("c"), A("par")], [U("2")])
    records[1], records[2] = replace(records[1], replayable=False), replace(records[2], replayable=False)
    assert project(BR, records, "turn-2") == View((U("1"), U("2")), (1, 4), earlier=((1,),))


# --- both ---


@pytest.mark.parametrize("ownership", [G, BR])
def test_a_later_turn_waits_for_its_own_call(ownership: Ownership) -> None:
    records = thread([U("1")], [U("2")], [U("3")])
    assert project(ownership, records, "turn-2") == View((U("1"), U("2")), (1, 2), earlier=((1,),))


@pytest.mark.parametrize("ownership", [G, BR])
def test_the_positions_are_those_of_the_items_that_the_chain_did_not_hold(ownership: Ownership) -> None:
    records = thread([U("1"), A("one")], [U("2")], sent=1)
    assert project(ownership, records, "turn-2").positions == (3,)


# --- any thread at all ---

_ITEM = some.sampled_from([C("a"), C("b"), O("a"), O("b"), R("r"), X, A("x"), A("")])
_THREADS = some.lists(some.lists(_ITEM, max_size=8), min_size=1, max_size=4)


@given(_THREADS)
def test_a_view_pairs_every_call_and_ends_with_the_message(turns: list[list[Item]]) -> None:
    spoken = [[U(str(number)), *items] for number, items in enumerate(turns)]
    items = view(G_OPAQUE, *spoken, [U("last")])
    open_calls: Counter[str] = Counter()
    for item, following in zip(items, [*items[1:], None], strict=True):
        match item:
            case CallItem(call_id=call_id):
                open_calls[call_id] += 1
            case OutputItem(call_id=call_id):
                assert open_calls[call_id] > 0
                open_calls[call_id] -= 1
            case UserItem():
                assert open_calls.total() == 0
            case ReasoningItem():
                assert isinstance(following, ReasoningItem | CallItem | AssistantItem | OpaqueItem)
            case AssistantItem():
                assert item != A("")
            case _:
                pass
    assert open_calls.total() == 0
    assert items[-1] == U("last")
