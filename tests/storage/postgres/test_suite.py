"""PostgreSQL in the conformance suite of ledgers, which has all tests that go through the port alone."""

from functools import partial

import pytest

from gateway.config.plugins import Registry
from gateway.testing.ledger_points import Opener
from gateway.testing.ledger_suite import LedgerSuite


class TestPostgres(LedgerSuite):
    @pytest.fixture
    def opener(self, database_url: str) -> Opener:
        factory = Registry().ledger(database_url)
        return partial(factory.open, factory.settings(url=database_url), True)
