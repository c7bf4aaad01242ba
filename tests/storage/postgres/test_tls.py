"""Connections that are secured: the server is who it says, or nothing is sent to it."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gateway.ledger.errors import LedgerUnavailable
from gateway.testing.ledger_points import ACCEPT
from storage.postgres.session import Result, Session
from storage.postgres.settings import PostgresSettings
from storage.postgres.text import bound, plain
from tests.storage.postgres.test_failures import opened, run
from tests.support.certificates import certificate, make_authority, server_context
from tests.support.postgres import Server, as_user, postgres_server

_AUTHORITY = "authority.pem"


def _owned(file: Path) -> str:
    """As the server wants the file of its key."""
    file.chmod(0o600)
    user = as_user()
    if user:
        shutil.chown(file, user["user"], user["group"])
    return str(file)


@pytest.fixture(scope="module")
def secured() -> Iterator[Server]:
    """A server that takes connections over TLS only, as localhost; the file of its authority is beside its data."""
    with postgres_server() as server:
        authority = make_authority(server.folder)
        key = _owned(certificate(server.folder, "localhost", authority=authority))
        server.configure({"ssl": "on", "ssl_cert_file": key, "ssl_key_file": key})
        (server.data / "pg_hba.conf").write_text("hostssl all all 127.0.0.1/32 password\n")
        server.stop()
        server.start()
        yield server


def _url(server: Server, host: str) -> str:
    return server.url().replace("127.0.0.1", host)


@pytest.mark.parametrize(("tls", "host"), [("verify-full", "localhost"), ("verify-ca", "127.0.0.1")])
async def test_a_server_whose_authority_is_known_is_used(secured: Server, tls: str, host: str) -> None:
    ca = secured.folder / _AUTHORITY
    async with opened(_url(secured, host), tls=tls, ca=ca, database_schema=tls.replace("-", "_")) as ledger:
        await ledger.commit(ACCEPT)
        await ledger.ready()
        own = "application_name = 'a2a-gateway'"
        [(plain, ciphered)] = run(
            f"{_url(secured, 'localhost')}?sslmode=require",
            "SELECT count(*) FILTER (WHERE NOT ssl), count(*) FILTER (WHERE ssl) FROM pg_stat_ssl JOIN pg_stat_activity"
            f" USING (pid) WHERE {own}",
        )
    assert (plain, ciphered > 0) == (0, True)


@pytest.mark.parametrize("tls", ["verify-ca", "verify-full"])
async def test_a_server_of_another_authority_is_refused(secured: Server, tmp_path: Path, tls: str) -> None:
    stranger = make_authority(tmp_path)
    with pytest.raises(LedgerUnavailable, match="certificate verify failed"):
        async with opened(_url(secured, "localhost"), tls=tls, ca=stranger.file):
            pass


async def test_a_server_of_another_name_is_refused(secured: Server) -> None:
    with pytest.raises(LedgerUnavailable, match="does not match host name"):
        async with opened(_url(secured, "127.0.0.1"), tls="verify-full", ca=secured.folder / _AUTHORITY):
            pass


async def test_an_authority_that_is_no_file_is_refused(secured: Server, tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="does not exist"):
        async with opened(_url(secured, "localhost"), tls="verify-full", ca=tmp_path / "none.pem"):
            pass


async def test_a_server_that_speaks_no_tls_is_refused_where_it_is_required(database_url: str) -> None:
    with pytest.raises(LedgerUnavailable, match="does not support SSL"):
        async with opened(database_url, tls="require"):
            pass


_REQUEST = 8
"""Bytes with which a client asks for TLS."""

_ANSWER, _READY = b"1\0\0\0\4", b"Z\0\0\0\5"
"""That a statement is prepared, and that all of a pipeline is answered, with a byte more."""


@asynccontextmanager
async def long_records(url: str, context: ssl.SSLContext) -> AsyncGenerator[str, None]:
    """The URL of a proxy that speaks TLS, and sends each answer in records as long as they may be: 16 KiB, as libpq's buffer.
    Those of PostgreSQL before version 17 are half as long, and libpq takes each at once."""
    parts = urlsplit(url)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(_REQUEST)
        writer.write(b"S")
        await writer.start_tls(context)
        there, back = await asyncio.open_connection(parts.hostname, parts.port)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(2**20):
                while data.startswith(_ANSWER) and data[-6:-1] != _READY:
                    data += await reader.read(2**20)
                writer.write(data)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    credentials = parts.netloc.rpartition("@")[0]
    async with server:
        yield parts._replace(netloc=f"{credentials}@127.0.0.1:{server.sockets[0].getsockname()[1]}").geturl()


_TEN = plain("SELECT repeat('x', CAST($1 AS integer)) FROM generate_series(1, 10)", "length")


def _read_rows(url: str) -> None:
    session = Session(PostgresSettings(url=url, tls="require").conninfo(options=True), 5.0, 3.0, prepares=True)
    with closing(session):
        for length in range(2500, 3500, 10):
            [found] = session.run([bound(_TEN, {"length": length})])
            assert isinstance(found, Result)
            assert found.rows == [("x" * length,)] * 10


async def test_an_answer_that_has_been_decrypted_is_not_waited_for(database_url: str, tmp_path: Path) -> None:
    context = server_context(certificate(tmp_path, "127.0.0.1"))
    async with long_records(database_url, context) as url:
        await asyncio.to_thread(_read_rows, url)
