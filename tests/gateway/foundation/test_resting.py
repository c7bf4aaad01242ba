"""When a source that could not be reached is tried again, and by how many."""

from gateway.foundation.limits import Rest


class Moment:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_source_that_answers_is_never_left_alone() -> None:
    rest = Rest(Moment())
    assert (rest.holds(), rest.end(), rest.holds()) == (False, False, False)


def test_each_rest_is_twice_as_long_up_to_five_minutes_and_one_tries_behind_it() -> None:
    time = Moment()
    rest = Rest(time)
    lengths = []
    for _ in range(7):
        lengths.append(rest.begin())
        time.now += lengths[-1] - 1
        assert rest.holds()
        time.now += 1
        assert [rest.holds(), rest.holds()] == [False, True]
    assert lengths == [15, 30, 60, 120, 240, 300, 300]


def test_several_that_find_it_gone_at_once_begin_one_rest() -> None:
    rest = Rest(Moment())
    assert [rest.begin(), rest.begin(), rest.begin()] == [15, 15, 15]


def test_who_tries_and_never_comes_back_holds_up_nobody_for_ever() -> None:
    time = Moment()
    rest = Rest(time)
    rest.begin()
    time.now += 15
    assert not rest.holds()
    time.now += 15
    assert not rest.holds()


def test_a_source_that_is_back_starts_anew() -> None:
    time = Moment()
    rest = Rest(time)
    rest.begin()
    time.now += 15
    assert (rest.holds(), rest.end(), rest.end(), rest.holds()) == (False, True, False, False)
    assert rest.begin() == 15
