"""The retry table, cell by cell, and the waits between tries."""

from itertools import product

import pytest

from gateway.core.failures import CallProgress, may_repeat, retry_wait, time_until_retry
from gateway.ports.adapter import AdapterError, ErrorClass
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner

G = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)
BR = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)
BS = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)
SIDE_EFFECTS = Ownership(StorageOwner.GATEWAY, HandleKind.NONE, repeatable=False)
IMMUTABLE = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING, repeatable=True)
OWNERS = {"G": G, "BR": BR, "BS": BS, "G with side effects": SIDE_EFFECTS, "BR that may be repeated": IMMUTABLE}

NOT_PROCESSED = {ErrorClass.UNREACHABLE, ErrorClass.RATE_LIMITED, ErrorClass.LOCKED}
UNKNOWN = {ErrorClass.TIMED_OUT, ErrorClass.INTERRUPTED, ErrorClass.BACKEND_FAILED, ErrorClass.UNKNOWN}
REFUSED = {
    ErrorClass.REJECTED,
    ErrorClass.UNSENDABLE,
    ErrorClass.UNAUTHORISED,
    ErrorClass.NOT_SERVED,
    ErrorClass.HANDLE_EXPIRED,
    ErrorClass.STORAGE_DISABLED,
    ErrorClass.OVERFLOW,
    ErrorClass.POLICY,
    ErrorClass.CONTRACT_BROKEN,
    ErrorClass.REPLAY_MISSING,
}
LOST = {ErrorClass.HANDLE_NOT_FOUND}

# What is repeated, by owner and by how far the call came; every class that is not named is not.
REPEATED: dict[tuple[str, CallProgress], set[ErrorClass]] = {
    ("G", CallProgress.SENT): NOT_PROCESSED | UNKNOWN,
    ("G", CallProgress.STARTED): NOT_PROCESSED | UNKNOWN,
    ("G", CallProgress.EMITTED): set(),
    ("BR", CallProgress.SENT): NOT_PROCESSED | LOST,
    ("BR", CallProgress.STARTED): set(),
    ("BR", CallProgress.EMITTED): set(),
    ("BS", CallProgress.SENT): NOT_PROCESSED | LOST,
    ("BS", CallProgress.STARTED): set(),
    ("BS", CallProgress.EMITTED): set(),
    ("G with side effects", CallProgress.SENT): NOT_PROCESSED,
    ("G with side effects", CallProgress.STARTED): set(),
    ("G with side effects", CallProgress.EMITTED): set(),
    ("BR that may be repeated", CallProgress.SENT): NOT_PROCESSED | UNKNOWN | LOST,
    ("BR that may be repeated", CallProgress.STARTED): NOT_PROCESSED | UNKNOWN,
    ("BR that may be repeated", CallProgress.EMITTED): set(),
}


def test_the_table_has_every_cell() -> None:
    assert set(REPEATED) == set(product(OWNERS, CallProgress))
    assert set(ErrorClass) == NOT_PROCESSED | UNKNOWN | REFUSED | LOST


@pytest.mark.parametrize(("owner", "phase"), REPEATED)
@pytest.mark.parametrize("kind", list(ErrorClass))
def test_a_call_is_made_again_only_where_the_table_says_so(owner: str, phase: CallProgress, kind: ErrorClass) -> None:
    for tries in (1, 2):
        assert may_repeat(OWNERS[owner], phase, AdapterError(kind, ""), tries, continues=True) is (
            kind in REPEATED[owner, phase]
        )


@pytest.mark.parametrize("owner", OWNERS)
def test_a_call_that_named_no_handle_is_not_repeated_because_one_was_not_found(owner: str) -> None:
    lost = AdapterError(ErrorClass.HANDLE_NOT_FOUND, "")
    assert not may_repeat(OWNERS[owner], CallProgress.SENT, lost, 1, continues=False)


@pytest.mark.parametrize("owner", OWNERS)
def test_a_request_on_a_stale_connection_is_repeated_once_unless_the_conversation_is_static(owner: str) -> None:
    stale = AdapterError(ErrorClass.INTERRUPTED, "", stale_connection=True)
    first, second = (may_repeat(OWNERS[owner], CallProgress.SENT, stale, tries, continues=True) for tries in (1, 2))
    assert first is (owner != "BS")
    assert second is OWNERS[owner].may_repeat


