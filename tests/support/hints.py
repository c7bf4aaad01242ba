"""A ledger of which the test says what is heard of other processes."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

from gateway.ledger.port import Changed
from tests.support.core import FragileLedger


class Hints:
    """Nothing is heard but what the test says. To be given to `running_core` as `before`. An exception is raised."""

    def __init__(self) -> None:
        self._said: asyncio.Queue[Changed | Exception] = asyncio.Queue()
        self._inside: Any = None

    def __call__(self, ledger: FragileLedger) -> None:
        ledger.wrap(self._around)

    def _around(self, inside: Any) -> "Hints":
        self._inside = inside
        return self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inside, name)

    def say(self, *tasks: str) -> None:
        self._said.put_nowait(frozenset(tasks))

    def say_look(self) -> None:
        self._said.put_nowait(None)

    def fail(self, error: Exception) -> None:
        self._said.put_nowait(error)

    async def changes(self, _wanted: object) -> AsyncGenerator[Changed, None]:
        while True:
            said = await self._said.get()
            if isinstance(said, Exception):
                raise said
            yield said
