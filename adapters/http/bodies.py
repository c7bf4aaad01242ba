"""Bodies of answers that are read to their end. Law: every read has a limit of bytes."""

from contextlib import suppress

import aiohttp

ERROR_LIMIT = 64 * 1024
"""Bytes of an answer that says what is wrong."""


class BodyTooLarge(Exception):
    """A body exceeds its limit."""


async def beginning(content: aiohttp.StreamReader, limit: int) -> bytes:
    """The first `limit` bytes of a body. A body that is cut or stalls must not hide the status of its response."""
    body = b""
    with suppress(TimeoutError, aiohttp.ClientError, OSError):
        while len(body) < limit and (chunk := await content.readany()):
            body += chunk
    return body[:limit]


async def whole(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """All bytes of a body. Raises: BodyTooLarge; the errors of aiohttp for one that is cut or stalls."""
    if response.content_length is not None and response.content_length > limit:
        raise BodyTooLarge
    pieces: list[bytes] = []
    left = limit
    while chunk := await response.content.readany():
        left -= len(chunk)
        if left < 0:
            raise BodyTooLarge
        pieces.append(chunk)
    return b"".join(pieces)
