"""Agents for the tests of pages."""

import asyncio
from collections.abc import AsyncIterator

from gateway.agent import InputRequired, Turn


async def fails(turn: Turn) -> AsyncIterator[str]:
    raise ValueError(turn.text)
    yield ""


async def waits(turn: Turn) -> AsyncIterator[str]:
    """Says a first piece and then nothing, until it is cancelled."""
    yield "a first piece "
    await asyncio.Event().wait()


async def asks(turn: Turn) -> AsyncIterator[str]:
    """Asks without a tool call; any message but `?` is an answer."""
    if turn.text == "?":
        raise InputRequired("Where to?")
    yield f"to {turn.text}"
