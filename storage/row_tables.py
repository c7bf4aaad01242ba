"""What the rows of both stores have in common. Law: the layout changes with the schema."""

import msgspec

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.rows import Progress, RowTable
from storage.compiled import TABLES, VERSION

LAYOUT = f"a2a-gateway {VERSION}"

ROW_TABLES = tuple(RowTable(name, columns, key) for name, (columns, key) in TABLES.items())

COPYING = "copying"
"""Stands in the place of the schema's version while a copy into the database has not ended: a version that no release knows."""

NO_CODE = 0
"""Stands in the place of the oldest version of the code that may use the schema meanwhile."""


def refuse_other(version: str) -> None:
    """Raises: LedgerUnavailable where the schema, or that of a copy which has not ended, has another version than the code."""
    if version in {VERSION, COPYING}:
        return
    if version < VERSION:
        raise LedgerUnavailable(
            f"its schema has version {version}, and rows are copied in version {VERSION}: start its gateway once with this "
            "version of a2a-gateway, which brings it up to date, and stop it"
        )
    raise LedgerUnavailable(
        f"its schema has version {version}, newer than ours, {VERSION}: copy with the version of a2a-gateway that made it"
    )


def key_as_bytes(progress: Progress) -> bytes | None:
    return None if progress.after is None else msgspec.msgpack.encode(progress.after)


def progress_of(rows: int, key: bytes | None) -> Progress:
    return Progress(rows, None if key is None else tuple(msgspec.msgpack.decode(key)))
