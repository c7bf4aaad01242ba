"""The thread that answers the reads of one step of the event loop."""

import asyncio
import weakref
from collections.abc import AsyncGenerator

import pytest

from storage.postgres.reader import Reader
from storage.postgres.session import Session
from storage.postgres.settings import PostgresSettings


@pytest.fixture
async def reader(database_url: str) -> AsyncGenerator[Reader, None]:
    settings = PostgresSettings(url=database_url)

    def connect() -> Session:
        return Session(settings.conninfo(options=True), 5.0, 30.0, prepares=True)

    reader = Reader(connect, lambda: None, "ledger-reader")
    yield reader
    await reader.close()


class Found:
    """What a read has found."""


async def test_nothing_of_a_read_is_kept_until_the_next_one(reader: Reader) -> None:
    found = await reader.run(lambda _: Found())
    kept = weakref.ref(found)
    del found
    await asyncio.sleep(0)  # the step of the loop that has brought the answer holds it to its end
    assert kept() is None
