"""The reads for operators on a large file of SQLite."""

from functools import partial
from pathlib import Path

import pytest

from gateway.testing.ledger_points import Opener
from storage.ledger import open_ledger
from storage.settings import SqliteSettings
from tests.storage.admin_bounds import BoundTests


class TestSqlite(BoundTests):
    @pytest.fixture
    def opener(self, tmp_path: Path) -> Opener:
        return partial(open_ledger, SqliteSettings(url=f"sqlite:///{tmp_path}/ledger.db"), True)
