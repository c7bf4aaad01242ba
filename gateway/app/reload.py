"""Configurations that follow one another in one process. Law: a request ends with the agents that it began with, and an
adapter or a source of tools is closed only when neither a request nor a turn can use it any more."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.core.agents import Agents
from gateway.foundation.shutdown import ActiveCount
from gateway.http.pipeline import Pipeline
from gateway.ports.adapter import Adapter
from gateway.ports.tools import ToolSource

log = structlog.get_logger("gateway.app.reload")


@dataclass(eq=False, slots=True)
class LoadedConfig:
    """The agents of one configuration, the sources of their tools, the pipeline of their requests, and the application that
    serves them over HTTP.

    `requests` are those that are being answered.
    """

    app: ASGIApp
    agents: Agents
    pipeline: Pipeline
    sources: tuple[ToolSource, ...] = ()
    requests: ActiveCount = field(default_factory=ActiveCount)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.requests:
            await self.app(scope, receive, send)

    async def aclose(self) -> None:
        adapters = [_close(agent.adapter, "adapter.not-closed", agent=agent.name) for agent in self.agents]
        await asyncio.gather(*adapters, *(_close(source, "tools.not-closed") for source in self.sources))


async def _close(closing: Adapter | ToolSource, failure: str, **labels: str) -> None:
    """A plug-in that fails to close is logged, and stops nothing else."""
    try:
        await closing.aclose()
    except Exception:
        log.exception(failure, **labels)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        log.exception(failure, **labels)


class ReloadableApp:
    """The ASGI application of the process, which serves the latest configuration. Use inside `async with app.open()`."""

    def __init__(self, first: LoadedConfig, wait_unused: Callable[[Agents], Awaitable[None]]) -> None:
        """`wait_unused` returns when no turn of these agents waits, runs or arrives, once new ones go to other agents."""
        self._latest = first
        self._open = {first}
        self._wait_unused = wait_unused
        self._group: asyncio.TaskGroup | None = None
        self._retiring: set[asyncio.Task[None]] = set()

    @property
    def agents(self) -> Agents:
        """The agents of the latest configuration."""
        return self._latest.agents

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Coroutine[Any, Any, None]:
        return self._latest(scope, receive, send)

    @contextmanager
    def pipelines(self) -> Iterator[Pipeline]:
        """The pipeline of the latest configuration, which stays open while the block runs."""
        latest = self._latest
        with latest.requests:
            yield latest.pipeline

    def replace(self, following: LoadedConfig) -> None:
        """`following` gets new requests; the one before is closed when nothing uses it any more."""
        retiring, self._latest = self._latest, following
        self._open.add(following)
        if self._group is not None:
            task = self._group.create_task(self._retire(retiring))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Closes every configuration that is still open at the end of the block."""
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
            for config in self._open:
                await config.aclose()

    async def _retire(self, config: LoadedConfig) -> None:
        await config.requests.wait_zero()
        await self._wait_unused(config.agents)
        await config.aclose()
        # This is done after the close, so that a configuration whose close is cancelled is closed at the end.
        self._open.remove(config)
