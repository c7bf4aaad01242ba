"""A database of PostgreSQL for each test."""

from tests.storage.postgres.conftest import database_url

__all__ = ["database_url"]
