"""Waits before a retry; a breaker over a clock of the test: when it opens, which request is the trial, that it closes again."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from gateway.foundation.retry import (
    COOLDOWN,
    FAILURES,
    ORDINARY,
    WINDOW,
    Breaker,
    Outage,
    backoff,
    parse_retry_after,
    scheduled,
)

NOW = 1_795_168_800_000  # Fri, 20 Nov 2026 10:00:00 GMT


def test_each_wait_is_twice_as_long_up_to_the_longest() -> None:
    assert [backoff(0.5, 4.0, tries) for tries in range(1, 7)] == [0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    assert backoff(0.5, 4.0, 10_000) == 4.0


def test_jitter_takes_off_up_to_half() -> None:
    assert [backoff(2.0, 8.0, 2, jitter) for jitter in (0.0, 0.5, 1.0)] == [2.0, 3.0, 4.0]


def test_the_last_entry_of_a_table_repeats() -> None:
    assert [scheduled((5, 60, 600), tries, 0.0) for tries in (1, 2, 3, 4, 9)] == [5, 60, 600, 600, 600]
    assert scheduled((5, 60), 2, 0.25) == 75


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("0", 0.0),
        (" 2 ", 2.0),
        ("1.5", 1.5),
        ("9" * 400, 999_999_999.0),
        ("Fri, 20 Nov 2026 10:01:00 GMT", 60.0),
        ("Fri, 20 Nov 2026 10:01:00 -0000", 60.0),
        ("Fri, 20 Nov 2026 09:00:00 GMT", 0.0),
        ("soon", None),
        ("Fri, 20 Nov 99999 10:00:00 GMT", None),
        ("Fri, 20 Nov 99999999999999999999 10:00:00 GMT", None),
        ("Fri, 20 Nov 2026 10:01:00 +9999999999999999999999", None),
        ("Fri, 20 Nov 2026 99999999999999999999:00:00 GMT", None),
        ("Fri, 31 Dec 9999 23:59:59 -2359", 251_607_218_339.0),
        ("-5", None),
        ("", None),
    ],
)
def test_retry_after_is_a_number_of_seconds_or_a_date(value: str, seconds: float | None) -> None:
    assert parse_retry_after({"Retry-After": value}, NOW) == seconds


def test_a_date_counts_from_the_date_of_its_own_response() -> None:
    headers = {"Retry-After": "Mon, 20 Nov 2028 10:00:30 GMT", "Date": "Mon, 20 Nov 2028 10:00:00 GMT"}
    assert parse_retry_after(headers, NOW) == 30.0


def test_without_the_header_there_is_no_wait() -> None:
    assert parse_retry_after({}, NOW) is None


class Hand:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


def down(hand: Hand) -> Breaker:
    """A breaker that has just opened."""
    breaker = Breaker(hand)
    opened = [breaker.failed(ORDINARY) for _ in range(FAILURES)]
    assert opened == [False] * (FAILURES - 1) + [True]
    return breaker


def test_enough_failures_in_a_row_refuse_every_request_for_the_cooldown() -> None:
    hand = Hand()
    breaker = down(hand)
    hand.seconds += COOLDOWN - 0.5
    assert (breaker.admit(), breaker.refuses, breaker.rest) == (None, True, 0.5)
    hand.seconds += 0.5
    assert (breaker.refuses, breaker.rest) == (False, 0.0)
    assert breaker.admit() == 1


def test_one_failure_fewer_changes_nothing() -> None:
    breaker = Breaker(Hand())
    assert not any(breaker.failed(ORDINARY) for _ in range(FAILURES - 1))
    assert (breaker.admit(), breaker.refuses, breaker.rest) == (ORDINARY, False, 0.0)


def test_failures_further_apart_than_the_window_do_not_add_up() -> None:
    hand = Hand()
    breaker = Breaker(hand)
    for _ in range(3 * FAILURES):
        assert not breaker.failed(ORDINARY)
        hand.seconds += WINDOW / (FAILURES - 1) + 0.1


def test_the_last_failures_count_when_they_are_within_the_window() -> None:
    hand = Hand()
    breaker = Breaker(hand)
    for _ in range(FAILURES - 1):
        breaker.failed(ORDINARY)
    hand.seconds += WINDOW + 1
    assert [breaker.failed(ORDINARY) for _ in range(FAILURES)] == [False] * (FAILURES - 1) + [True]


def test_an_answer_clears_earlier_failures() -> None:
    breaker = Breaker(Hand())
    for _ in range(3):
        for _ in range(FAILURES - 1):
            assert not breaker.failed(ORDINARY)
        assert not breaker.answered()


def test_during_a_trial_all_other_requests_are_refused() -> None:
    hand = Hand()
    breaker = down(hand)
    hand.seconds += COOLDOWN
    trial = breaker.admit()
    hand.seconds += 10 * COOLDOWN
    assert (trial, breaker.admit(), breaker.refuses, breaker.rest) == (1, None, True, 0.0)


def test_an_answered_trial_admits_every_request() -> None:
    hand = Hand()
    breaker = down(hand)
    hand.seconds += COOLDOWN
    breaker.admit()
    assert breaker.answered()
    assert [breaker.admit() for _ in range(3)] == [ORDINARY] * 3
    assert not breaker.failed(ORDINARY)


def test_a_failed_trial_begins_another_cooldown() -> None:
    hand = Hand()
    breaker = down(hand)
    hand.seconds += COOLDOWN
    trial = breaker.admit()
    assert trial is not None
    assert breaker.failed(trial)
    assert (breaker.admit(), breaker.rest) == (None, COOLDOWN)


def test_after_an_abandoned_trial_the_next_request_is_a_trial() -> None:
    hand = Hand()
    breaker = down(hand)
    hand.seconds += COOLDOWN
    trial = breaker.admit()
    assert trial is not None
    breaker.left(trial)
    assert breaker.admit() == trial + 1


def test_failures_of_earlier_requests_do_not_prolong_the_cooldown() -> None:
    hand = Hand()
    breaker = down(hand)
    hand.seconds += COOLDOWN - 1
    assert not breaker.failed(ORDINARY)
    assert breaker.rest == 1
    hand.seconds += 1
    trial = breaker.admit()
    assert not breaker.failed(ORDINARY)
    breaker.left(ORDINARY)
    assert (trial, breaker.admit()) == (1, None)


def test_an_answer_to_an_earlier_request_closes_the_breaker() -> None:
    breaker = down(Hand())
    assert breaker.answered()
    assert breaker.admit() == ORDINARY


def test_an_old_trial_does_not_end_a_new_trial() -> None:
    hand = Hand()
    breaker = down(hand)
    hand.seconds += COOLDOWN
    old = breaker.admit()
    breaker.answered()
    for _ in range(FAILURES):
        breaker.failed(ORDINARY)
    hand.seconds += COOLDOWN
    new = breaker.admit()
    assert old is not None
    assert (old, new) == (1, 2)
    breaker.left(old)
    assert not breaker.failed(old)
    assert breaker.admit() is None


def sensitive(hand: Hand) -> Breaker:
    """A breaker that one failure opens, and whose cooldown grows."""
    return Breaker(hand, failures=1, cooldown=15.0, longest=300.0)


def test_a_target_that_answers_is_always_admitted() -> None:
    breaker = sensitive(Hand())
    assert (breaker.admit(), breaker.answered(), breaker.admit()) == (ORDINARY, False, ORDINARY)


def test_each_cooldown_is_twice_as_long_up_to_the_longest_and_one_trial_follows_it() -> None:
    hand, number = Hand(), ORDINARY
    breaker, lengths = sensitive(hand), []
    for trial in range(1, 8):
        assert breaker.failed(number)
        lengths.append(breaker.rest)
        hand.seconds += breaker.rest - 1
        assert breaker.admit() is None
        hand.seconds += 1
        assert (breaker.admit(), breaker.admit()) == (trial, None)
        number = trial
    assert lengths == [15, 30, 60, 120, 240, 300, 300]


def test_several_failures_at_once_begin_one_cooldown() -> None:
    breaker = sensitive(Hand())
    assert [(breaker.failed(ORDINARY), breaker.rest) for _ in range(3)] == [(True, 15), (False, 15), (False, 15)]


def test_an_abandoned_trial_does_not_lengthen_the_cooldown() -> None:
    hand = Hand()
    breaker = sensitive(hand)
    breaker.failed(ORDINARY)
    hand.seconds += 15
    given_up = breaker.admit()
    assert given_up == 1
    breaker.left(given_up)
    assert breaker.admit() == 2
    assert breaker.failed(2)
    assert breaker.rest == 30


def test_after_an_answer_the_first_cooldown_is_short_again() -> None:
    hand = Hand()
    breaker = sensitive(hand)
    breaker.failed(ORDINARY)
    hand.seconds += 15
    trial = breaker.admit()
    assert trial is not None
    breaker.failed(trial)
    assert (breaker.answered(), breaker.answered(), breaker.admit()) == (True, False, ORDINARY)
    assert (breaker.failed(ORDINARY), breaker.rest) == (True, 15)


class AnyOrder(RuleBasedStateMachine):
    """Requests that begin and end in any order, at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.hand = Hand()
        self.breaker = Breaker(self.hand)
        self.under_way: list[int] = []
        self.trials: list[int] = []
        self.failures: list[float] = []
        self.opened: float | None = None

    @initialize(failures=st.integers(0, FAILURES))
    def begins(self, failures: int) -> None:
        for _ in range(failures):
            self.asks()
            self.fails(0)

    @rule(seconds=st.sampled_from([0.0, 1.0, WINDOW / 4, COOLDOWN - 1, COOLDOWN, WINDOW + 1]))
    def passes(self, seconds: float) -> None:
        self.hand.seconds += seconds

    @rule()
    def asks(self) -> None:
        number = self.breaker.admit()
        if self.opened is None:
            assert number == ORDINARY
        elif self.hand.seconds < self.opened + COOLDOWN or self.trials:
            assert number is None
        else:
            assert number is not None
            assert number > ORDINARY
            self.trials.append(number)
        if number is not None:
            self.under_way.append(number)

    @precondition(lambda self: self.under_way)
    @rule(index=st.integers(0, 20))
    def is_answered(self, index: int) -> None:
        self._end(index)
        assert self.breaker.answered() is (self.opened is not None)
        self.failures, self.opened, self.trials = [], None, []

    @precondition(lambda self: self.under_way)
    @rule(index=st.integers(0, 20))
    def fails(self, index: int) -> None:
        number, now = self._end(index), self.hand.seconds
        opens = False
        if self.opened is None:
            self.failures.append(now)
            opens = sum(now - at <= WINDOW for at in self.failures) >= FAILURES
        elif number in self.trials:
            opens = True
        assert self.breaker.failed(number) is opens
        if opens:
            self.failures, self.opened, self.trials = [], now, []

    @precondition(lambda self: self.under_way)
    @rule(index=st.integers(0, 20))
    def is_left(self, index: int) -> None:
        number = self._end(index)
        self.breaker.left(number)
        if number in self.trials:
            self.trials.remove(number)

    @invariant()
    def at_most_one_tries(self) -> None:
        assert len(self.trials) <= 1

    @invariant()
    def it_says_what_it_would_do(self) -> None:
        resting = self.opened is not None and self.hand.seconds < self.opened + COOLDOWN
        assert self.breaker.refuses is (resting or bool(self.trials))
        assert (self.breaker.rest > 0) is resting

    def teardown(self) -> None:
        """Once all requests have ended and the time has passed, a request is admitted, whatever happened."""
        while self.under_way:
            self.is_left(0)
        self.hand.seconds += COOLDOWN
        assert self.breaker.admit() is not None

    def _end(self, index: int) -> int:
        return self.under_way.pop(index % len(self.under_way))


TestAnyOrder = AnyOrder.TestCase


def test_an_outage_lasts_from_its_first_failure_to_an_answer() -> None:
    hand = Hand()
    breaker = Breaker(hand)
    assert breaker.outage is None
    for _ in range(FAILURES):
        breaker.failed(ORDINARY)
        hand.seconds += 1
    assert breaker.outage == Outage(lasted=5.0, rest=int(COOLDOWN) - 1)
    hand.seconds += COOLDOWN
    assert breaker.outage == Outage(lasted=5.0 + COOLDOWN, rest=0)
    number = breaker.admit()
    assert number is not None
    breaker.failed(number)
    assert breaker.outage == Outage(lasted=5.0 + COOLDOWN, rest=int(COOLDOWN))
    breaker.answered()
    assert breaker.outage is None
