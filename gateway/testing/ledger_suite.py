"""The conformance suite of the ledger port: a subclass tests a store. Law: it knows no store.

Needs pytest and pytest-asyncio with `asyncio_mode = "auto"`. The page `docs/ledgers.md` shows an example.
"""

from collections.abc import AsyncGenerator

import pytest

from gateway.ledger.port import Ledger
from gateway.testing.ledger_admin import AdminContextTests
from gateway.testing.ledger_admin_tasks import AdminTaskTests, AdminUpkeepTests
from gateway.testing.ledger_commits import CommitTests
from gateway.testing.ledger_history import HistoryTests
from gateway.testing.ledger_lifetime import LifetimeTests
from gateway.testing.ledger_points import Opener
from gateway.testing.ledger_push import PushTests
from gateway.testing.ledger_races import RaceTests
from gateway.testing.ledger_reads import TaskReadTests
from gateway.testing.ledger_refusals import RefusalTests
from gateway.testing.ledger_sharing import SharingTests
from gateway.testing.ledger_traces import TraceTests
from gateway.testing.ledger_waiting import WaitingTests


class LedgerSuite(
    RefusalTests,
    CommitTests,
    RaceTests,
    SharingTests,
    TaskReadTests,
    HistoryTests,
    WaitingTests,
    LifetimeTests,
    PushTests,
    AdminContextTests,
    AdminTaskTests,
    AdminUpkeepTests,
    TraceTests,
):
    """Subclass it as `class TestMine(LedgerSuite)`, with a fixture `opener`."""

    @pytest.fixture
    def opener(self) -> Opener:
        """Opens an empty database that no other test uses. It is called several times: after one another, and for several
        processes at once."""
        raise NotImplementedError("give your test class a fixture `opener`")

    @pytest.fixture
    async def ledger(self, opener: Opener) -> AsyncGenerator[Ledger, None]:
        async with opener() as ledger:
            yield ledger

    @pytest.fixture
    async def other(self, opener: Opener, ledger: Ledger) -> AsyncGenerator[Ledger, None]:
        """The same database in another process, opened after `ledger`."""
        async with opener() as other:
            yield other
