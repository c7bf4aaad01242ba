"""Checks of the conformance suites. Law: every wait has a bound, and every failure says what was found."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")
BOUND = 30.0
"""Seconds after which an expected event counts as missing."""


def require(holds: bool, otherwise: str) -> None:
    """An assertion with a text, also where pytest does not rewrite this module, and under `python -O`."""
    if not holds:
        raise AssertionError(otherwise)


def same(found: object, wanted: object) -> None:
    require(found == wanted, f"found {found!r}, not {wanted!r}")


@asynccontextmanager
async def time_limit(what: str) -> AsyncGenerator[None]:
    """Raises: AssertionError when `what` does not happen in time."""
    try:
        async with asyncio.timeout(BOUND):
            yield
    except TimeoutError as error:
        raise AssertionError(f"{what}: not within {BOUND:g} s") from error


async def bounded(awaitable: Awaitable[T], what: str) -> T:
    """Raises: as `time_limit`."""
    async with time_limit(what):
        return await awaitable
