"""Points at which a test kills its process, as by `kill -9`. The setting `PATTERN:K` kills at the K-th point whose name matches
the pattern.

Each commit has the points `before`, `stored` and `shown`, prefixed with the kinds of its commit points
(`accept+prepare.stored`); each call to a backend has `call.prepared`, `call.first` and `call.completed`.
"""

import os
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from fnmatch import fnmatchcase
from typing import Any

from gateway.app import build
from gateway.core.agents import Agent
from gateway.ledger.points import CommitPoint
from gateway.ports.adapter import Adapter, AdapterEvent, CallCompleted, ServiceRequest
from storage.stored_ledger import StoredLedger

Assign = Callable[[Any, str, object], None]


class Failpoints:
    def __init__(self, setting: str, assign: Assign = setattr) -> None:
        """`assign` replaces the attributes of the product. Raises: ValueError for a setting that is not `PATTERN:K`."""
        self._pattern, separator, number = setting.rpartition(":")
        if not separator or not number.isdecimal() or int(number) < 1:
            raise ValueError(f"{setting!r} is not PATTERN:K, as accept*:1")
        self._left = int(number)
        self._assign = assign
        self._adapters: set[type[Adapter]] = set()

    def reach(self, name: str) -> None:
        if fnmatchcase(name, self._pattern):
            self._left -= 1
            if self._left == 0:
                os.write(2, f'{{"event": "failpoint", "point": "{name}"}}\n'.encode())
                os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> None:
        """Adds the points to every ledger of this process, and to the adapter of every agent that is built from now on."""
        self._guard_commits()
        build_agent = build.build_agent

        def built(*arguments: Any) -> Agent:
            agent = build_agent(*arguments)
            self.guard_calls(type(agent.adapter))
            return agent

        self._assign(build, "build_agent", built)

    def _guard_commits(self) -> None:
        commit, submit, reach = StoredLedger.commit, StoredLedger.submit, self.reach

        async def guarded_commit(ledger: StoredLedger, *points: CommitPoint) -> None:
            name = _name(points)
            reach(f"{name}.before")
            await commit(ledger, *points)
            reach(f"{name}.stored")

        def guarded_submit(
            ledger: StoredLedger, points: tuple[CommitPoint, ...], done: Callable[[Exception | None], None]
        ) -> None:
            name = _name(points)
            reach(f"{name}.before")

            def stored(error: Exception | None) -> None:
                if error is None:
                    reach(f"{name}.stored")
                done(error)
                if error is None:
                    reach(f"{name}.shown")

            submit(ledger, points, stored)

        self._assign(StoredLedger, "commit", guarded_commit)
        self._assign(StoredLedger, "submit", guarded_submit)

    def guard_calls(self, kind: type[Adapter]) -> None:
        """Adds the points to the calls of these adapters."""
        if kind in self._adapters:
            return
        self._adapters.add(kind)
        call, reach = kind.call, self.reach

        async def guarded_call(adapter: Adapter, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
            reach("call.prepared")
            first = True
            async with aclosing(call(adapter, request)) as events:
                async for event in events:
                    if first:
                        reach("call.first")
                        first = False
                    if isinstance(event, CallCompleted):
                        reach("call.completed")
                    yield event

        self._assign(kind, "call", guarded_call)


def _name(points: tuple[CommitPoint, ...]) -> str:
    return "+".join(type(point).__name__.lower() for point in points)
