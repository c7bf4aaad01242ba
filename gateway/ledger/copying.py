"""Copies all rows of a ledger to another one, and compares them. Law: the target is no ledger until all of it is found equal; a
copy that was cut goes on where it stopped, and stores no row twice.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from hashlib import sha256

import msgspec

from gateway.ledger.errors import Conflict, CorruptRecord
from gateway.ledger.rows import NOT_WHOLE, LedgerRows, Progress, Row, RowTable

_BATCH_ROWS = 1000
_BATCH_BYTES = 4_000_000
"""A batch ends with the first row that passes one of these."""

_DIGEST_BITS = 256

Report = Callable[[str, RowTable, int], None]
"""Hears that this is being done to a table, and how many of its rows are through."""


class CopyFailed(Exception):
    """The text says what keeps the source from being copied, and what to do."""


class InUse(CopyFailed):
    """A process works on one of the two ledgers."""


class Content(msgspec.Struct, frozen=True):
    """The rows of a table: how many there are, and a digest that does not depend on their order, as stores sort differently."""

    name: str
    rows: int
    digest: str


class Copied(msgspec.Struct, frozen=True):
    tables: tuple[Content, ...]
    resumed: bool


def copy(
    source: LedgerRows, target: AbstractContextManager[LedgerRows], names: tuple[str, str], report: Report
) -> Copied:
    """Copies and compares. The target is opened, and so made, once the source is known to be whole and closed. `names` are
    those of the source and of the target. Raises: CopyFailed, LedgerUnavailable."""
    name, target_name = names
    _refuse_unfinished(source, name)
    claim(source, name)
    with target as rows:
        claim(rows, target_name)
        refuse_use(rows, target_name)
        resumed = _begin(source, rows, names)
        try:
            refuse_use(source, name)
        except InUse:
            if not resumed:
                rows.finish()
            raise
        contents = _copied(source, rows, names, report)
        refuse_use(source, name)
        if source.changed():
            raise CopyFailed(
                f"{name} was written to while it was copied: stop its gateways, empty {target_name} and copy again"
            )
        rows.finish()
    return Copied(contents, resumed)


def copy_moment(source: LedgerRows, target: LedgerRows, names: tuple[str, str], report: Report) -> Copied:
    """As `copy`, of one moment of a source that processes may work on meanwhile."""
    _refuse_unfinished(source, names[0])
    resumed = _begin(source, target, names)
    contents = _copied(source, target, names, report)
    target.finish()
    return Copied(contents, resumed)


def _copied(source: LedgerRows, target: LedgerRows, names: tuple[str, str], report: Report) -> tuple[Content, ...]:
    """The tables, which are equal. Raises: CopyFailed."""
    name, target_name = names
    try:
        _copy_rows(source, target, name, report)
    except Conflict as error:
        raise CopyFailed(
            f"{target_name} changed while it was written: {error}. If another copy to it runs, let it end; else empty it and "
            "copy again"
        ) from error
    return _compared(source, target, names, report)


def _refuse_unfinished(rows: LedgerRows, name: str) -> None:
    """Raises: CopyFailed where a part of the rows may be missing."""
    if rows.unfinished() is not None:
        raise CopyFailed(f"{name} is not whole: {NOT_WHOLE}")


def claim(rows: LedgerRows, name: str) -> None:
    """As `LedgerRows.claim`. Raises: InUse."""
    opened_by = rows.claim()
    if opened_by is not None:
        raise InUse(f"{name} is in use: {opened_by}")


def refuse_use(rows: LedgerRows, name: str) -> None:
    """Raises: InUse."""
    for holder in rows.holders():
        raise InUse(
            f"{name} is in use: the process {holder.process} works on it, and counts as alive for {holder.left / 1000:.1f} s "
            "more. Stop its gateways; after one that was killed, try again when that time is over"
        )


def _begin(source: LedgerRows, target: LedgerRows, names: tuple[str, str]) -> bool:
    """Marks the target, before any row of the source is looked at, as even that may take long. Whether a copy goes on that was
    cut. Raises: CopyFailed."""
    source_name, name = names
    if source.layout != target.layout:
        raise CopyFailed(f"{source_name} has tables of {source.layout}, and {name} of {target.layout}")
    found = target.unfinished()
    if found is not None:
        if found.source != source_name:
            raise CopyFailed(
                f"{name} has a copy of {found.source} that was not finished: finish it, or empty {name} and copy again"
            )
        return True
    occupied = target.occupied()
    if occupied:
        raise CopyFailed(
            f"{name} has rows of its own, in {', '.join(occupied)}: nothing is added to them. Name one that is empty or not "
            "there yet"
        )
    try:
        target.begin(source_name)
    except Conflict as error:
        raise CopyFailed(f"another copy to {name} has just begun: {error}") from error
    return False


def _copy_rows(source: LedgerRows, target: LedgerRows, name: str, report: Report) -> None:
    found = target.unfinished()
    done = {} if found is None else found.tables
    for table in source.tables:
        progress = done.get(table.name, Progress())
        report("copying", table, progress.rows)
        for batch in _batches(_readable(source, table, name, progress.after)):
            after = Progress(progress.rows + len(batch), table.key_of(batch[-1]))
            target.write(table, batch, progress, after)
            progress = after
            report("copying", table, progress.rows)


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += sum(len(value) for value in row if isinstance(value, str | bytes))
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _readable(rows: LedgerRows, table: RowTable, name: str, after: Row | None = None) -> Iterator[Row]:
    """Raises: CopyFailed for a row that cannot be read."""
    try:
        for row in rows.read(table, after):
            yield row
            after = table.key_of(row)
    except CorruptRecord as error:
        place = "the first row" if after is None else f"the row behind {', '.join(map(str, after))}"
        raise CopyFailed(
            f"{name}: {place} in {table.name} is damaged ({error}): restore it from a backup, or delete its context, and copy "
            "again"
        ) from error


def _compared(source: LedgerRows, target: LedgerRows, names: tuple[str, str], report: Report) -> tuple[Content, ...]:
    """Raises: CopyFailed."""
    contents = []
    for table in source.tables:
        there = _content(table, _readable(source, table, names[0]), report)
        here = _content(table, _readable(target, table, names[1]), report)
        if there != here:
            raise CopyFailed(
                f"{names[1]} is not equal to {names[0]} in {table.name}: {_told(here)} instead of {_told(there)}. No gateway "
                "opens it so; empty it and copy again"
            )
        contents.append(there)
    return tuple(contents)


def _content(table: RowTable, rows: Iterator[Row], report: Report) -> Content:
    encode = msgspec.msgpack.Encoder().encode
    number = total = 0
    for number, row in enumerate(rows, 1):
        total += int.from_bytes(sha256(encode(row)).digest())
        if number % _BATCH_ROWS == 0:
            report("comparing", table, number)
    return Content(table.name, number, f"{total % (1 << _DIGEST_BITS):064x}")


def _told(content: Content) -> str:
    return f"{content.rows} rows with the digest {content.digest[:12]}"
