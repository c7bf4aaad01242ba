"""The rows of a ledger, as they are copied to another one. Law: values are as the ledger reads them, not as stored."""

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

import msgspec

Value: TypeAlias = str | int | bytes | None
Row: TypeAlias = tuple[Value, ...]


NOT_WHOLE = (
    "a copy into it has begun and not ended: finish it by the same `storage copy` or `restore`, "
    "or begin with an empty database"
)
"""What is said wherever a ledger is refused that has an unfinished copy."""


class RowTable(msgspec.Struct, frozen=True):
    """A table with the columns of its rows, in order, and those of its primary key."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]

    def key_of(self, row: Row) -> Row:
        return tuple([row[self.columns.index(name)] for name in self.key])


class Holder(msgspec.Struct, frozen=True):
    """A process that lives: it has queued turns or the lease of a thread, `left` milliseconds longer unless it renews them."""

    process: str
    left: int


class Progress(msgspec.Struct, frozen=True):
    """How far a table is copied: the number of its rows, and the key of the latest one."""

    rows: int = 0
    after: Row | None = None


class Unfinished(msgspec.Struct, frozen=True):
    """A copy that has begun and not ended: what it copies, and how far each table is."""

    source: str
    tables: dict[str, Progress]


class LedgerRows(Protocol):
    """What `LedgerFactory.rows` gives while its block runs. All of it raises LedgerUnavailable."""

    @property
    def layout(self) -> str:
        """Names the tables and their version. Ledgers of the same layout have the same tables, and equal rows mean the same."""

    @property
    def tables(self) -> tuple[RowTable, ...]:
        """In an order in which no row comes before one that it refers to, and no row changes a later one."""

    def claim(self) -> str | None:
        """Keeps gateways from opening the ledger until the block ends, where the store can. In words, who has it open
        already, and what to do, also where that has nothing to do and so holds nothing: then nothing is kept."""

    def holders(self) -> list[Holder]:
        """The processes that live now, by the ledger's time."""

    def occupied(self) -> list[str]:
        """The tables that have rows now."""

    def read(self, table: RowTable, after: Row | None = None) -> Iterator[Row]:
        """The rows behind this key, in an order of keys that stays the same. All reads in the block are of one moment, that of
        the first one. Raises: CorruptRecord for a row that cannot be read."""

    def changed(self) -> bool:
        """Whether somebody else has written since that moment."""

    def unfinished(self) -> Unfinished | None:
        """The copy into this ledger that has begun and not ended."""

    def begin(self, source: str) -> None:
        """Begins a copy of `source` into this ledger. Until it ends no gateway opens the ledger. Raises: Conflict when there is
        one already."""

    def write(self, table: RowTable, rows: Sequence[Row], before: Progress, after: Progress) -> None:
        """Stores the rows and how far the table is then, durably, or nothing of both. Raises: Conflict when the table is not as
        far as `before` says, or the rows do not fit."""

    def finish(self) -> None:
        """Ends the copy: gateways may open the ledger."""
