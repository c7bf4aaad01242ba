#!/usr/bin/env python3
"""The PostgreSQL server of a run: Debian's programs, data in a temporary folder, fsync on. Needs the environment of `make setup`.

    pg_server.py        starts one and prints the URL of a database, until it is interrupted: for dbbench.py --pg
"""
import pathlib
import signal
import sys
from contextlib import contextmanager

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import psycopg

from tests.support.postgres import postgres_server, programs

SETTINGS = {"max_wal_size": "4GB", "autovacuum_naptime": "5s"}
"""Else the defaults of PostgreSQL: shared_buffers 128 MB, synchronous_commit on, full_page_writes on."""


class Databases:
    """A server, and the databases that targets have of it."""

    def __init__(self, server):
        self.server, self.count = server, 0
        self.postmaster = int((server.data / "postmaster.pid").read_text().split("\n")[0])

    def ask(self, text):
        with psycopg.connect(self.server.url(), autocommit=True) as connection:
            answer = connection.execute(text)
            return answer.fetchone() if answer.description else None

    def make(self):
        """An empty one; its name."""
        self.count += 1
        self.ask(f"CREATE DATABASE bench{self.count}")
        return f"bench{self.count}"

    def drop(self, name):
        self.ask(f"DROP DATABASE {name} WITH (FORCE)")

    def url(self, name):
        return self.server.url(name)

    def bytes_of(self, name):
        return self.ask(f"SELECT pg_database_size('{name}')")[0]


@contextmanager
def databases():
    if programs() is None:
        sys.exit("there is no PostgreSQL: install its server (Debian: postgresql)")
    with postgres_server(SETTINGS) as server:
        yield Databases(server)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the server ends with it
    with databases() as made:
        print(made.url(made.make()), flush=True)
        signal.pause()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
