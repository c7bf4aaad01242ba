"""Which schemas this code may use. Law: a newer one only where it declares that it only adds to this version."""

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.rows import NOT_WHOLE
from storage.compiled import VERSION
from storage.row_tables import COPYING
from storage.statement import Row


def usable(version: str, oldest: int) -> bool:
    """Whether this code may use a schema of this version. `oldest` is the oldest version of the code that may use the
    schema, or 0 when it is not declared."""
    return version == VERSION or (version > VERSION and 0 < oldest <= int(VERSION))


def refuse_unfinished(versions: list[Row]) -> None:
    """Raises: LedgerUnavailable where a copy into the database has not ended."""
    if versions and versions[0][0] == COPYING:
        raise LedgerUnavailable(NOT_WHOLE)
