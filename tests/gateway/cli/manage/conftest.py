"""A database of PostgreSQL."""

from collections.abc import Iterator

import pytest

from tests.support.databases import databases, name_of


@pytest.fixture
def postgres_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a database without tables."""
    name = name_of(request.node.nodeid)
    yield databases().make(name, migrated=False)
    databases().drop(name)
