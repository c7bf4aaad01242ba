"""The stores on which tests run. A path names a database: on SQLite its file, on PostgreSQL a database of its own in the server
of the run, to which gateways come straight or through a pooler. The option `--ledger` chooses for the whole run; SQLite is the
default."""

import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from gateway.config.plugins import Registry
from gateway.ledger.port import Ledger

SQLITE, POSTGRES, PGBOUNCER = "sqlite", "postgres", "pgbouncer"
STORES = (SQLITE, POSTGRES, PGBOUNCER)

RUN = "GATEWAY_TESTS_POSTGRES"
"""The variable with the number of the first process of a run, and the folder that a server of the run gets if one is wanted."""

_chosen = SQLITE
_made: set[Path] = set()
_elsewhere: dict[Path, str] = {}


def begin_run(store: str) -> None:
    """Each process of a run says it, the first one first."""
    global _chosen
    _chosen = store
    folder = Path(tempfile.gettempdir()) / f"a2a-gateway-postgres-{secrets.token_hex(6)}"
    os.environ.setdefault(RUN, f"{os.getpid()} {folder}")


def chosen() -> str:
    return _chosen


def store_of(path: Path) -> str:
    return POSTGRES if path.absolute() in _elsewhere else _chosen


@contextmanager
def lying_at(path: Path, url: str) -> Iterator[None]:
    """While the block lasts, the path names the database at `url`, in a server of PostgreSQL that is the test's own."""
    _elsewhere[path.absolute()] = url
    try:
        yield
    finally:
        del _elsewhere[path.absolute()]


def ledger_url(path: Path) -> str:
    """What a configuration says as `storage.url`. On PostgreSQL the database is made if it is not there, with its tables."""
    path = path.absolute()
    if path in _elsewhere:
        return _elsewhere[path]
    if _chosen == SQLITE:
        return f"sqlite:///{path}"
    return way_to(straight_url(path))


def straight_url(path: Path) -> str:
    """Of a database of PostgreSQL, for the eyes of a test."""
    from tests.support.databases import databases, name_of

    path = path.absolute()
    if path in _elsewhere:
        return _elsewhere[path]
    if path in _made:
        return databases().url_of(name_of(path))
    url = databases().make(name_of(path))
    _made.add(path)
    return url


def way_to(url: str) -> str:
    """How gateways come to a database in the server of the run."""
    from tests.support.databases import databases

    return databases().behind_pooler(url) if _chosen == PGBOUNCER else url


@asynccontextmanager
async def open_store(path: Path) -> AsyncIterator[Ledger]:
    url = ledger_url(path)
    factory = Registry().ledger(url)
    async with factory.open(factory.settings(url=url), True) as ledger:
        yield ledger


def copy(source: Path, target: Path) -> None:
    """A database that nobody uses, as another one."""
    if _chosen == SQLITE:
        shutil.copy(source, target)
        return
    from tests.support.databases import databases, name_of

    databases().copy(name_of(source.absolute()), name_of(target.absolute()))
    _made.add(target.absolute())


def remove(folder: Path) -> None:
    """The databases of this process whose paths lie in a folder, or that of a path. Files are removed with their folder."""
    for path in [path for path in _made if path.is_relative_to(folder.absolute())]:
        from tests.support.databases import databases, name_of

        databases().drop(name_of(path))
        _made.remove(path)
