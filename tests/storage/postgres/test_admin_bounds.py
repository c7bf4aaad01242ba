"""The reads for operators on a large database of PostgreSQL."""

from functools import partial

import pytest

from gateway.config.plugins import Registry
from gateway.testing.ledger_points import Opener
from tests.storage.admin_bounds import BoundTests


class TestPostgres(BoundTests):
    @pytest.fixture
    def opener(self, database_url: str) -> Opener:
        factory = Registry().ledger(database_url)
        return partial(factory.open, factory.settings(url=database_url), True)
