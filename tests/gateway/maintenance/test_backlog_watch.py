"""What the ledger owes, as whoever watches the process sees it."""

from collections.abc import Iterable

from gateway.ledger.backlog import Backlog, Sizes
from gateway.ledger.errors import LedgerUnavailable
from gateway.maintenance.backlog_watch import BacklogWatch
from gateway.ports.observer import Labels, Observer, Reading


class Seen(Observer):
    def __init__(self) -> None:
        self._readings: dict[str, Reading] = {}

    def watch(self, name: str, help: str, read: Reading, *labels: str) -> None:  # noqa: A002
        self._readings[name] = read

    def values(self, name: str) -> Iterable[tuple[Labels, float]]:
        return list(self._readings[name]())


class Ledger:
    away = False

    async def backlog(self) -> Backlog:
        if self.away:
            raise LedgerUnavailable("the disk is gone")
        return Backlog(3, 1, 4, 2, 5)

    async def sizes(self) -> Sizes:
        return {"database": 4096, "wal": 8}


async def test_what_is_owed_is_as_it_was_at_the_latest_look() -> None:
    seen, watch = Seen(), BacklogWatch(Ledger())
    watch.shown_to(seen)
    assert seen.values("deletions_due") == []
    await watch.look()
    assert seen.values("ledger_up") == [((), 1.0)]
    assert seen.values("ledger_bytes") == [(("database",), 4096), (("wal",), 8)]
    assert seen.values("deletions_due") == [(("due",), 3), (("given_up",), 1)]
    assert (seen.values("pushes_owed"), seen.values("push_receivers_failing")) == ([((), 4)], [((), 2)])


async def test_a_ledger_that_does_not_answer_is_down_and_owes_nothing_that_is_known() -> None:
    ledger, seen = Ledger(), Seen()
    watch = BacklogWatch(ledger)
    watch.shown_to(seen)
    await watch.look()
    ledger.away = True
    await watch.look()
    assert seen.values("ledger_up") == [((), 0.0)]
    assert seen.values("pushes_owed") == seen.values("deletions_due") == []
