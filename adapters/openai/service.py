"""The base of the adapters of both OpenAI wires. Law: a probe stores nothing, and reads only the beginning of an answer."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from adapters.http.client import HttpClient
from adapters.openai.failures import OpenAIFailures
from adapters.openai.settings import OpenAISettings
from adapters.openai.tools import ToolOffer
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterError, AdapterEvent, CallStarted, ErrorClass
from gateway.ports.tools import ToolDeclaration

PROMPT = "ping"

_UNUSABLE = frozenset({ErrorClass.UNAUTHORISED, ErrorClass.UNREACHABLE, ErrorClass.TIMED_OUT, ErrorClass.INTERRUPTED})


class OpenAIService:
    def __init__(
        self,
        settings: OpenAISettings,
        path: str,
        fields: dict[str, Json],
        encode_tool: Callable[[ToolDeclaration], dict[str, Json]],
        secrets: Iterable[str],
    ) -> None:
        """`path`: of the requests for an answer. `fields`: of every such request."""
        self.backend = settings.backend
        self._base_url = settings.base_url
        self._url = f"{settings.base_url}/{path}"
        self._model = settings.model
        self._failures = OpenAIFailures(secrets)
        self._offer = ToolOffer(fields, encode_tool, self._failures)
        self._http = HttpClient(settings.timeouts, self._failures, settings.headers)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _lists_model(self) -> bool | None:
        """None where the server has no list. Raises: AdapterError when the server cannot be used."""
        try:
            listed = await self._http.request_json("GET", f"{self._base_url}/models")
        except AdapterError as error:
            if error.kind in _UNUSABLE:
                raise
            return None
        match listed:
            case {"data": [_, *_] as entries}:
                # Ollama leaves out the tag in a request, not in the list.
                names = (self._model, f"{self._model}:latest")
                return any(isinstance(entry, dict) and entry.get("id") in names for entry in entries)
        return None

    async def _start_answer(
        self, body: dict[str, Json], read: Callable[[bytes], Sequence[AdapterEvent]], *, handle: str | None = None
    ) -> str | None:
        """Returns the pending handle at the first output of the model, and drops the rest. Raises: AdapterError."""
        pending = None
        body = self._offer.fields() | body
        async with self._http.post_stream(self._url, msgspec.json.encode(body), handle=handle) as stream:
            async for batch in stream:
                for event in (event for data in batch for event in read(data)):
                    if not isinstance(event, CallStarted):
                        return pending
                    pending = event.handle
        raise self._failures.error(ErrorClass.INTERRUPTED, "the stream ended before it began")
