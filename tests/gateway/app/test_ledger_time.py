"""The time of a gateway is that of its ledger, whatever the clock of its machine says."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from gateway.config.plugins import Registry
from gateway.foundation.clock import Clock, milliseconds
from gateway.ledger.port import AnyLedgerFactory, Ledger
from tests.a2a_client import A2A, Json, a2a_http
from tests.running import local_gateway

AGENTS = 'mine: {type: python, ref: "gateway.cli.demo.agent:reply"}'
DAY = 24 * 3_600_000
THEIRS = Clock().now() + 400 * DAY


class _Elsewhere:
    """A ledger whose server has another time."""

    def __init__(self, inside: Ledger) -> None:
        self._inside = inside

    def now(self) -> int:
        return THEIRS

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)


class _Ledgers(Registry):
    def ledger(self, url: str) -> AnyLedgerFactory:
        found = super().ledger(url)
        return replace(found, open=partial(_open, found.open))


@asynccontextmanager
async def _open(
    inside: Callable[..., AbstractAsyncContextManager[Ledger]], *settings: Any
) -> AsyncGenerator[Ledger, None]:
    async with inside(*settings) as ledger:
        yield cast("Ledger", _Elsewhere(ledger))


async def _sent(folder: Path, clock: Clock | None = None) -> Json:
    async with (
        local_gateway(AGENTS, folder, registry=_Ledgers(), clock=clock) as gateway,
        a2a_http(gateway.url) as http,
    ):
        return await A2A(http, "mine").send("hello")


async def test_what_a_gateway_stores_has_the_time_of_its_ledger(tmp_path: Path) -> None:
    assert milliseconds((await _sent(tmp_path))["status"]["timestamp"]) == THEIRS


async def test_a_clock_that_is_given_comes_before_that_of_the_ledger(tmp_path: Path) -> None:
    mine = replace(Clock(), now=lambda: THEIRS - DAY)
    assert milliseconds((await _sent(tmp_path, mine))["status"]["timestamp"]) == THEIRS - DAY
