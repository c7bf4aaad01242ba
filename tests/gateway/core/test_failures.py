"""The table of safe texts."""

import pytest

from gateway.core import failures
from gateway.core.failures import cause, safe_text
from gateway.ledger.calls import RESTARTED
from gateway.ports.adapter import ErrorClass

OURS = (RESTARTED, failures.TURN_TIMEOUT, failures.INTERNAL, failures.HANDLE_MISSING, failures.UNKNOWN_TOOL)


@pytest.mark.parametrize("failure", [*ErrorClass, *OURS])
def test_every_failure_has_one_sentence_and_the_correlation_id(failure: str) -> None:
    text = safe_text(failure, "c0ffee")
    assert text.endswith(" (correlation id c0ffee)")
    assert text[0].isupper()
    assert len(text) < 300


@pytest.mark.parametrize("failure", [*ErrorClass, *OURS])
def test_operators_are_told_the_cause_in_a_sentence_without_advice(failure: str) -> None:
    text = cause(failure)
    assert text.endswith(".")
    assert not text.endswith("..")
    assert text.count(";") == 0
    assert len(text) < 120


def test_a_failure_that_is_not_known_has_no_sentence() -> None:
    assert cause("of-a-later-version") == ""


def test_no_two_failures_have_the_same_text() -> None:
    texts = [safe_text(failure, "") for failure in [*ErrorClass, *OURS]]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("failure", list(ErrorClass))
def test_a_failure_that_lasts_is_told_with_the_time(failure: str) -> None:
    plain, text = safe_text(failure, "c0ffee"), safe_text(failure, "c0ffee", 23)
    assert text == plain.replace(" (", " It can be asked again in 23 s. (")
    assert len(text) < 300
