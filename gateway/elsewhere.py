"""What is asked of the other processes on the same database. Law: asking is a mark in a row, which survives everybody; an
answer is what the row says afterwards."""

import asyncio
from collections.abc import Callable

from gateway.commits.leases import AskCancel
from gateway.commits.tasks import OpenTurn
from gateway.ledger_port import Ledger
from gateway.watching import INTERVAL


class Elsewhere:
    """`patience`: seconds in which a process that lives answers, and one that does not is found dead."""

    def __init__(self, ledger: Ledger, patience: float) -> None:
        self._ledger = ledger
        self._patience = patience

    async def cancel(self, context: str, chosen: Callable[[OpenTurn], bool]) -> bool:
        """Asks for the end of the chosen turns of a context (its row); True when they have ended, one way or another."""
        turns = {turn.turn for turn in await self._ledger.open_turns(context) if chosen(turn)}
        if not turns:
            return True
        await self._ledger.commit(AskCancel(tuple(sorted(turns))))
        try:
            async with asyncio.timeout(self._patience):
                # There is no event: who ends them is another process.
                while turns & {turn.turn for turn in await self._ledger.open_turns(context) if chosen(turn)}:  # noqa: ASYNC110
                    await asyncio.sleep(INTERVAL)
        except TimeoutError:
            return False
        return True