@pytest.mark.parametrize("owner", OWNERS)
def test_what_was_shown_in_part_is_not_repeated_because_its_connection_was_stale(owner: str) -> None:
    stale = AdapterError(ErrorClass.INTERRUPTED, "", stale_connection=True)
    assert not may_repeat(OWNERS[owner], CallProgress.EMITTED, stale, 1, continues=True)


# --- waits ---


def waits(
    kind: ErrorClass, *, retry_after: float | None = None, remaining: float = 900, jitter: float = 1
) -> list[float]:
    """All waits of a call that always fails in this way."""
    found: list[float] = []
    while True:
        wait = retry_wait(AdapterError(kind, "", retry_after=retry_after), len(found) + 1, remaining, jitter)
        if wait is None:
            return found
        found.append(wait)


@pytest.mark.parametrize("kind", sorted((NOT_PROCESSED | UNKNOWN) - {ErrorClass.LOCKED}))
def test_the_waits_double_and_end_with_the_third_try(kind: ErrorClass) -> None:
    assert waits(kind) == [0.5, 1.0]


def test_the_waits_of_many_are_spread() -> None:
    assert waits(ErrorClass.RATE_LIMITED, jitter=0) == [0.25, 0.5]
    assert waits(ErrorClass.RATE_LIMITED, jitter=0.5) == [0.375, 0.75]


def test_a_locked_conversation_is_tried_again_after_1_2_and_4_seconds() -> None:
    assert waits(ErrorClass.LOCKED, jitter=0) == waits(ErrorClass.LOCKED) == [1.0, 2.0, 4.0]


def test_a_handle_that_is_not_found_is_looked_for_once_more() -> None:
    assert waits(ErrorClass.HANDLE_NOT_FOUND) == [1.0]


@pytest.mark.parametrize("jitter", [0.0, 1.0])
@pytest.mark.parametrize("retry_after", [0.0, 3.0, 60.0])
def test_a_time_that_the_backend_named_is_never_undercut(retry_after: float, jitter: float) -> None:
    found = waits(ErrorClass.RATE_LIMITED, retry_after=retry_after, jitter=jitter)
    assert len(found) == 2
    assert all(retry_after < wait <= retry_after + 1 for wait in found)


@pytest.mark.parametrize("retry_after", [60.1, 86400.0, float("inf"), float("nan")])
def test_a_backend_that_wants_too_long_a_wait_is_not_waited_for(retry_after: float) -> None:
    assert waits(ErrorClass.RATE_LIMITED, retry_after=retry_after) == []


@pytest.mark.parametrize(
    ("kind", "named", "resting", "told"),
    [
        (ErrorClass.RATE_LIMITED, 3600.0, None, 3600),
        (ErrorClass.RATE_LIMITED, 0.2, None, 1),
        (ErrorClass.BACKEND_FAILED, 61.5, None, 62),
        (ErrorClass.RATE_LIMITED, None, None, None),
        (ErrorClass.RATE_LIMITED, 0.0, None, None),
        (ErrorClass.RATE_LIMITED, -1.0, None, None),
        (ErrorClass.RATE_LIMITED, float("inf"), None, None),
        (ErrorClass.RATE_LIMITED, float("nan"), None, None),
        (ErrorClass.NOT_SERVED, 3600.0, None, None),
        (ErrorClass.UNREACHABLE, None, 23, 23),
        (ErrorClass.UNREACHABLE, 24.0, 23, 23),
    ],
)
def test_the_caller_is_told_how_long_a_failure_lasts_where_that_is_known(
    kind: ErrorClass, named: float | None, resting: int | None, told: int | None
) -> None:
    assert time_until_retry(AdapterError(kind, "", retry_after=named), resting) == told


@pytest.mark.parametrize(("remaining", "expected"), [(10.0, [0.5, 1.0]), (1.0, [0.5]), (0.5, []), (-1.0, [])])
def test_no_wait_goes_past_the_deadline_of_the_turn(remaining: float, expected: list[float]) -> None:
    assert waits(ErrorClass.UNREACHABLE, remaining=remaining) == expected
