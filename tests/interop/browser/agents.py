"""Agents for browsers."""

import base64
from collections.abc import AsyncIterator
from typing import Any

from gateway.agent import Turn


async def files(turn: Turn) -> AsyncIterator[str | dict[str, Any]]:
    """Says what came, and gives it back as a file."""
    for part in turn.message["parts"]:
        if "raw" in part:
            yield f"{part['filename']} has {len(base64.b64decode(part['raw']))} bytes."
            yield {"raw": part["raw"], "filename": "back.txt", "mediaType": "text/plain"}
