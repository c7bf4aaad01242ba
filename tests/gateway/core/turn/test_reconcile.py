"""The calls that have to be looked up; the consequences of a look-up are in tests/scenarios/test_unheard_calls.py."""

import pytest

from gateway.core.agents import AgentPolicies
from gateway.core.turn.reconcile import must_reconcile
from gateway.ledger.threads import ThreadRecord
from gateway.ports.adapter import ErrorClass
from gateway.ports.capabilities import Ongoing
from gateway.ports.conversation import HandleKind, StorageOwner
from tests.support.scripted import BR, BS, G, ScriptedAdapter
from tests.support.unknown_calls import FetchingAdapter, TailAdapter

CHAIN = ThreadRecord("t", "c", "a", 1, StorageOwner.BACKEND, HandleKind.ROTATING, "r1", 1, None)
CONVERSATION = ThreadRecord("t", "c", "a", 1, StorageOwner.BACKEND, HandleKind.STATIC, "c1", 1, None)
BEGINNING = ThreadRecord("t", "c", "a", 1, StorageOwner.BACKEND, HandleKind.STATIC, None, 1, None)
OWN = ThreadRecord("t", "c", "a", 1, StorageOwner.GATEWAY, HandleKind.NONE, None, 1, None)
LOST = ThreadRecord("t", "c", "a", 1, StorageOwner.BACKEND, HandleKind.STATIC, "c1", 1, None, lost=True)

ABLE = {CHAIN: FetchingAdapter(), CONVERSATION: TailAdapter(), BEGINNING: TailAdapter(), LOST: TailAdapter()}


@pytest.mark.parametrize(
    ("thread", "pending", "heard_nothing_of"),
    [
        (CHAIN, "r2", {"timed-out", "interrupted", "unknown"}),
        (CHAIN, None, set()),
        (
            CONVERSATION,
            None,
            {"timed-out", "interrupted", "unknown", "backend-failed", "contract-broken", "cancelled", "turn-timeout"},
        ),
        (BEGINNING, None, set()),
        (
            BEGINNING,
            "c1",
            {"timed-out", "interrupted", "unknown", "backend-failed", "contract-broken", "cancelled", "turn-timeout"},
        ),
        (LOST, None, set()),
    ],
)
def test_what_was_certainly_not_processed_needs_no_look(
    thread: ThreadRecord, pending: str | None, heard_nothing_of: set[str]
) -> None:
    kinds = [*map(str, ErrorClass), "cancelled", "turn-timeout"]
    found = {kind for kind in kinds if must_reconcile(ABLE[thread], AgentPolicies(), thread, kind, Ongoing(pending))}
    assert found == heard_nothing_of


@pytest.mark.parametrize(("thread", "owned"), [(CHAIN, BR), (CONVERSATION, BS), (OWN, G)])
def test_an_adapter_that_cannot_tell_is_not_asked(thread: ThreadRecord, owned: object) -> None:
    adapter = ScriptedAdapter(owned)  # type: ignore[arg-type]
    assert not must_reconcile(adapter, AgentPolicies(), thread, ErrorClass.INTERRUPTED, Ongoing("r2"))


def test_a_turn_that_is_left_out_anyway_is_not_looked_up() -> None:
    policies = AgentPolicies(persistence="per_turn")
    assert not must_reconcile(FetchingAdapter(), policies, CHAIN, ErrorClass.INTERRUPTED, Ongoing("r2"))
