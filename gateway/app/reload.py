"""Configurations that follow one another in one process. Law: a request ends with the agents that it began with, and an
adapter or a source of tools is closed only when neither a request nor a turn can use it any more."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.core.agents import Agents
from gateway.foundation.in_flight import ActiveCount
from gateway.ports.adapter import Adapter
from gateway.ports.tools import ToolSource

log = structlog.get_logger("gateway.app.reload")


class Generation:
    """The agents of one configuration, the sources of their tools, and the application in front of them."""

    def __init__(self, app: ASGIApp, agents: Agents, sources: tuple[ToolSource, ...] = ()) -> None:
        self.agents = agents
        self._sources = sources
        self._app = app
        self._requests = ActiveCount()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._requests:
            await self._app(scope, receive, send)

    async def quiet(self) -> None:
        """Returns when it answers no request."""
        await self._requests.wait_zero()

    async def aclose(self) -> None:
        adapters = [_closed(agent.adapter, "adapter.not-closed", agent=agent.name) for agent in self.agents]
        await asyncio.gather(*adapters, *(_closed(source, "tools.not-closed") for source in self._sources))


async def _closed(closing: Adapter | ToolSource, failure: str, **whose: str) -> None:
    """It may be a stranger's, and the gateway goes on without it."""
    try:
        await closing.aclose()
    except Exception:
        log.exception(failure, **whose)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        log.exception(failure, **whose)


class Succession:
    """The ASGI application of the process: its newest generation. Use inside `async with succession.lasting()`."""

    def __init__(self, first: Generation, left: Callable[[Agents], Awaitable[None]]) -> None:
        """`left` returns when no turn of these agents waits, runs or arrives, where new ones come to others."""
        self._newest = first
        self._open = {first}
        self._left = left
        self._group: asyncio.TaskGroup | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    @property
    def agents(self) -> Agents:
        """Those of the newest generation."""
        return self._newest.agents

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._newest(scope, receive, send)

    def succeed(self, following: Generation) -> None:
        """New requests come to this one; the one before ends when it is no longer needed."""
        retiring, self._newest = self._newest, following
        self._open.add(following)
        if self._group is not None:
            task = self._group.create_task(self._retire(retiring))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    @asynccontextmanager
    async def lasting(self) -> AsyncIterator[None]:
        """Closes what is left of every generation at its end."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                try:
                    yield
                finally:
                    self._group = None
                    for task in tuple(self._retiring):
                        task.cancel()
        finally:
            for generation in self._open:
                await generation.aclose()

    async def _retire(self, generation: Generation) -> None:
        await generation.quiet()
        await self._left(generation.agents)
        await generation.aclose()
        # Not before: what is cancelled here is closed at the end.
        self._open.remove(generation)
