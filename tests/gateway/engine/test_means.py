"""What turns work with: leases from the moment on, and warnings that are given once."""

from gateway.engine.runtime import Pace, Runtime
from gateway.ledger.threads import ThreadRecord
from gateway.ports.conversation import HandleKind, StorageOwner
from tests.support.core import Core, Time


def means(core: Core, time: Time) -> Runtime:
    return Runtime(core.ledger, time.clock, "me", 2.5, Pace())


async def test_a_call_is_prepared_from_the_thread_as_it_is_with_a_lease_from_now_on(core: Core) -> None:
    time = Time()
    thread = ThreadRecord("t", "c", "a", 1, StorageOwner.BACKEND, HandleKind.ROTATING, "r1", 7, None)
    prepared = means(core, time).prepare(thread, "turn", "task", round_=2, attempt=1)
    assert (prepared.handle_in, prepared.generation, prepared.holder) == ("r1", 7, "me")
    assert (prepared.round, prepared.attempt, prepared.lease_until) == (2, 1, time.now + 2500)


async def test_an_operator_is_warned_of_a_thread_once(core: Core) -> None:
    known = means(core, Time())
    assert [known.first_warning(thread) for thread in ("a", "b", "a", "b")] == [True, True, False, False]


async def test_the_threads_that_were_warned_of_are_not_remembered_for_ever(core: Core) -> None:
    known = means(core, Time())
    for number in range(1001):
        assert known.first_warning(str(number))
    assert known.first_warning("0")
    assert not known.first_warning("1000")
