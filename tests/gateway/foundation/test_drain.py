"""The drain calls every callback once, also those added after it began."""

from gateway.foundation.drain import Drain


def test_every_callback_is_called() -> None:
    drain, told = Drain(), []
    with drain.on_set(lambda: told.append("a")), drain.on_set(lambda: told.append("b")):
        assert told == []
        drain.set()
    assert sorted(told) == ["a", "b"]
    assert drain.is_set()


def test_a_late_callback_is_called_at_once() -> None:
    drain, told = Drain(), []
    drain.set()
    with drain.on_set(lambda: told.append("late")):
        assert told == ["late"]


def test_a_callback_is_not_called_after_its_block() -> None:
    drain, told = Drain(), []
    with drain.on_set(lambda: told.append("gone")):
        pass
    drain.set()
    assert told == []


def test_a_callback_that_ends_another_block_does_not_disturb_the_others() -> None:
    drain, told = Drain(), []
    with drain.on_set(lambda: told.append("stays")):

        def leave() -> None:
            told.append("leaves")
            leaving.__exit__(None, None, None)

        leaving = drain.on_set(leave)
        leaving.__enter__()
        drain.set()
    assert sorted(told) == ["leaves", "stays"]
