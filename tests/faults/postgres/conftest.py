"""A database of PostgreSQL for each test, to which gateways come as `--ledger` says."""

from collections.abc import Iterator

import pytest

from tests.support.databases import databases, name_of
from tests.support.stores import way_to


@pytest.fixture
def database_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """With the tables of a ledger, and no rows in them."""
    name = name_of(request.node.nodeid)
    yield way_to(databases().make(name))
    databases().drop(name)
