"""A database of PostgreSQL for each test."""

from collections.abc import Iterator

import pytest

from tests.support.databases import databases, name_of


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """With the tables of a ledger, and no rows in them."""
    name = name_of(request.node.nodeid)
    yield databases().make(name)
    databases().drop(name)


@pytest.fixture
def empty_database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Without any table."""
    name = name_of(f"empty {request.node.nodeid}")
    yield databases().make(name, migrated=False)
    databases().drop(name)
