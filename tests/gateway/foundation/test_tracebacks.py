"""What an exception keeps alive after it was dealt with."""

import weakref
from dataclasses import dataclass

import pytest

from gateway.foundation.tracebacks import drop_tracebacks


class _Message:
    """An object that a frame refers to."""


def _failing() -> "tuple[BaseException, weakref.ref[_Message]]":
    """An error that a variable of its own frame refers to, as in HTTP clients."""
    message = _Message()
    known = weakref.ref(message)
    try:
        raise ValueError("no")
    except ValueError as error:
        return _led_to(error), known


def _led_to(first: ValueError) -> RuntimeError:
    try:
        raise RuntimeError("so") from first
    except RuntimeError as error:
        return error


def test_objects_of_an_error_and_its_cause_are_freed_without_the_collector() -> None:
    error, known = _failing()
    assert known() is not None
    drop_tracebacks(error)
    assert known() is None
    assert isinstance(error.__cause__, ValueError)


def test_errors_of_a_group_and_of_the_context_lose_their_tracebacks_too() -> None:
    before = KeyError("before")
    inner, _ = _failing()
    group = ExceptionGroup("both", [ValueError("x"), RuntimeError("y")])
    group.__context__ = before
    before.__context__ = inner
    group.exceptions[0].__cause__ = inner
    drop_tracebacks(group)
    assert inner.__traceback__ is None
    assert inner.__cause__ is not None
    assert inner.__cause__.__traceback__ is None


def test_errors_in_a_cycle_and_none_at_all_are_accepted() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__context__, other.__context__ = other, one
    drop_tracebacks(one)
    drop_tracebacks(None)


@dataclass(frozen=True)
class _Frozen(Exception):
    """An error that refuses assignments."""

    what: str


def test_an_error_that_refuses_assignments_loses_its_traceback_too() -> None:
    error = _Frozen("gone").with_traceback(_failing()[0].__traceback__)
    assert error.__traceback__ is not None
    drop_tracebacks(error)
    assert error.__traceback__ is None


def test_a_reraised_error_has_only_its_new_traceback() -> None:
    error, _ = _failing()
    drop_tracebacks(error)
    with pytest.raises(RuntimeError) as raised:
        raise error
    assert [entry.name for entry in raised.traceback] == ["test_a_reraised_error_has_only_its_new_traceback"]
