"""The meaning of error classes."""

from gateway.ports.adapter import HANDLE_LOST, MEANINGS, NOT_PROCESSED, AdapterError, ErrorClass, Processed


def test_every_error_class_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ErrorClass)


def test_a_request_of_which_the_backend_has_nothing() -> None:
    after = {ErrorClass.TIMED_OUT, ErrorClass.INTERRUPTED, ErrorClass.UNKNOWN}
    over = {ErrorClass.BACKEND_FAILED, ErrorClass.CONTRACT_BROKEN}
    assert {kind for kind in ErrorClass if kind.meaning.processed is Processed.MAYBE} == after
    assert {kind for kind in ErrorClass if kind.meaning.processed is Processed.YES} == over
    assert set(ErrorClass) - after - over == NOT_PROCESSED


def test_a_lost_handle_is_never_transient() -> None:
    assert {ErrorClass.HANDLE_NOT_FOUND, ErrorClass.HANDLE_EXPIRED} == HANDLE_LOST
    assert not any(MEANINGS[kind].transient for kind in HANDLE_LOST)


def test_only_what_is_not_transient_is_conclusive() -> None:
    assert not any(kind.meaning.transient and kind.meaning.conclusive for kind in ErrorClass)


def test_a_failure_that_means_something_else_says_all_that_it_said() -> None:
    more = {"retry_after": 7.0, "backend_down": True, "stale_connection": True, "usage": {"input": 1}}
    error = AdapterError(ErrorClass.BACKEND_FAILED, "why", **more)  # type: ignore[arg-type]
    assert vars(error.as_kind(ErrorClass.INTERRUPTED)) == {"kind": ErrorClass.INTERRUPTED, "detail": "why", **more}
