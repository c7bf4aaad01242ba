"""The owner of a thread: contradictory settings, and the epoch that follows one that cannot continue."""

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.a2a.model import Part
from gateway.core.agents import AgentPolicies
from gateway.core.ownership import (
    abandoned_handles,
    apply_point,
    can_serve,
    contradiction,
    epoch,
    is_complete,
    of_thread,
    orphaned_handle,
    rebuild_ownership,
    revert_displaced,
    rewinds,
    starts_new_chain,
)
from gateway.ledger.calls import Complete
from gateway.ledger.leases import Release
from gateway.ledger.points import CommitPoint
from gateway.ledger.states import TurnStatus
from gateway.ledger.threads import (
    BeginEpoch,
    ConfirmHandle,
    DeleteOrphan,
    MarkHandleLost,
    RevertIfDisplaced,
    Rewind,
    ThreadRecord,
)
from gateway.ports.adapter import ErrorClass
from gateway.ports.conversation import (
    AssistantItem,
    HandleKind,
    HistoryRecord,
    Item,
    OutputItem,
    Ownership,
    StorageOwner,
    UserItem,
)
from tests.support.core import message

G = Ownership(StorageOwner.GATEWAY, HandleKind.NONE, opaque_replay=True)
BR = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)
BS = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)
G_EITHER = Ownership(StorageOwner.GATEWAY, HandleKind.NONE, either=True)
BR_EITHER = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING, either=True)
BS_EITHER = Ownership(StorageOwner.BACKEND, HandleKind.STATIC, either=True)


def thread(of: Ownership, handle: str | None = None, **changes: Any) -> ThreadRecord:
    record = ThreadRecord("th", "ctx", "echo", 1, of.owner, of.handle, handle, 7, {"n": 1})
    return replace(record, **changes)


# --- epochs of other owners ---


def test_a_thread_of_the_declared_kind_is_as_declared() -> None:
    assert of_thread(thread(G), G) is G
    assert of_thread(thread(BR), BR) is BR


def test_a_thread_that_began_under_another_owner_keeps_him() -> None:
    assert of_thread(thread(BR), G) == BR
    assert of_thread(thread(G), BR) == Ownership(StorageOwner.GATEWAY, HandleKind.NONE)


@pytest.mark.parametrize(
    ("declared", "began", "served"),
    [
        (G, G, True),
        (BR, BR, True),
        (BS, BS, True),
        (G, BR, False),
        (BR, G, False),
        (BR, BS, False),
        (BR_EITHER, G, True),
        (G_EITHER, BR, True),
        (BR_EITHER, BS, False),
        (BS_EITHER, BR, False),
        (BS_EITHER, G, False),
        (G_EITHER, BS, False),
    ],
)
def test_a_thread_goes_on_only_with_an_adapter_that_serves_its_owner(
    declared: Ownership, began: Ownership, served: bool
) -> None:
    assert can_serve(declared, thread(began)) is served


# --- settings ---


@pytest.mark.parametrize(
    ("wanted", "declared", "policies", "named"),
    [
        ("backend", G, {}, ("history.owner: backend", "kept by the gateway")),
        ("gateway", BR, {}, ("history.owner: gateway", "kept by the backend")),
        (None, BS, {"persistence": "per_turn"}, ("history.persistence: per_turn", "static")),
        (None, BS, {"busy_context": "rollback"}, ("busy_context: rollback", "static", "use interrupt")),
        (None, G, {"on_owner_conflict": "adopt"}, ("on_owner_conflict: adopt", "history.owner")),
    ],
)
def test_settings_that_exclude_each_other_are_both_named(
    wanted: str | None, declared: Ownership, policies: dict[str, Any], named: tuple[str, ...]
) -> None:
    told = contradiction(wanted, declared, AgentPolicies(**policies))
    assert told is not None
    assert all(word in told for word in named)


@pytest.mark.parametrize(
    ("wanted", "declared", "policies"),
    [
        (None, G, {}),
        (None, BS, {"busy_context": "interrupt"}),
        (None, G, {"busy_context": "rollback"}),
        (None, BR, {"busy_context": "rollback"}),
        ("gateway", G, {"persistence": "per_turn", "on_owner_conflict": "warn"}),
        ("backend", BR, {"persistence": "per_turn", "on_lost_handle": "rebuild"}),
        (None, G_EITHER, {"on_owner_conflict": "adopt"}),
    ],
)
def test_settings_that_fit_are_not_complained_of(
    wanted: str | None, declared: Ownership, policies: dict[str, Any]
) -> None:
    assert contradiction(wanted, declared, AgentPolicies(**policies)) is None


# --- a lost handle ---

REBUILD = AgentPolicies(on_lost_handle="rebuild")
LOST = {ErrorClass.HANDLE_NOT_FOUND, ErrorClass.HANDLE_EXPIRED}


@pytest.mark.parametrize("kind", list(ErrorClass))
def test_a_thread_continues_after_a_lost_handle_only_where_that_is_configured(kind: ErrorClass) -> None:
    assert rebuild_ownership(kind, thread(BR, "r1"), BR, AgentPolicies()) is None
    assert rebuild_ownership(kind, thread(BR), BR, REBUILD) is None
    assert rebuild_ownership(kind, thread(G), G, REBUILD) is None
    assert rebuild_ownership(kind, thread(BR, "r1"), BR, REBUILD) == (BR if kind in LOST else None)
    assert rebuild_ownership(kind, thread(BS, "c1"), BS, REBUILD) == (BS if kind in LOST else None)
    assert rebuild_ownership(kind, thread(BS, "c1"), BS, REBUILD, stuck=True) == BS
    assert rebuild_ownership(kind, thread(BS, "c1"), BS, AgentPolicies(), stuck=True) is None


