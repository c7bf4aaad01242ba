"""Where a thread's handle may go."""

import pytest

from gateway.commits import ThreadRecord
from gateway.handles import behind, is_static, may_be_missing
from gateway.items import HandleKind, StorageOwner
from gateway.ports import AdapterError, ErrorClass


def thread(kind: HandleKind, handle: str | None) -> ThreadRecord:
    return ThreadRecord("t", "c", "a", 1, StorageOwner.BACKEND, kind, handle, 1, None)


@pytest.mark.parametrize("kind", [HandleKind.ROTATING, HandleKind.STATIC])
def test_a_handle_begins_with_the_first_that_is_named_and_stays_where_none_is(kind: HandleKind) -> None:
    assert behind(thread(kind, None), "h1") == "h1"
    assert behind(thread(kind, "h1"), None) == "h1"
    assert behind(thread(kind, "h1"), "h1") == "h1"


def test_a_rotating_handle_moves_and_a_static_one_must_not() -> None:
    assert behind(thread(HandleKind.ROTATING, "h1"), "h2") == "h2"
    with pytest.raises(AdapterError) as caught:
        behind(thread(HandleKind.STATIC, "h1"), "h2")
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN


def test_only_a_static_handle_that_is_known_may_be_missing() -> None:
    assert may_be_missing(thread(HandleKind.STATIC, "h1"))
    assert not may_be_missing(thread(HandleKind.STATIC, None))
    assert not may_be_missing(thread(HandleKind.ROTATING, "h1"))
    assert [is_static(thread(kind, "h1")) for kind in (HandleKind.STATIC, HandleKind.ROTATING)] == [True, False]
