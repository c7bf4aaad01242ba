"""The turns that nobody works on. Law: silence tells nothing of who could not speak: as long as somebody has locked the
ledger, no lease can be renewed, and all of them run out."""

from collections.abc import Callable

import structlog

from gateway.commits.leases import Beat, UnfinishedTurn
from gateway.means import Means
from gateway.quarantine import Quarantine

log = structlog.get_logger("gateway.leftovers")

_ASKS_AGAIN = 0.2
_COMMITS = 20
"""Who waits for a locked database asks again every 0.1 s at least (SQLite's busy handler); when it is free, so many commits
of others may come before theirs, of which each takes as long as one of ours."""


class Leftovers:
    """As one process finds them. `own`: its turns that it works on; `beat`: what it says itself; `patience`: seconds in
    which a commit is no late one."""

    def __init__(
        self,
        means: Means,
        quarantine: Quarantine,
        own: Callable[[], set[str]],
        beat: Callable[[], Beat],
        patience: float,
    ) -> None:
        self._means = means
        self._quarantine = quarantine
        self._own = own
        self._beat = beat
        self._patience = patience

    async def to_try(self) -> list[UnfinishedTurn]:
        """The turns of a thread in their order; those of others only if these had the chance to say that they live.

        Raises: LedgerUnavailable.
        """
        clock, holder = self._means.clock, self._means.holder
        # Whose lease has run out by now. It may be set meanwhile, and tells nothing then.
        now = clock.now()
        left = self._quarantine.sift(await self._left(now))
        ours = [leftover for leftover in left if leftover.process == holder]
        if len(ours) == len(left):
            return left
        began = clock.monotonic()
        await self._means.ledger.commit(self._beat())
        took = clock.monotonic() - began
        if took > self._patience:
            log.warning("recovery.postponed", seconds=round(took, 1))
            return ours
        await self._means.pace.sleep(min(_ASKS_AGAIN + _COMMITS * took, self._patience))
        return self._quarantine.sift(await self._left(now))

    async def _left(self, now: int) -> list[UnfinishedTurn]:
        """A turn of this process that was at work then may have come to wait for its caller by now."""
        own = self._own()
        found = await self._means.ledger.unfinished(now, self._means.holder)
        own |= self._own()
        return [leftover for leftover in found if leftover.turn not in own]
