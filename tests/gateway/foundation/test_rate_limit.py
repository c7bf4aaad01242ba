"""Token buckets."""

from gateway.foundation.rate_limit import TokenBuckets


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_full_bucket_empties_and_fills_again_with_time() -> None:
    time = Time()
    buckets = TokenBuckets(3, 0.5, time)
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 2]
    time.now = 1
    assert buckets.take("a") == 1
    time.now = 2
    assert [buckets.take("a"), buckets.take("a")] == [0, 2]
    time.now = 1000
    assert [buckets.take("a") for _ in range(4)] == [0, 0, 0, 2]


def test_each_key_has_a_bucket_of_its_own() -> None:
    buckets = TokenBuckets(1, 1, Time())
    assert [buckets.take("a"), buckets.take("b"), buckets.take("a")] == [0, 0, 1]


def test_what_is_charged_beyond_what_there_is_is_owed() -> None:
    time = Time()
    buckets = TokenBuckets(3, 0.5, time)
    assert buckets.is_full("a")
    buckets.charge("a", 2)
    assert not buckets.is_full("a")
    assert [buckets.take("a"), buckets.take("a")] == [0, 2]
    buckets.charge("a", 4)
    assert buckets.take("a") == 10
    time.now = 14
    assert buckets.is_full("a")
    buckets.charge("a", 3)
    assert buckets.take("a") == 2


def test_full_buckets_are_dropped_and_memory_stays_bounded() -> None:
    time = Time()
    buckets = TokenBuckets(1, 1, time)
    for number in range(10_000):
        buckets.take(number)
    time.now = 0.5
    buckets.take("latest")
    assert len(buckets._levels) == 10_000
    assert buckets.take("latest") == 1
    time.now = 2
    buckets.take("another")
    assert len(buckets._levels) <= 10_000
    for number in range(10_000):
        buckets.take(number)
    assert len(buckets._levels) <= 10_000
