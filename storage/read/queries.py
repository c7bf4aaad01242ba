"""What the reads of the ledger ask of a store. Law: knows no dialect."""

from typing import Any, Protocol

from gateway.ledger.tasks import PageLimits, TaskPage
from storage.statement import Query, Row

Asked = tuple[Query, dict[str, Any]]
"""A query and its parameters."""


class Readers(Protocol):
    """The queries of a store. Every method raises LedgerUnavailable and CorruptRecord."""

    async def lookup(self, query: Query, values: dict[str, Any]) -> list[Row]:
        """All rows of a query that an index answers with few rows."""
        ...

    async def fetch(self, query: Query, values: dict[str, Any]) -> list[Row]:
        """All rows of a query that finds few rows."""
        ...

    async def fetch_all(self, *asked: Asked) -> list[list[Row]]:
        """As `fetch`, for several queries on one snapshot."""
        ...

    async def scan(self, query: Query, values: dict[str, Any]) -> list[Row]:
        """All rows, without a limit."""
        ...

    async def scan_all(self, *asked: Asked) -> list[list[Row]]:
        """As `scan`, for several queries on one snapshot."""
        ...

    async def log_page(self, values: dict[str, Any]) -> list[Row]:
        """The rows of `EVENTS` until the events behind `after` have `size` bytes. The rows behind them are not read."""
        ...

    async def page(self, filters: tuple[bool, ...], values: dict[str, Any], limits: PageLimits) -> TaskPage:
        """Of the tasks that match the filters of `LISTINGS`. The value of `limit` is one task more than the page may have."""
        ...


_MOST = 2**31
"""More turns than any task has."""


def recent_values(task: str, history: int) -> dict[str, Any]:
    """The parameters of a query for the latest turns of a task."""
    return {"task": task, "history": min(history, _MOST), "skip": min(max(history - 1, 0), _MOST)}
