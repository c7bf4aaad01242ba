"""The parts that the adapters of both OpenAI wires share: settings, classes of errors, and the probe of a server. Law:
a probe stores nothing at the server, and reads only the beginning of an answer.
"""

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import msgspec
from pydantic import Field, JsonValue

from adapters.http.client import HttpClient
from adapters.http.failures import BackendError, Failures
from adapters.http.settings import ApiKey, BaseUrl, Timeouts
from adapters.openai.encoding import ToolOffer
from gateway.a2a.model import Json
from gateway.config.connections import ConnectionSettings, plain_headers
from gateway.config.settings import TextOrFile
from gateway.ports.adapter import AdapterError, AdapterEvent, CallStarted, ErrorClass
from gateway.ports.capabilities import Backend
from gateway.ports.tools import ToolDeclaration

PROMPT = "ping"

_CODES = {
    "previous_response_not_found": ErrorClass.HANDLE_NOT_FOUND,
    "conversation_locked": ErrorClass.LOCKED,
    "rate_limit_exceeded": ErrorClass.RATE_LIMITED,
    "rate_limit_error": ErrorClass.RATE_LIMITED,
    "too_many_requests": ErrorClass.RATE_LIMITED,
    "slow_down": ErrorClass.RATE_LIMITED,
    "overloaded_error": ErrorClass.RATE_LIMITED,
    # Servers send this code with status 429 too, but waiting does not help.
    "insufficient_quota": ErrorClass.NOT_SERVED,
    "billing_not_active": ErrorClass.NOT_SERVED,
    "billing_hard_limit_reached": ErrorClass.NOT_SERVED,
    "invalid_api_key": ErrorClass.UNAUTHORISED,
    "account_deactivated": ErrorClass.UNAUTHORISED,
    "context_length_exceeded": ErrorClass.OVERFLOW,
    "exceed_context_size_error": ErrorClass.OVERFLOW,
    "string_above_max_length": ErrorClass.OVERFLOW,
    "request_too_large": ErrorClass.OVERFLOW,
    "tokens_limit_reached": ErrorClass.OVERFLOW,
    # These end a response that has begun, so that no HTTP status tells whose fault it is.
    "invalid_prompt": ErrorClass.REJECTED,
    "failed_to_download_image": ErrorClass.REJECTED,
    "unsupported_image_media_type": ErrorClass.REJECTED,
    "empty_image_file": ErrorClass.REJECTED,
}
_IMAGE = re.compile("(invalid_)?(base64_)?image_?")
"""How the other codes of a picture that cannot be used begin. Source: OpenAI API description 2.3.0, `ResponseErrorCode`."""

_POLICY = re.compile(
    "content_?filter|content_?policy|policy_violation|responsible_?ai|moderation|safety", re.IGNORECASE
)
_POLICY_TEXT = re.compile(
    "content (management )?policy|usage polic|safety system|flagged as|was flagged", re.IGNORECASE
)
_TOO_LONG = re.compile(
    "maximum context length|context window|context length|prompt is too long|input is too long", re.IGNORECASE
)
_MODEL = re.compile(
    "(invalid|unknown|unsupported)_(model|deployment)$|(model|deployment)_?(not_?(found|available|supported|exist)|disabled|"
    "deprecated|decommissioned|unavailable)",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"\bmodel\b.{0,100}\b(not found|not exist|disabled|not available|unavailable|decommissioned|not enabled)",
    re.IGNORECASE | re.DOTALL,
)
_SETTINGS = frozenset(
    {
        *(
            "model",
            "instructions",
            "temperature",
            "top_p",
            "tools",
            "tool_choice",
            "parallel_tool_calls",
            "seed",
            "stop",
        ),
        *("max_output_tokens", "max_tokens", "max_completion_tokens", "reasoning", "reasoning_effort", "truncation"),
        *("metadata", "include", "background", "store", "stream", "stream_options", "service_tier", "text"),
        "response_format",
    }
)
"""Fields of a request that the settings of the agent decide, and never the conversation."""

