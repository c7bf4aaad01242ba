"""A gateway that stops leaves what it did for all to the others at once."""

from pathlib import Path

from gateway.testing.ledger_points import ACCEPT, APPEND, COMPLETE, FINISH, PREPARE
from tests.running import local_gateway
from tests.support.polling import until
from tests.support.rows import query
from tests.support.stores import open_store

_AGENTS = "  echo: {type: python, ref: './echo.py:reply'}"


async def test_the_duty_of_retention_is_left_when_the_gateway_stops(tmp_path: Path) -> None:
    (tmp_path / "echo.py").write_text("async def reply(turn):\n    yield 'a'\n")
    database = tmp_path / "gateway.db"
    async with open_store(database) as ledger:
        for point in (ACCEPT, PREPARE, APPEND, COMPLETE, FINISH):
            await ledger.commit(point)
    async with local_gateway(_AGENTS, tmp_path) as local:
        assert local.database == database
        await until(lambda: query(database, "SELECT count(*) FROM event") == [(0,)])
        assert ("retention",) in query(database, "SELECT name FROM duty")
    assert query(database, "SELECT name FROM duty") == []
