"""The queues of a thread: which gets new turns, and which may give the lease back."""

from gateway.engine.turn_run import ThreadQueue, TurnRun
from gateway.ledger.threads import ThreadRecord
from gateway.ports.conversation import HandleKind, StorageOwner
from gateway.scheduling.leases import ThreadQueues


def queue(thread: str) -> ThreadQueue:
    record = ThreadRecord(thread, "c", "echo", 1, StorageOwner.GATEWAY, HandleKind.NONE, None, 0, None)
    return ThreadQueue(record, current=True)


def test_new_turns_go_into_the_first_queue_of_a_thread() -> None:
    queues = ThreadQueues()
    assert queues.first("a") is None
    first, sibling, other = (queues.add(queue(name)) for name in "aab")
    assert queues.first("a") is first
    assert queues.of("a") == (first, sibling)
    assert queues.of("c") == ()
    assert list(queues) == [first, sibling, other]
    assert queues.threads == ("a", "b")


def test_a_thread_is_forgotten_with_its_last_queue() -> None:
    queues = ThreadQueues()
    first, sibling = (queues.add(queue("a")) for _ in range(2))
    assert queues.remove(first) is False
    assert queues.first("a") is sibling
    assert queues.remove(sibling) is True
    assert queues.first("a") is None
    assert queues.threads == ()


def test_a_queue_keeps_the_lease_for_a_turn_of_a_sibling_that_needs_it() -> None:
    queues = ThreadQueues()
    waits, runs = (queues.add(queue("a")) for _ in range(2))
    assert waits.may_release
    runs.leased = True
    assert waits.may_release
    runs.running = object.__new__(TurnRun)
    assert not waits.may_release
    assert runs.may_release