def test_a_backend_that_keeps_nothing_gets_the_whole_conversation_where_the_adapter_can() -> None:
    kind = ErrorClass.STORAGE_DISABLED
    following = rebuild_ownership(kind, thread(BR, "r1"), BR_EITHER, REBUILD)
    assert following == Ownership(StorageOwner.GATEWAY, HandleKind.NONE)


def record(position: int, item: Item, sent_in: str | None) -> HistoryRecord:
    return HistoryRecord(position, position, item, sent_in=sent_in)


ASKED = UserItem(message("hi"))
SAID = AssistantItem((Part(text="a"),))


@pytest.mark.parametrize(
    ("records", "complete"),
    [
        ([], True),
        ([record(1, ASKED, None)], True),
        ([record(1, ASKED, "s1"), record(2, SAID, "s1"), record(3, ASKED, None)], True),
        ([record(1, ASKED, "s2"), record(2, ASKED, "s2"), record(3, SAID, "s2")], True),
        ([record(1, ASKED, "s1")], False),
        ([record(1, ASKED, "s1"), record(2, SAID, "s1"), record(3, ASKED, "s2")], False),
        ([record(1, ASKED, "s1"), record(2, OutputItem("c", "x"), None)], False),
        ([replace(record(1, ASKED, "s1"), displaced=True)], True),
        ([record(1, ASKED, "s1"), replace(record(2, SAID, "s1"), displaced=True)], False),
    ],
)
def test_a_shadow_without_an_answer_to_a_sent_message_has_a_gap(records: list[HistoryRecord], complete: bool) -> None:
    assert is_complete(records) is complete


def test_the_next_epoch_begins_without_what_belonged_to_the_one_before() -> None:
    before = thread(BR, "r1", lost=True)
    point = epoch(before, "old", BR, why="handle-expired", now=5)
    assert point == BeginEpoch("th", 7, "old", StorageOwner.BACKEND, HandleKind.ROTATING, None, "handle-expired", 5)
    after = apply_point(before, point)
    assert after == replace(before, epoch=2, handle=None, generation=8, adapter_state=None, lost=False)
    begun = replace(after, handle="q1")
    assert [starts_new_chain(before), starts_new_chain(after), starts_new_chain(begun)] == [
        False,
        True,
        False,
    ]
    assert not starts_new_chain(thread(BR))
    assert not starts_new_chain(thread(G, epoch=2))


# --- what commit points do to a thread ---

COMPLETE = Complete("th", 7, "t", "s", "r1", "r2", None, None, (), (), (), 0)


@pytest.mark.parametrize(
    ("point", "changes"),
    [
        (COMPLETE, {"handle": "r2", "generation": 8}),
        (replace(COMPLETE, state={"n": 2}), {"handle": "r2", "generation": 8, "adapter_state": {"n": 2}}),
        (ConfirmHandle("th", 7, "c"), {"handle": "c", "generation": 8}),
        (Rewind("th", "t", "r0", 0), {"handle": "r0", "generation": 8}),
        (Rewind("th", "t", "r1", 0), {}),
        (MarkHandleLost("th", 7), {"lost": True}),
        (DeleteOrphan("th", "echo", "r9", 0), {}),
        (Release("th", "me"), {}),
    ],
)
def test_a_thread_is_known_after_each_commit_point(point: CommitPoint, changes: dict[str, Any]) -> None:
    before = thread(BR, "r1")
    assert apply_point(before, point) == replace(before, **changes)


@pytest.mark.parametrize(
    ("of", "status", "persistence", "back"),
    [
        (BR, "failed", "per_turn", True),
        (BR, "failed", "per_service_call", False),
        (BR, "cancelled", "per_turn", False),
        (BR, "completed", "per_turn", False),
        (G, "failed", "per_turn", False),
        (BS, "failed", "per_turn", False),
    ],
)
def test_only_a_chain_is_rewound_to_before_a_failed_turn(
    of: Ownership, status: str, persistence: Any, back: bool
) -> None:
    assert rewinds(thread(of), TurnStatus(status), AgentPolicies(persistence=persistence)) is back


def test_what_a_lost_unit_led_to_is_nobodys() -> None:
    kept = replace(COMPLETE, handle_out="r1")
    adopted = epoch(thread(G), "old", BR, "x1", why="adopted", now=5)
    assert abandoned_handles(thread(BR, "r1"), (kept, Release("th", "me"))) == []
    assert abandoned_handles(thread(BR, "r1"), (COMPLETE, adopted, DeleteOrphan("th", "echo", "r9", 0))) == [
        "r2",
        "r9",
        "x1",
    ]


def test_a_conversation_under_one_id_is_never_taken_for_what_a_failed_call_left() -> None:
    assert [orphaned_handle(thread(of, "h1"), "h2") for of in (BR, BS, G)] == ["h2", None, None]
    assert [orphaned_handle(thread(BR, "h1"), pending) for pending in ("h1", None)] == [None, None]
    assert abandoned_handles(thread(BS), (replace(COMPLETE, handle_in=None, handle_out="c1"),)) == []


@pytest.mark.parametrize(
    ("of", "status", "looks"),
    [
        (BR, "cancelled", True),
        (BR, "failed", True),
        (BR, "completed", False),
        (BR, "rejected", False),
        (G, "cancelled", False),
        (BS, "cancelled", False),
    ],
)
def test_a_chain_may_have_to_be_reverted_after_an_incomplete_turn(of: Ownership, status: str, looks: bool) -> None:
    assert revert_displaced(thread(of), "t", TurnStatus(status), 5) == (
        (RevertIfDisplaced("th", "t", 5),) if looks else ()
    )
