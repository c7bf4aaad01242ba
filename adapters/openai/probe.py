"""The requests of `check --live` to an OpenAI wire. Law: a probe stores nothing, and reads only the beginning of an answer."""

from collections.abc import Callable, Sequence

import msgspec

from adapters.http.client import HttpClient
from adapters.http.failures import Failures
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterError, AdapterEvent, CallStarted, ErrorClass

PROMPT = "ping"

_UNUSABLE = frozenset({ErrorClass.UNAUTHORISED, ErrorClass.UNREACHABLE, ErrorClass.TIMED_OUT, ErrorClass.INTERRUPTED})


async def lists_model(http: HttpClient, base_url: str, model: str) -> bool | None:
    """None where the server has no list. Raises: AdapterError when the server cannot be used."""
    try:
        listed = await http.request_json("GET", f"{base_url}/models")
    except AdapterError as error:
        if error.kind in _UNUSABLE:
            raise
        return None
    match listed:
        case {"data": [_, *_] as entries}:
            # Ollama leaves out the tag in a request, not in the list.
            return any(isinstance(entry, dict) and entry.get("id") in (model, f"{model}:latest") for entry in entries)
    return None


async def start_answer(
    http: HttpClient,
    url: str,
    body: dict[str, Json],
    read: Callable[[bytes], Sequence[AdapterEvent]],
    failures: Failures,
    *,
    handle: str | None = None,
) -> str | None:
    """Returns the pending handle at the first output of the model, and drops the rest. Raises: AdapterError."""
    pending = None
    async with http.post_stream(url, msgspec.json.encode(body), handle=handle) as stream:
        async for batch in stream:
            for event in (event for data in batch for event in read(data)):
                if not isinstance(event, CallStarted):
                    return pending
                pending = event.handle
    raise failures.error(ErrorClass.INTERRUPTED, "the stream ended before it began")
