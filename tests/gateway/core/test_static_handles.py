"""Events with a static handle."""

import pytest

from gateway.core.ownership import is_static, on_static_handle
from gateway.ledger.threads import ThreadRecord
from gateway.ports.adapter import AdapterError, AdapterEvent, CallCompleted, CallStarted, ErrorClass, TextDelta
from gateway.ports.conversation import HandleKind, StorageOwner


def thread(handle: str | None, kind: HandleKind = HandleKind.STATIC) -> ThreadRecord:
    return ThreadRecord("t", "c", "a", 1, StorageOwner.BACKEND, kind, handle, 1, None)


@pytest.mark.parametrize("event", [CallStarted("h1"), CallStarted(), CallCompleted("h1"), CallCompleted()])
def test_a_conversation_that_is_not_there_yet_is_whatever_is_named(event: AdapterEvent) -> None:
    assert on_static_handle(thread(None), event) is event


@pytest.mark.parametrize("named", ["h1", None])
def test_a_known_handle_is_not_pending_again_and_confirmed_without_its_name(named: str | None) -> None:
    known = thread("h1")
    assert on_static_handle(known, CallStarted(named)) == CallStarted()
    assert on_static_handle(known, CallCompleted(named, finish="x")) == CallCompleted("h1", finish="x")


@pytest.mark.parametrize("event", [CallStarted("h2"), CallCompleted("h2")])
def test_27_another_handle_breaks_the_contract(event: AdapterEvent) -> None:
    with pytest.raises(AdapterError) as caught:
        on_static_handle(thread("h1"), event)
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN


def test_what_names_no_handle_passes() -> None:
    event = TextDelta("a")
    assert on_static_handle(thread("h1"), event) is event


def test_only_static_ones_stay() -> None:
    assert [is_static(thread("h1", kind)) for kind in (HandleKind.STATIC, HandleKind.ROTATING)] == [True, False]
