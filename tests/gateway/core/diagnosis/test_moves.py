"""Why a handle moved, told from the rows of service calls."""

from msgspec.structs import replace

from gateway.core.diagnosis.moves import Move, Old, Why, moves
from gateway.ledger.admin.contexts import HandleStep, HandleSteps, QueuedDeletion, StepKey, ThreadMap
from gateway.ledger.states import ServiceCallStatus, TurnStatus
from gateway.ports.adapter import ErrorClass
from gateway.ports.conversation import HandleKind, StorageOwner

THREAD = ThreadMap(
    "thread-1", "echo", 1, False, StorageOwner.BACKEND, HandleKind.ROTATING, None, None, 1, "open", 1, 100, "message",
    None, None, 0,
)  # fmt: skip
FAILED, UNKNOWN = ServiceCallStatus.FAILED, ServiceCallStatus.UNKNOWN


def step(number: int, before: str | None, after: str | None, *, round: int = 0, attempt: int = 0) -> HandleStep:  # noqa: A002
    """A completed call, at 100 ms times the number of its turn, whose turn has ended 50 ms later."""
    at = number * 100 + round * 10 + attempt
    return HandleStep(
        f"call-{number}-{round}-{attempt}", f"turn-{number}", "task-1", number, round, attempt,
        ServiceCallStatus.COMPLETED, None, at, at + 5, before, None, after, None,
        TurnStatus.COMPLETED, None, number * 100 + 50, displaced=False,
    )  # fmt: skip


def failed(number: int, before: str | None, kind: str, pending: str | None = None, *, attempt: int = 0) -> HandleStep:
    found = step(number, before, None, attempt=attempt)
    return replace(found, status=FAILED, error_class=kind, pending=pending, turn_status=TurnStatus.FAILED)


Told = tuple[Why, str | None, str | None, Old]


def told(*steps: HandleStep, handle: str | None, epochs: tuple[ThreadMap, ...] = ()) -> list[Told]:
    """(why, before, after, old), the oldest first. `steps` are in order; the live epoch is the last one."""
    found = _moves(steps, handle, epochs)
    return [(move.why, move.before, move.after, move.old) for move in reversed(found)]


def _moves(steps: tuple[HandleStep, ...], handle: str | None, epochs: tuple[ThreadMap, ...]) -> tuple[Move, ...]:
    live = replace(epochs[-1] if epochs else THREAD, handle=handle)
    every = (*epochs[:-1], live)
    return moves(HandleSteps(live, tuple(reversed(every)), tuple(reversed(steps)), None, None))


def test_an_answered_call_leaves_the_earlier_handle_behind() -> None:
    assert told(step(1, None, "r1"), step(2, "r1", "r2"), handle="r2") == [
        (Why.ANSWERED, None, "r1", Old.NONE),
        (Why.ANSWERED, "r1", "r2", Old.BEHIND),
    ]


def test_a_constant_handle_stays_while_it_answers() -> None:
    static = replace(THREAD, handle_kind=HandleKind.STATIC)
    assert told(step(1, "c", "c"), handle="c", epochs=(static,)) == [(Why.ANSWERED, "c", "c", Old.STAYS)]


def test_a_failed_call_moves_nothing_and_what_it_had_begun_is_deleted() -> None:
    broken = failed(2, "r1", ErrorClass.TIMED_OUT, "r2")
    assert told(step(1, None, "r1"), broken, handle="r1")[1:] == [(Why.FAILED, "r1", "r1", Old.DELETED)]
    for deletion, old in ((QueuedDeletion(5, 2), Old.TO_DELETE), (QueuedDeletion(None, 8), Old.GIVEN_UP)):
        [move, _] = _moves((step(1, None, "r1"), replace(broken, deletion_after=deletion)), "r1", ())
        assert (move.old, move.tries, move.orphan) == (old, deletion.attempts, "r2")


def test_a_call_that_was_cancelled_moves_nothing_and_has_not_failed() -> None:
    [move] = _moves((failed(1, "r1", "cancelled"),), "r1", ())
    assert (move.why, move.after, move.old, move.detail) == (Why.CANCELLED, "r1", Old.STAYS, None)


def test_the_handle_of_a_call_of_unknown_outcome_may_still_be_gone_on_from() -> None:
    doubtful = replace(failed(1, None, ErrorClass.TIMED_OUT, "r1"), status=UNKNOWN)
    assert told(doubtful, handle=None) == [(Why.UNKNOWN, None, None, Old.STAYS)]


def test_an_answer_that_was_found_after_the_turn_has_been_caught_up() -> None:
    found = replace(step(1, None, "r1"), ended_at=400)
    assert told(found, step(2, "r1", "r2"), handle="r2")[0] == (Why.CAUGHT_UP, None, "r1", Old.NONE)


def test_a_conversation_that_an_unknown_call_has_made_is_gone_on_in() -> None:
    static = replace(THREAD, handle_kind=HandleKind.STATIC)
    made = replace(failed(1, None, ErrorClass.TIMED_OUT, "c"), status=UNKNOWN)
    assert told(made, step(2, "c", "c"), handle="c", epochs=(static,)) == [
        (Why.CAUGHT_UP, None, "c", Old.NONE),
        (Why.ANSWERED, "c", "c", Old.STAYS),
    ]


