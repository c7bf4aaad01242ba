"""The answers for load balancers: the process lives, and whether it accepts requests."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.routing import Router

from gateway.foundation.shutdown import Drain
from gateway.http.health import Health
from gateway.ledger.errors import LedgerUnavailable
from storage.ledger import open_ledger
from storage.settings import SqliteSettings


async def ask(health: Health, path: str) -> tuple[int, Any]:
    transport = httpx2.ASGITransport(app=Router(health.routes()))
    async with httpx2.AsyncClient(transport=transport, base_url="http://gateway") as client:
        answer = await client.get(path)
    return answer.status_code, json.loads(answer.content)


async def test_a_gateway_that_is_well_is_live_and_ready(tmp_path: Path) -> None:
    async with open_ledger(SqliteSettings(url=f"sqlite:///{tmp_path}/ledger.db"), True) as ledger:
        health = Health(ledger, asyncio.Event())
        assert await ask(health, "/livez") == (200, {"status": "ok"})
        assert await ask(health, "/readyz") == (200, {"status": "ok"})
        checks = {"database": "ok", "draining": "no"}
        assert await ask(health, "/readyz?verbose") == (200, {"status": "ok", "checks": checks})


async def test_a_gateway_that_drains_is_live_but_not_ready(tmp_path: Path) -> None:
    async with open_ledger(SqliteSettings(url=f"sqlite:///{tmp_path}/ledger.db"), True) as ledger:
        drain = Drain()
        drain.set()
        health = Health(ledger, drain)
        assert await ask(health, "/livez") == (200, {"status": "ok"})
        checks = {"database": "ok", "draining": "yes"}
        assert await ask(health, "/readyz?verbose") == (503, {"status": "unavailable", "checks": checks})


@pytest.mark.parametrize("way", ["notifications", "polling"])
async def test_a_gateway_says_how_it_hears_of_others_and_is_ready_in_any_case(way: str) -> None:
    checks = {"database": "ok", "draining": "no", "changes": way}
    found = await ask(Health(_Hearing(way), asyncio.Event()), "/readyz?verbose")  # type: ignore[arg-type]
    assert found == (200, {"status": "ok", "checks": checks})


class _Hearing:
    """What is asked of a ledger for its health."""

    def __init__(self, way: str) -> None:
        self._way = way

    def hears(self) -> str:
        return self._way

    async def ready(self) -> None:
        pass


async def test_a_gateway_whose_database_is_gone_is_not_ready_and_does_not_say_why(tmp_path: Path) -> None:
    async with open_ledger(SqliteSettings(url=f"sqlite:///{tmp_path}/ledger.db"), True) as ledger:
        health = Health(ledger, asyncio.Event())
    with pytest.raises(LedgerUnavailable):
        await ledger.ready()
    checks = {"database": "unavailable", "draining": "no"}
    assert await ask(health, "/readyz?verbose") == (503, {"status": "unavailable", "checks": checks})
