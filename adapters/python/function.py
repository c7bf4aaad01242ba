"""`type: python`: the agent is a function.

A template for adapters: settings, a class with `ownership`, `call` and `aclose`, the factory of the entry point.
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import structlog

from adapters.python.agent_call import AgentService, PythonSettings, encoded
from adapters.python.calls import CallFailed
from adapters.python.host import host_of
from gateway.foundation.clock import Clock
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    AdapterFactory,
    CallStarted,
    ErrorClass,
    ServiceRequest,
    StateKind,
)
from gateway.ports.capabilities import ProbeReport
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner

__all__ = ["PythonFunction", "PythonSettings", "factory"]

log = structlog.get_logger("adapters.python.function")

_GRACE = 1.0
"""Seconds that a cancelled call has to come to its end."""


class PythonFunction:
    """Speaks to a function. The gateway keeps the history; the function gets it with every turn."""

    ownership = Ownership(StorageOwner.GATEWAY, HandleKind.NONE, repeatable=False)

    def __init__(self, settings: PythonSettings, clock: Clock | None = None) -> None:
        """Raises: ValueError when there is no such function. One that runs in a process is looked for there."""
        self._ref = settings.ref
        self._owner = settings.owner
        self._host = host_of(settings, partial(AgentService, settings, clock))

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        given = encoded(request)
        with _adapter_errors():
            calls = await self._host.calls()
            yield CallStarted()
            with calls.begun(given) as call:
                try:
                    while await call.more():
                        for event in call.take():
                            yield cast("AdapterEvent", event)
                finally:
                    if not await call.stop(_GRACE):
                        log.warning("python.abandoned", **self._owner, context=request.context_id, task=request.task_id)

    async def probe(self) -> ProbeReport:
        with _adapter_errors():
            await self._host.calls()
        return ProbeReport(notes=(f"{self._ref} is loaded",))

    async def aclose(self) -> None:
        await self._host.aclose()


@contextmanager
def _adapter_errors() -> Iterator[None]:
    """Raises: AdapterError for a CallFailed in the block."""
    try:
        yield
    except CallFailed as error:
        failure = error.failure
        raise AdapterError(ErrorClass(failure.kind), failure.detail, retry_after=failure.retry_after) from None


factory = AdapterFactory(
    settings=PythonSettings,
    build=PythonFunction,
    summary="A function in Python, in the gateway or in a process of its own",
    states=(StateKind(StorageOwner.GATEWAY, HandleKind.NONE, PythonFunction),),
    direct_replies=lambda settings: settings.direct_replies,
    tools=False,
)