_STORED_OBJECT = re.compile("response|conversation", re.IGNORECASE)
_UNUSABLE = frozenset({ErrorClass.UNAUTHORISED, ErrorClass.UNREACHABLE, ErrorClass.TIMED_OUT, ErrorClass.INTERRUPTED})


class OpenAISettings(ConnectionSettings):
    model: str = Field(min_length=1, description="Name of the model.")
    api_key: ApiKey | None = Field(None, description="Sent as a bearer token; none is sent when it is not given.")
    base_url: BaseUrl = Field("https://api.openai.com/v1", description="Where the service is, its version included.")
    instructions: TextOrFile | None = Field(None, description="What the model is told before every conversation.")
    temperature: float | None = Field(None, ge=0, le=2, description="Sampling temperature.")
    top_p: float | None = Field(None, ge=0, le=1, description="Nucleus sampling.")
    timeouts: Timeouts = Field(Timeouts(), description="How long the service may be silent.")
    extra_body: dict[str, JsonValue] = Field({}, description="More fields for every request, as they are.")

    @property
    def key(self) -> str:
        return self.api_key.get_secret_value() if self.api_key else ""

    @property
    def account(self) -> Hashable:
        """What tells agents of one address apart: the key, and how else they reach the service."""
        more = tuple(sorted(plain_headers(self.headers).items())), self.ca, self.proxy
        return self.api_key if more == ((), None, None) else (self.api_key, *more)

    def secrets(self) -> Iterator[str]:
        """Texts that no error may quote."""
        yield self.key
        yield from self.connection_secrets()

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


class OpenAIFailures(Failures):
    def class_of(self, error: BackendError) -> ErrorClass | None:
        names = [name for name in (error.code, error.kind) if name]
        if any(map(_POLICY.search, names)):
            return ErrorClass.POLICY
        for name in names:
            if name in _CODES:
                return _CODES[name]
        # Many compatible servers send no error code, only a text.
        refused = (error.code, error.param)
        if "zero data retention" in error.message.lower() or refused == (
            "unsupported_parameter",
            "previous_response_id",
        ):
            return ErrorClass.STORAGE_DISABLED
        if _TOO_LONG.search(error.message):
            return ErrorClass.OVERFLOW
        if _POLICY_TEXT.search(error.message):
            return ErrorClass.POLICY
        return ErrorClass.REJECTED if any(map(_IMAGE.match, names)) else None

    def is_about_settings(self, error: BackendError) -> bool:
        names = [name for name in (error.code, error.kind) if name]
        field = re.split(r"[.\[]", error.param or "")[0]
        return field in _SETTINGS or any(map(_MODEL.match, names)) or _NO_MODEL.search(error.message) is not None

    def is_about(self, handle: str, error: BackendError) -> bool:
        return super().is_about(handle, error) or _STORED_OBJECT.search(error.message) is not None


class OpenAIService:
    def __init__(
        self,
        settings: OpenAISettings,
        path: str,
        fields: dict[str, Json],
        encode_tool: Callable[[ToolDeclaration], dict[str, Json]],
        secrets: Iterable[str],
    ) -> None:
        """`path` is the path of the requests for an answer; `fields` are the fields of every such request."""
        self.backend = Backend(settings.base_url, settings.account)
        self._base_url = settings.base_url
        self._url = f"{settings.base_url}/{path}"
        self._model = settings.model
        self._failures = OpenAIFailures(secrets)
        self._offer = ToolOffer(fields, encode_tool, self._failures)
        headers = {"Authorization": f"Bearer {settings.key}"} if settings.key else {}
        self._http = HttpClient(settings.timeouts, self._failures, headers, settings.route)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _lists_model(self) -> bool | None:
        """Whether the server lists the model of the settings, or None when the server has no list of models.

        Raises: AdapterError when the server cannot be used.
        """
        try:
            listed = await self._http.request_json("GET", f"{self._base_url}/models")
        except AdapterError as error:
            if error.kind in _UNUSABLE:
                raise
            return None
        match listed:
            case {"data": [_, *_] as entries}:
                # Ollama lists models with a tag, which a request may omit.
                names = (self._model, f"{self._model}:latest")
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
