"""The table of safe texts."""

import pytest

from gateway import failures
from gateway.failures import safe_text
from gateway.ports import ErrorClass

OURS = (failures.RESTARTED, failures.TURN_TIMEOUT, failures.INTERNAL, failures.HANDLE_MISSING, failures.UNKNOWN_TOOL)


@pytest.mark.parametrize("failure", [*ErrorClass, *OURS])
def test_every_failure_has_one_sentence_and_the_correlation_id(failure: str) -> None:
    text = safe_text(failure, "c0ffee")
    assert text.endswith(" (correlation id c0ffee)")
    assert text[0].isupper()
    assert len(text) < 300


def test_no_two_failures_are_told_alike() -> None:
    texts = [safe_text(failure, "") for failure in [*ErrorClass, *OURS]]
    assert len(set(texts)) == len(texts)
