"""The parts that the adapters of both OpenAI wires share: settings, requests, and the probe of a server. Law:
a probe stores nothing at the server, and reads only the beginning of an answer.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
from pydantic import Field, JsonValue

from adapters.http.client import HttpClient
from adapters.http.credentials.settings import CredentialSettings
from adapters.http.credentials.signing import AnyAuth, headers_of, signing_of
from adapters.http.settings import BaseUrl, Timeouts
from adapters.openai.encoding import ToolOffer
from adapters.openai.failures import OpenAIFailures
from gateway.a2a.model import Json
from gateway.config.settings import TextOrFile
from gateway.foundation.route import Route
from gateway.ports.adapter import AdapterError, AdapterEvent, CallStarted, ErrorClass
from gateway.ports.capabilities import Backend
from gateway.ports.tools import ToolDeclaration

PROMPT = "ping"

_UNUSABLE = frozenset({ErrorClass.UNAUTHORISED, ErrorClass.UNREACHABLE, ErrorClass.TIMED_OUT, ErrorClass.INTERRUPTED})


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """Where a service is, and how it is reached. `query` goes with every request, without its question mark; `account` tells
    services of one address apart."""

    base_url: str
    account: Hashable
    timeouts: Timeouts
    route: Route
    headers: Mapping[str, str]
    auth: AnyAuth = None
    query: str = ""

    def link(self, path: str, query: str = "") -> str:
        """The address of a path of the service."""
        asked = "&".join(part for part in (query, self.query) if part)
        return f"{self.base_url}/{path}?{asked}" if asked else f"{self.base_url}/{path}"


class OpenAISettings(CredentialSettings):
    model: str = Field(min_length=1, description="Name of the model.")
    base_url: BaseUrl = Field("https://api.openai.com/v1", description="Where the service is, its version included.")
    instructions: TextOrFile | None = Field(None, description="What the model is told before every conversation.")
    temperature: float | None = Field(None, ge=0, le=2, description="Sampling temperature.")
    top_p: float | None = Field(None, ge=0, le=1, description="Nucleus sampling.")
    timeouts: Timeouts = Field(Timeouts(), description="How long the service may be silent.")
    extra_body: dict[str, JsonValue] = Field({}, description="More fields for every request, as they are.")

    @property
    def address(self) -> ServiceAddress:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return ServiceAddress(self.base_url, self.account, self.timeouts, self.route, headers, self.auth)

    def request_fields(self, *settings: str, **optional: Json) -> dict[str, Json]:
        """The fields of every request: the settings of the given names, and `optional` fields. A field that is None is
        omitted."""
        optional |= {name: getattr(self, name) for name in (*settings, "temperature", "top_p")}
        given = {name: value for name, value in optional.items() if value is not None}
        return {"model": self.model, "stream": True, **given, **self.extra_body}

    def refuse_fields(self, decided: Iterable[str]) -> None:
        """Raises: ValueError when `extra_body` sets a field that has a setting, or a field that the adapter sets itself
        (`decided`)."""
        for name in (*decided, *type(self).model_fields):
            if name in self.extra_body:
                raise ValueError(f"extra_body must not set {name!r}: the gateway decides it, or it has a setting")


class OpenAIService:
    def __init__(
        self,
        address: ServiceAddress,
        path: str,
        fields: dict[str, Json],
        encode_tool: Callable[[ToolDeclaration], dict[str, Json]],
        failures: OpenAIFailures,
    ) -> None:
        """`path` is the path of the requests for an answer; `fields` are the fields of every such request."""
        self.backend = Backend(address.base_url, address.account)
        self._service = address
        self._url = address.link(path)
        self._failures = failures
        self._offer = ToolOffer(fields, encode_tool, failures)
        headers = {**address.headers, **headers_of(address.auth)}
        signing = signing_of(address.auth, failures, address.timeouts, address.route)
        self._http = HttpClient(address.timeouts, failures, headers, address.route, signing)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _lists(self, model: str) -> bool | None:
        """Whether the server lists this model, or None when the server has no list of models.

        Raises: AdapterError when the server cannot be used.
        """
        try:
            listed = await self._http.request_json("GET", self._service.link("models"))
        except AdapterError as error:
            if error.kind in _UNUSABLE:
                raise
            return None
        match listed:
            case {"data": [_, *_] as entries}:
                # Ollama lists models with a tag, which a request may omit.
                names = (model, f"{model}:latest")
                return any(isinstance(entry, dict) and entry.get("id") in names for entry in entries)
        return None

    async def _start_answer(
        self, body: dict[str, Json], read: Callable[[bytes], Sequence[AdapterEvent]], *, handle: str | None = None
    ) -> str | None:
        """Requests an answer and drops it at the first output of the model. Returns the pending handle.

        Raises: AdapterError.
        """
        pending = None
        body = self._offer.fields() | body
        async with self._http.stream(self._url, msgspec.json.encode(body), handle=handle) as stream:
            async for batch in stream:
                for event in (event for data in batch for event in read(data)):
                    if not isinstance(event, CallStarted):
                        return pending
                    pending = event.handle
        raise self._failures.error(ErrorClass.INTERRUPTED, "the stream ended before it began")
