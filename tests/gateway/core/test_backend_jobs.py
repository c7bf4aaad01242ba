"""The times of attempts at backends."""

import pytest

from gateway.core.backend_jobs import RETRIES, claimed_until, is_under_way, next_attempt

NOW = 1_795_168_800_000


def test_a_claim_is_under_way_until_its_end() -> None:
    until = claimed_until(NOW)
    assert [is_under_way(until, now) for now in (NOW, until - 1, until)] == [True, True, False]


@pytest.mark.parametrize("attempts", range(1, len(RETRIES) + 1))
@pytest.mark.parametrize("chance", [0.0, 1.0])
def test_an_attempt_that_has_failed_is_not_under_way(attempts: int, chance: float) -> None:
    due_at = next_attempt(attempts, NOW, chance)
    assert not is_under_way(due_at, NOW)
    assert 0 <= due_at - NOW - RETRIES[attempts - 1] * 1000 <= RETRIES[attempts - 1] * 200


def test_what_is_due_is_not_under_way() -> None:
    assert not is_under_way(NOW, NOW)
