"""The part of the conformance suite on what processes on one database share: its time. Law: it knows no store."""

from gateway.ledger.port import Ledger
from gateway.testing.checks import require, time_limit
from gateway.testing.ledger_points import ACCEPT

_APART = 1000
"""Milliseconds by which two processes may differ: less than the shortest lease."""


class SharingTests:
    """A part of `LedgerSuite`."""

    # --- time

    async def test_two_processes_have_the_same_time(self, ledger: Ledger, other: Ledger) -> None:
        await ledger.commit(ACCEPT)
        for one, two in ((ledger, other), (other, ledger)):
            before, between, after = one.now(), two.now(), one.now()
            same_time = before - _APART <= between <= after + _APART
            require(same_time, f"the processes have the times {before}, {between} and {after}")

    async def test_the_time_goes_on_between_two_commits(self, ledger: Ledger) -> None:
        began = ledger.now()
        async with time_limit("a later time"):
            while ledger.now() <= began:
                await ledger.thread("thread-1")
