"""Limits of one principal: requests, streams, turns."""

import pytest

from gateway.a2a.errors import TooManyRequests
from gateway.foundation.clock import Clock
from gateway.ledger.threads import Caller
from gateway.operations.quotas import QuotaLimits, Quotas

ADA, BOB, OTHER = Caller("ada"), Caller("bob"), Caller("ada", "acme")


def test_without_limits_nothing_is_counted() -> None:
    quotas = Quotas(Clock())
    for _ in range(1000):
        quotas.request(ADA)
        quotas.runs.take(ADA)
        quotas.streams.take(ADA).release()


def test_requests_come_back_with_time_and_are_counted_for_each_principal() -> None:
    seconds = [0.0]
    quotas = Quotas(Clock(monotonic=lambda: seconds[0]), QuotaLimits(requests_per_minute=2))
    quotas.request(ADA)
    quotas.request(ADA)
    with pytest.raises(TooManyRequests, match="2 requests in a minute") as refused:
        quotas.request(ADA)
    assert refused.value.retry_after == 30
    quotas.request(BOB)
    quotas.request(OTHER)
    seconds[0] = 30.0
    quotas.request(ADA)


def test_a_slot_is_released_once_however_often_it_is_given_back() -> None:
    quotas = Quotas(Clock(), QuotaLimits(streams=2))
    one, _ = quotas.streams.take(ADA), quotas.streams.take(ADA)
    with pytest.raises(TooManyRequests, match="2 open streams"):
        quotas.streams.take(ADA)
    quotas.streams.take(BOB)
    quotas.runs.take(ADA)
    one.release()
    one.release()
    quotas.streams.take(ADA)
    with pytest.raises(TooManyRequests):
        quotas.streams.take(ADA)


def test_a_new_limit_holds_from_now_on() -> None:
    quotas = Quotas(Clock(), QuotaLimits(requests_per_minute=1))
    quotas.request(ADA)
    quotas.limit(QuotaLimits(requests_per_minute=1, runs=1))
    with pytest.raises(TooManyRequests):
        quotas.request(ADA)
    quotas.runs.take(ADA)
    with pytest.raises(TooManyRequests):
        quotas.runs.take(ADA)
    quotas.limit(QuotaLimits())
    quotas.request(ADA)
    quotas.runs.take(ADA)
