"""SQLite in the conformance suite of ledgers, which has all tests that go through the port alone."""

from functools import partial
from pathlib import Path

import pytest

from gateway.testing.ledger_points import Opener
from gateway.testing.ledger_suite import LedgerSuite
from storage.ledger import open_ledger
from storage.settings import SqliteSettings


class TestSqlite(LedgerSuite):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return partial(open_ledger, SqliteSettings(url=f"sqlite:///{tmp_path}/ledger.db"), True)
