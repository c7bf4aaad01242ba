"""The end is told once to all who listen, also to those who come after it."""

from gateway.foundation.drain import Drain


def test_all_who_listen_are_told() -> None:
    drain, told = Drain(), []
    with drain.on_set(lambda: told.append("a")), drain.on_set(lambda: told.append("b")):
        assert told == []
        drain.set()
    assert sorted(told) == ["a", "b"]
    assert drain.is_set()


def test_who_comes_late_is_told_at_once() -> None:
    drain, told = Drain(), []
    drain.set()
    with drain.on_set(lambda: told.append("late")):
        assert told == ["late"]


def test_who_has_left_is_not_told() -> None:
    drain, told = Drain(), []
    with drain.on_set(lambda: told.append("gone")):
        pass
    drain.set()
    assert told == []


def test_who_leaves_while_told_does_not_disturb_the_others() -> None:
    drain, told = Drain(), []
    with drain.on_set(lambda: told.append("stays")):

        def leave() -> None:
            told.append("leaves")
            leaving.__exit__(None, None, None)

        leaving = drain.on_set(leave)
        leaving.__enter__()
        drain.set()
    assert sorted(told) == ["leaves", "stays"]
