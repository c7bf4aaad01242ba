"""Points at which a test kills this process, as by `kill -9`. Law: inactive unless `GATEWAY_FAIL` is set at the start.

`GATEWAY_FAIL=PATTERN:K` kills at the K-th point whose name matches the pattern. Each commit has the points `before`, `stored`
and `shown`, prefixed with the kinds of its commit points (`accept+prepare.stored`); each call to a backend has `call.prepared`,
`call.first` and `call.completed`.
"""

import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from fnmatch import fnmatchcase
from typing import Any, cast

from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ports.adapter import Adapter, AdapterEvent, CallCompleted, ServiceRequest

VARIABLE = "GATEWAY_FAIL"

Done = Callable[[Exception | None], None]


class Failpoints:
    def __init__(self, setting: str) -> None:
        """Raises: ValueError for a setting that is not `PATTERN:K`."""
        self._pattern, separator, number = setting.rpartition(":")
        if not separator or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"{VARIABLE}={setting!r} is not PATTERN:K, as accept*:1")
        self._left = int(number)

    def reach(self, name: str) -> None:
        if fnmatchcase(name, self._pattern):
            self._left -= 1
            if self._left == 0:
                os.write(2, f'{{"event": "failpoint", "point": "{name}"}}\n'.encode())
                os.kill(os.getpid(), signal.SIGKILL)

    def ledger(self, ledger: Ledger) -> Ledger:
        """The ledger with the points of its commits."""
        return cast("Ledger", _GuardedLedger(ledger, self.reach))

    async def call(self, adapter: Adapter, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        """A call of this adapter with its points."""
        self.reach("call.prepared")
        first = True
        async with aclosing(adapter.call(request)) as events:
            async for event in events:
                if first:
                    self.reach("call.first")
                    first = False
                if isinstance(event, CallCompleted):
                    self.reach("call.completed")
                yield event


def armed() -> Failpoints | None:
    """Raises: ValueError."""
    setting = os.environ.get(VARIABLE)
    return Failpoints(setting) if setting else None


class _GuardedLedger:
    def __init__(self, ledger: Ledger, reach: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._reach = reach

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ledger, name)

    async def commit(self, *points: CommitPoint) -> None:
        name = _name(points)
        self._reach(f"{name}.before")
        await self._ledger.commit(*points)
        self._reach(f"{name}.stored")

    def submit(self, points: tuple[CommitPoint, ...], done: Done) -> None:
        name = _name(points)
        self._reach(f"{name}.before")

        def stored(error: Exception | None) -> None:
            if error is None:
                self._reach(f"{name}.stored")
            done(error)
            if error is None:
                self._reach(f"{name}.shown")

        self._ledger.submit(points, stored)


def _name(points: tuple[CommitPoint, ...]) -> str:
    return "+".join(type(point).__name__.lower() for point in points)
