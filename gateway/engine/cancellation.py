"""Ends a service call at a backend that continues it without a listener."""

import asyncio

import structlog

from gateway.core.agents import Agent
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError
from gateway.ports.capabilities import CanCancel, Ongoing

log = structlog.get_logger("gateway.engine.cancellation")

_TIMEOUT = 5.0
"""Seconds that a backend has to confirm a cancellation."""


async def cancel_at_backend(agent: Agent, task: str, names: Ongoing | None) -> bool | None:
    """Whether the backend confirmed that the call does not continue, or None when the call ends by itself."""
    adapter = agent.adapter
    if names is None or not isinstance(adapter, CanCancel):
        return None
    try:
        async with asyncio.timeout(_TIMEOUT):
            return await adapter.cancel(names)
    except (AdapterError, TimeoutError) as error:
        log.warning("call.not-cancelled", agent=agent.name, task=task, error=repr(error))
        drop_tracebacks(error)
        return False
