"""Calls that go on at their backend when nobody listens: when they are listened to again, and how they are ended there.

Law: what says nothing of the call itself does not end it.
"""

import asyncio
from typing import TypeGuard

import structlog

from gateway.abilities import Cancelling, Resuming
from gateway.agents import Agent
from gateway.ports import Adapter, AdapterError, ErrorClass

log = structlog.get_logger("gateway.listening")

_OF_THE_LINE = frozenset(
    {
        ErrorClass.UNREACHABLE,
        ErrorClass.RATE_LIMITED,
        ErrorClass.LOCKED,
        ErrorClass.TIMED_OUT,
        ErrorClass.INTERRUPTED,
        ErrorClass.UNKNOWN,
    }
)
_FIRST_WAIT = 0.5
_LONGEST_WAIT = 8.0
_PATIENCE = 5.0
"""Seconds that a backend has to confirm that it does not go on."""


def goes_on(adapter: Adapter, pending: str | None, error: AdapterError) -> TypeGuard[Resuming]:
    """May the call that has this pending handle be listened to again, behind this error?"""
    return isinstance(adapter, Resuming) and pending is not None and error.kind in _OF_THE_LINE


def wait_before(tries: int, jitter: float) -> float:
    """Seconds. There is no last try but the turn's own time limit: the backend may have to be started first."""
    return min(_FIRST_WAIT * (1 << min(tries, 10)), _LONGEST_WAIT) * (1 + jitter) / 2


async def call_off(agent: Agent, task: str, pending: str | None) -> bool | None:
    """Whether the backend confirmed that it does not go on; None where it would not anyway."""
    adapter = agent.adapter
    if pending is None or not isinstance(adapter, Cancelling):
        return None
    try:
        async with asyncio.timeout(_PATIENCE):
            return await adapter.cancel(pending)
    except (AdapterError, TimeoutError) as error:
        log.warning("call.not-cancelled", agent=agent.name, task=task, error=repr(error))
        return False
