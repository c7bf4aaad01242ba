"""What the next message would send, and why the rest is left out."""

import pytest
from msgspec.structs import replace

from gateway.a2a.model import Message, Part, Role
from gateway.core.agents import AgentPolicies
from gateway.core.diagnosis.next_request import Fate, Lost, after_loss, planned
from gateway.core.history import Window
from gateway.ledger.threads import ThreadRecord
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    HandleKind,
    HistoryRecord,
    Item,
    OutputItem,
    Ownership,
    ReasoningItem,
    StorageOwner,
    UserItem,
)

GATEWAY = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)
BACKEND = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)


def said(text: str) -> UserItem:
    return UserItem(Message(message_id="m", role=Role.USER, parts=(Part(text=text),)))


def answered(text: str) -> AssistantItem:
    return AssistantItem((Part(text=text),))


def thread(*turns: tuple[Item, ...]) -> list[HistoryRecord]:
    """Turns from number 1 on, whose items the backend has."""
    placed = [(number, item) for number, items in enumerate(turns, 1) for item in items]
    return [
        HistoryRecord(position, number, item, sent_in="call", turn_id=f"turn-{number}", service_call="call")
        for position, (number, item) in enumerate(placed)
    ]


def fates(owned: Ownership, records: list[HistoryRecord], window: Window | None = None, **how: bool) -> list[Fate]:
    return [item.fate for item in planned(owned, records, window, **how)]


TALK = thread((said("a"), answered("b")), (said("c"), answered("d")))


def test_the_gateways_own_conversation_is_sent_as_a_whole() -> None:
    assert fates(GATEWAY, TALK) == [Fate.SENT] * 4


def test_a_backend_that_has_it_gets_only_what_is_new() -> None:
    unsent = [*TALK[:3], replace(TALK[3], sent_in=None), replace(TALK[2], position=9, sent_in=None, item=said("e"))]
    assert fates(BACKEND, unsent) == [Fate.KEPT, Fate.KEPT, Fate.KEPT, Fate.SENT, Fate.SENT]
    assert fates(BACKEND, []) == []


def test_a_new_chain_is_told_everything() -> None:
    assert fates(BACKEND, TALK, new_chain=True) == [Fate.SENT] * 4


def test_a_window_leaves_out_the_oldest_turns() -> None:
    # The message to come counts as one.
    assert fates(GATEWAY, TALK, Window(3, None)) == [Fate.WINDOW, Fate.WINDOW, Fate.SENT, Fate.SENT]
    assert fates(GATEWAY, TALK, Window(1, None)) == [Fate.WINDOW] * 4


def test_turns_that_do_not_count_are_left_out() -> None:
    displaced = [replace(record, displaced=record.turn == 1) for record in TALK]
    failed = [replace(record, failed=record.turn == 1) for record in TALK]
    assert fates(GATEWAY, displaced)[:2] == [Fate.DISPLACED] * 2
    assert fates(GATEWAY, failed, whole_turns=True)[:2] == [Fate.FAILED] * 2
    assert fates(GATEWAY, failed) == [Fate.SENT] * 4


def test_what_no_model_is_to_read_again_is_left_out() -> None:
    cut = [TALK[0], replace(TALK[1], replayable=False), *TALK[2:]]
    refused = [replace(TALK[0], replayable=False, refused_in="call", sent_in=None), *TALK[1:]]
    assert fates(GATEWAY, cut)[1] is Fate.NOT_REPLAYABLE
    assert fates(GATEWAY, refused)[0] is Fate.REFUSED


def test_a_call_without_outcome_and_reasoning_that_leads_nowhere_cannot_be_sent_alone() -> None:
    records = thread((said("a"), ReasoningItem("hm"), CallItem("c1", "add", "{}")))
    assert fates(GATEWAY, records) == [Fate.SENT, Fate.ALONE, Fate.ALONE]


def test_a_refused_outcome_is_replaced() -> None:
    records = thread((said("a"), CallItem("c1", "add", "{}"), OutputItem("c1", "x" * 5000)))
    records[2] = replace(records[2], refused_in="call-2", sent_in=None)
    item = planned(GATEWAY, records, None)[2]
    assert (item.fate, item.weight < 1000) == (Fate.REPLACED, True)


@pytest.mark.parametrize("drops", [True, False])
def test_sources_that_no_answer_cites_are_dropped_where_the_agent_says_so(drops: bool) -> None:
    sources = [{"source_number": 0, "text": "x"}, {"source_number": 1, "text": "y"}]
    records = thread((said("a"), CallItem("c1", "find", "{}"), OutputItem("c1", sources), answered("see [source0]")))
    assert fates(GATEWAY, records, drops_uncited=drops)[2] is (Fate.SHORTENED if drops else Fate.SENT)


LOST = ThreadRecord("t", "c", "echo", 1, BACKEND.owner, BACKEND.handle, "resp-1", 3, None, lost=True)
REBUILDS = AgentPolicies(on_lost_handle="rebuild")


def test_a_lost_conversation_is_told_again_only_where_the_agent_is_set_to_and_all_of_it_is_known() -> None:
    gap = [record for record in TALK if isinstance(record.item, UserItem)]
    assert after_loss(LOST, BACKEND, AgentPolicies(), TALK) == (Lost.FAILS, LOST)
    assert after_loss(LOST, BACKEND, REBUILDS, gap) == (Lost.GAPS, LOST)
    how, following = after_loss(LOST, BACKEND, REBUILDS, TALK)
    assert (how, following.handle, following.epoch, following.lost) == (Lost.REBUILT, None, 2, False)
