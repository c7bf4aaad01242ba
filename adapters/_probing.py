"""What `check --live` asks of an OpenAI wire. Law: a probe stores nothing, and reads no more than the beginning."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from adapters._failures import Failures
from adapters._http import HttpClient
from gateway.model import Json
from gateway.ports import AdapterEvent, CallStarted, ErrorClass

QUESTION = "ping"


async def lists_model(http: HttpClient, base_url: str, model: str) -> bool | None:
    """None where the server has no list. Raises: AdapterError."""
    match await http.get_json(f"{base_url}/models"):
        case {"data": [_, *_] as entries}:
            # Ollama leaves out the tag in a request, not in the list.
            return any(isinstance(entry, dict) and entry.get("id") in (model, f"{model}:latest") for entry in entries)
    return None


async def begin(
    http: HttpClient,
    url: str,
    body: dict[str, Json],
    read: Callable[[bytes], Sequence[AdapterEvent]],
    failures: Failures,
    **options: Any,
) -> str | None:
    """Returns at the first thing that is said, with the handle, and drops the rest. Raises: AdapterError."""
    handle = None
    async with http.post_stream(url, msgspec.json.encode(body), **options) as stream:
        async for batch in stream:
            for event in (event for data in batch for event in read(data)):
                if not isinstance(event, CallStarted):
                    return handle
                handle = event.handle
    raise failures.error(ErrorClass.INTERRUPTED, "the stream ended before it began")