def test_a_turn_that_does_not_count_is_taken_back() -> None:
    assert told(step(1, None, "r1"), step(2, "r1", "r2"), step(3, "r1", "r3"), handle="r3") == [
        (Why.ANSWERED, None, "r1", Old.NONE),
        (Why.ANSWERED, "r1", "r2", Old.BEHIND),
        (Why.TAKEN_BACK, "r2", "r1", Old.DELETED),
        (Why.ANSWERED, "r1", "r3", Old.BEHIND),
    ]


def test_the_last_turn_is_taken_back_when_the_thread_stands_where_it_began() -> None:
    gone = replace(step(2, "r1", "r2"), deletion_after=QueuedDeletion(900, 1))
    assert told(step(1, None, "r1"), gone, handle="r1")[2:] == [(Why.TAKEN_BACK, "r2", "r1", Old.TO_DELETE)]


def test_a_try_from_an_earlier_handle_takes_nothing_back_unless_the_backend_accepts_it() -> None:
    first, refused = step(1, None, "r1"), failed(3, "r2", ErrorClass.REJECTED)
    trial = failed(3, "r1", ErrorClass.REJECTED, attempt=1)
    assert [why for why, *_ in told(first, step(2, "r1", "r2"), refused, trial, handle="r2")] == [
        Why.ANSWERED, Why.ANSWERED, Why.FAILED, Why.FAILED,
    ]  # fmt: skip
    accepted = step(3, "r1", "r3", attempt=1)
    assert told(first, step(2, "r1", "r2"), refused, accepted, handle="r3")[3:] == [
        (Why.TAKEN_BACK, "r2", "r1", Old.DELETED),
        (Why.ANSWERED, "r1", "r3", Old.BEHIND),
    ]


def test_a_lost_handle_is_told_again_in_the_next_epoch() -> None:
    lost = failed(2, "r1", ErrorClass.HANDLE_NOT_FOUND)
    again = replace(step(2, None, "r2", attempt=1), prepared_at=210)
    archive = replace(THREAD, id="old", archived=True, handle="r1")
    live = replace(THREAD, epoch=2, began_at=208, began_by="handle-not-found")
    assert told(step(1, None, "r1"), lost, again, handle="r2", epochs=(archive, live)) == [
        (Why.ANSWERED, None, "r1", Old.NONE),
        (Why.LOST, "r1", "r1", Old.GONE),
        (Why.TOLD_AGAIN, "r1", None, Old.GONE),
        (Why.ANSWERED, None, "r2", Old.NONE),
    ]


def test_a_handle_is_lost_once_however_many_calls_fail_for_it() -> None:
    lost = failed(2, "r1", ErrorClass.HANDLE_NOT_FOUND)
    later = failed(3, "r1", ErrorClass.HANDLE_EXPIRED)
    assert told(step(1, None, "r1"), lost, later, handle="r1")[1:] == [
        (Why.LOST, "r1", "r1", Old.GONE),
        (Why.FAILED, "r1", "r1", Old.GONE),
    ]


def test_an_epoch_whose_beginning_was_not_noted_is_known_by_the_handle_that_its_archive_has() -> None:
    archive = replace(THREAD, id="old", archived=True, handle="r1", began_at=None)
    live = replace(THREAD, epoch=2, began_at=None, began_by=None)
    found = told(step(1, None, "r1"), step(2, None, "r2"), handle="r2", epochs=(archive, live))
    assert found[1] == (Why.TOLD_AGAIN, "r1", None, Old.BEHIND)


def test_another_keeper_of_the_conversation_is_another_epoch() -> None:
    archive = replace(THREAD, id="old", archived=True, owner=StorageOwner.GATEWAY, handle_kind=HandleKind.NONE)
    live = replace(THREAD, epoch=2, began_at=103, began_by="adopted")
    assert told(step(1, None, None), step(2, "r1", "r2"), handle="r2", epochs=(archive, live))[1:] == [
        (Why.OWNER_CHANGED, None, "r1", Old.NONE),
        (Why.ANSWERED, "r1", "r2", Old.BEHIND),
    ]


def test_a_thread_that_was_adopted_begins_at_the_handle_of_its_backend() -> None:
    adopted = replace(THREAD, began_by="adopted")
    assert told(handle="theirs", epochs=(adopted,)) == [(Why.ADOPTED, None, "theirs", Old.NONE)]
    assert told(step(1, "theirs", "r1"), handle="r1", epochs=(adopted,))[0] == (
        Why.ADOPTED, None, "theirs", Old.NONE,
    )  # fmt: skip


def test_what_happened_between_two_pages_is_told_once() -> None:
    first, second, third = step(1, None, "r1"), step(2, "r1", "r2"), step(3, "r1", "r3")
    live = replace(THREAD, handle="r3")
    later = moves(HandleSteps(live, (live,), (third,), None, StepKey(3, 0, 0)))
    earlier = moves(HandleSteps(live, (live,), (second, first), third, None))
    assert [move.why for move in (*later, *earlier)] == [Why.ANSWERED, Why.TAKEN_BACK, Why.ANSWERED, Why.ANSWERED]
