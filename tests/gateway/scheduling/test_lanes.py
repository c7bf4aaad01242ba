from gateway.engine.turn_run import TurnRun
from gateway.ledger.threads import ThreadRecord
from gateway.ports.conversation import HandleKind, StorageOwner
from gateway.scheduling.queues import ThreadQueue, ThreadQueues


def lane(thread: str) -> ThreadQueue:
    record = ThreadRecord(thread, "c", "echo", 1, StorageOwner.GATEWAY, HandleKind.NONE, None, 0, None)
    return ThreadQueue(record, current=True)


def test_new_turns_go_into_the_first_lane_of_a_thread() -> None:
    lanes = ThreadQueues()
    assert lanes.first("a") is None
    first, beside, other = (lanes.add(lane(name)) for name in "aab")
    assert lanes.first("a") is first
    assert lanes.of("a") == (first, beside)
    assert lanes.of("c") == ()
    assert list(lanes) == [first, beside, other]
    assert lanes.threads == ("a", "b")


def test_a_thread_is_forgotten_with_its_last_lane() -> None:
    lanes = ThreadQueues()
    first, beside = (lanes.add(lane("a")) for _ in range(2))
    assert lanes.remove(first) is False
    assert lanes.first("a") is beside
    assert lanes.remove(beside) is True
    assert "a" not in lanes
    assert lanes.threads == ()


def test_a_lane_keeps_the_lease_for_the_turn_of_another_one_that_needs_it() -> None:
    lanes = ThreadQueues()
    waits, runs = (lanes.add(lane("a")) for _ in range(2))
    assert waits.may_release
    runs.leased = True
    assert waits.may_release
    runs.running = object.__new__(TurnRun)
    assert not waits.may_release
    assert runs.may_release
