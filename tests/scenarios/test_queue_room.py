"""How many messages may wait in a context. Source: docs/state-model.md, scenario 133."""

from collections.abc import Callable
from typing import Any

from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.turns import Accept
from tests.support.core import Core, soon
from tests.support.scripted import G, Pause, ScriptedAdapter, says


class Counting:
    """Looks how many turns wait in a thread at the moment when a message of it has been stored."""

    def __init__(self, ledger: Ledger, core: Core) -> None:
        self._ledger = ledger
        self._core = core
        self.found: list[int] = []

    def submit(self, points: tuple[CommitPoint, ...], done: Callable[[Exception | None], None]) -> None:
        def stored(error: Exception | None) -> None:
            done(error)
            for point in points:
                if isinstance(point, Accept):
                    self.found.append(self._core.runner.queued(point.thread.id))

        self._ledger.submit(points, stored)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)


async def test_133_a_message_that_has_just_been_stored_takes_one_place(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(G, [pause, *says("a")], otherwise=lambda _: says("b")))
    counting: list[Counting] = []

    def count(ledger: Ledger) -> Counting:
        counting.append(Counting(ledger, core))
        return counting[0]

    core.ledger.wrap(count)
    for text in "123":
        await core.send(text, context="c", at_once=True)
    pause.go.set()
    await soon(core.runner.idle())
    assert counting[0].found == [1, 2, 3]
