"""Databases of tests in a server of PostgreSQL that all test processes of a run share.

The first test that wants one starts the server, with fsync off; it ends with the first process of the run, however that ends.
A2A_GATEWAY_TEST_POSTGRES=postgresql://... names a server to use instead.
"""

import asyncio
import fcntl
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
from psycopg.sql import SQL, Identifier

from gateway.config.plugins import Registry
from tests.support.pooler import begin_pooler, end_pooler
from tests.support.postgres import NAMED, Server, absent, make_server, programs
from tests.support.stores import RUN

_PROJECT = Path(__file__).parents[2]
_FORGETFUL = {"fsync": "off", "full_page_writes": "off"}
"""A crash of the machine loses everything, and nobody minds."""


@dataclass(frozen=True, slots=True)
class Databases:
    """Those of the run, in a server at `url`. Their names begin with `prefix`, and `folder` is shared by the run."""

    url: str
    prefix: str
    folder: Path

    def url_of(self, name: str) -> str:
        return urlsplit(self.url)._replace(path=f"/{self.prefix}{name}").geturl()

    def behind_pooler(self, url: str) -> str:
        """The same database behind the pooler of the run, which begins if it does not run."""
        return urlsplit(self._pooler())._replace(path=urlsplit(url).path).geturl()

    def _pooler(self) -> str:
        address = self.folder / "pooler-url"
        if not address.exists():
            with _locked(self.folder):
                if not address.exists():
                    made = begin_pooler(self.url, self.folder / "pooler")
                    whole = self.folder / "pooler-url-begun"
                    whole.write_text(made)
                    whole.rename(address)
        return address.read_text()

    def make(self, name: str, *, migrated: bool = True) -> str:
        """The URL of the database of this name, which is made if it is not there: with the tables of a ledger, or empty."""
        template = f"{self.prefix}template" if migrated else "template0"
        if migrated:
            self._make_template()
        with suppress(psycopg.errors.DuplicateDatabase), self._connection() as connection:
            _create(connection, self.prefix + name, template)
        return self.url_of(name)

    def copy(self, source: str, target: str) -> None:
        with self._connection() as connection:
            _cut_off(connection, self.prefix + source)  # a pooler keeps its connections
            _create(connection, self.prefix + target, self.prefix + source)

    def drop(self, name: str) -> None:
        """Whoever is connected to it is cut off."""
        with self._connection() as connection:
            _drop(connection, self.prefix + name)

    def drop_all(self) -> None:
        with self._connection() as connection:
            for (name,) in connection.execute("SELECT datname FROM pg_database").fetchall():
                if name.startswith(self.prefix):
                    _drop(connection, name)

    def _make_template(self) -> None:
        """Once in a run, by the code that is tested."""
        made = self.folder / "template"
        if made.exists():
            return
        with _locked(self.folder):
            if made.exists():
                return
            url = self.make("template", migrated=False)
            with ThreadPoolExecutor(1) as elsewhere:  # a test may have a loop of its own, which runs
                elsewhere.submit(asyncio.run, _migrate(url)).result()
            made.touch()

    def _connection(self) -> psycopg.Connection:
        return psycopg.connect(self.url, autocommit=True)


async def _migrate(url: str) -> None:
    factory = Registry().ledger(url)
    async with factory.open(factory.settings(url=url), True):
        pass


def _create(connection: psycopg.Connection, name: str, template: str) -> None:
    connection.execute(
        SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy").format(Identifier(name), Identifier(template))
    )


def _cut_off(connection: psycopg.Connection, name: str) -> None:
    connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))


def _drop(connection: psycopg.Connection, name: str) -> None:
    connection.execute(SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(Identifier(name)))


def name_of(place: object) -> str:
    """The database of a path, or of a test."""
    return sha256(str(place).encode()).hexdigest()[:24]


@cache
def databases() -> Databases:
    """Those of this run; the server is started if it does not run. Skips the test where there is none."""
    owner, _, place = os.environ[RUN].partition(" ")
    folder = Path(place)
    named = os.environ.get(NAMED)
    if named is None and programs() is None:
        absent()
    with suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(0o711)
        _end_with(owner, folder)
    with _locked(folder):
        address = _address(folder)
        if not address.exists():
            url = named or _started(folder)
            address.touch(mode=0o600)
            address.write_text(url)
    return _of_run(folder)


def _address(folder: Path) -> Path:
    """The file that has the URL, once the server serves."""
    return folder / "url"


def _of_run(folder: Path) -> Databases:
    return Databases(_address(folder).read_text(), f"test_{folder.name[-12:]}_", folder)


def _started(folder: Path) -> str:
    shutil.rmtree(folder / "server", ignore_errors=True)  # of an attempt that failed
    server = make_server(folder / "server", _FORGETFUL)
    server.start()
    return server.url()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Of the processes of a run, one is in the block."""
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _end_with(owner: str, folder: Path) -> None:
    """Leaves a process behind that cleans up when the owner of the run has ended, also if it was killed."""
    command = [sys.executable, "-m", __name__, owner, str(folder)]
    quiet = subprocess.DEVNULL
    subprocess.run(command, cwd=_PROJECT, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True, check=True)


def _clean_up(owner: int, folder: Path) -> None:
    with suppress(ProcessLookupError):
        select.select([os.pidfd_open(owner)], [], [])
    end_pooler(folder / "pooler")
    server = Server(folder / "server", 0, "")
    if server.running:
        server.stop()
    elif _address(folder).exists():
        _of_run(folder).drop_all()
    shutil.rmtree(folder)


if __name__ == "__main__" and os.fork() == 0:
    _clean_up(int(sys.argv[1]), Path(sys.argv[2]))
