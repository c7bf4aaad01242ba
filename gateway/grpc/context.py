"""What a call says to its caller. Law: gRPC's own exceptions end here, and what they say reaches nobody."""

import asyncio
from collections.abc import Sequence

import grpc
from grpc.aio import BaseError

from gateway.a2a.errors import A2AError, InvalidRequest
from gateway.grpc.status import status_of

Context = grpc.aio.ServicerContext[bytes, bytes]
Metadata = Sequence[tuple[str, str]]

_MESSAGE_TIMEOUT = 30.0
"""Seconds within which the message of a call has to arrive."""


class CallerGone(Exception):
    """The call has ended, or can tell its caller nothing any more."""


class Stuck(CallerGone):
    """The caller has read nothing for the send timeout."""


async def receive(context: Context) -> bytes:
    """The one message of a call. Raises: InvalidRequest, CallerGone."""
    try:
        async with asyncio.timeout(_MESSAGE_TIMEOUT):
            message = await next_message(context)
    except TimeoutError:
        raise InvalidRequest(f"the message did not arrive within {_MESSAGE_TIMEOUT:g} s") from None
    if message is None:
        raise InvalidRequest("the call has no message")
    return message


async def next_message(context: Context) -> bytes | None:
    """The next message of a call, None after the last. Raises: CallerGone."""
    try:
        message: object = await context.read()
    except BaseError:
        raise CallerGone from None
    return message if isinstance(message, bytes) else None


async def send_within(seconds: float, context: Context, message: bytes) -> None:
    """Raises: CallerGone; Stuck when the caller does not take the message within so many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await context.write(message)
    except BaseError:
        raise CallerGone from None
    except TimeoutError:
        raise Stuck from None


async def send_metadata(context: Context, metadata: Metadata) -> None:
    """The initial metadata, if there are any. Raises: CallerGone."""
    if metadata:
        try:
            await context.send_initial_metadata(tuple(metadata))
        except BaseError:
            raise CallerGone from None


def refuse(context: Context, error: A2AError) -> None:
    """The status of the call, which is sent when its task ends."""
    status = status_of(error)
    context.set_code(status.code)
    context.set_details(status.text)
    context.set_trailing_metadata(status.metadata)
