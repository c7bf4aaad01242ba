"""When a worker that has ended is started again, and when nobody tries any more."""

from gateway.app.workers.deaths import Deaths

SOON, LONG = 1.0, 3600.0


def test_a_worker_that_served_for_long_is_started_at_once() -> None:
    deaths = Deaths(2)
    assert [deaths.wait(1, LONG, others_serve=True) for _ in range(20)] == [0.0] * 20


def test_one_that_ends_soon_again_waits_longer_each_time_up_to_a_bound() -> None:
    deaths = Deaths(2)
    waits = [deaths.wait(1, SOON, others_serve=True) for _ in range(10)]
    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_the_deaths_of_one_do_not_let_another_one_wait() -> None:
    deaths = Deaths(2)
    assert [deaths.wait(1, SOON, others_serve=True) for _ in range(2)] == [0.0, 0.5]
    assert deaths.wait(2, SOON, others_serve=True) == 0.0


def test_nobody_gives_up_while_another_one_serves() -> None:
    deaths = Deaths(1)
    assert None not in [deaths.wait(1, 0.0, others_serve=True) for _ in range(100)]


def test_five_deaths_of_each_are_the_end_where_none_serves() -> None:
    deaths = Deaths(2)
    waits = [deaths.wait(worker, SOON, others_serve=False) for _ in range(5) for worker in (1, 2)]
    assert waits[-1] is None
    assert None not in waits[:-1]


def test_a_worker_that_serves_for_a_while_clears_the_count() -> None:
    deaths = Deaths(1)
    for _ in range(4):
        deaths.wait(1, SOON, others_serve=False)
    assert deaths.wait(1, LONG, others_serve=False) == 0.0
    assert [deaths.wait(1, SOON, others_serve=False) for _ in range(3)] == [0.5, 1.0, 2.0]
