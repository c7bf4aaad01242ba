"""What is under way, as a gauge reads it."""

from gateway.engine.under_way import UnderWay


class Time:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_what_has_begun_counts_until_it_ends() -> None:
    calls = UnderWay(Time().monotonic)
    first, _, other = calls.begin("a"), calls.begin("a"), calls.begin("b")
    assert dict(calls.numbers()) == {("a",): 2, ("b",): 1}
    calls.end(first)
    calls.end(other)
    assert dict(calls.numbers()) == {("a",): 1}


def test_of_each_name_the_one_is_told_that_is_silent_longest() -> None:
    time = Time()
    calls = UnderWay(time.monotonic)
    first = calls.begin("a")
    time.now = 3.0
    second = calls.begin("a")
    calls.begin("b")
    time.now = 5.0
    assert dict(calls.longest()) == {("a",): 5.0, ("b",): 2.0}
    first.heard()
    assert dict(calls.longest()) == {("a",): 2.0, ("b",): 2.0}
    calls.end(second)
    assert dict(calls.longest()) == {("a",): 0.0, ("b",): 2.0}


def test_each_one_of_a_name_is_told_with_its_silence() -> None:
    time = Time()
    calls = UnderWay(time.monotonic)
    calls.begin("a")
    time.now = 3.0
    calls.begin("a")
    calls.begin("b")
    time.now = 5.0
    assert (sorted(calls.silences("a")), calls.silences("c")) == ([2.0, 5.0], ())


def test_nothing_is_told_of_what_is_not_there() -> None:
    calls = UnderWay(Time().monotonic)
    calls.end(calls.begin("a"))
    assert (dict(calls.numbers()), dict(calls.longest())) == ({}, {})
