"""Settings that adapters of HTTP services share."""

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, Field, JsonValue, SecretStr

from gateway.config.settings import Duration, Settings, TextOrFile, WebUrl
from gateway.ports.capabilities import Backend

_TOKEN = re.compile(r"[!-~]*")


def _base_url(value: str) -> str:
    if any(mark in value for mark in "?#@"):
        raise ValueError("must have no query, fragment or credentials: paths are put behind it")
    return value.rstrip("/")


def _usable_key(value: SecretStr) -> SecretStr:
    key = value.get_secret_value().strip()
    if _TOKEN.fullmatch(key) is None:
        raise ValueError("must be one line of visible ASCII characters")
    return SecretStr(key)


ApiKey = Annotated[SecretStr, AfterValidator(_usable_key)]
BaseUrl = Annotated[WebUrl, AfterValidator(_base_url)]
ExtraBody = dict[str, JsonValue]


class Timeouts(Settings):
    """How long a backend may be silent. The whole turn has a limit of its own."""

    connect: Duration = Field(5, gt=0, description="To find the host and connect, TLS included.")
    first_byte: Duration = Field(60, gt=0, description="From the request to the first byte of the answer.")
    between_bytes: Duration = Field(60, gt=0, description="Between two reads of the answer.")


class OpenAISettings(Settings):
    """What both OpenAI wires take."""

    model: str = Field(min_length=1, description="Name of the model.")
    api_key: ApiKey | None = Field(None, description="Sent as a bearer token; none is sent when it is not given.")
    base_url: BaseUrl = Field("https://api.openai.com/v1", description="Where the service is, its version included.")
    instructions: TextOrFile | None = Field(None, description="What the model is told before every conversation.")
    temperature: float | None = Field(None, ge=0, le=2, description="Sampling temperature.")
    top_p: float | None = Field(None, ge=0, le=1, description="Nucleus sampling.")
    timeouts: Timeouts = Field(Timeouts(), description="How long the service may be silent.")
    extra_body: ExtraBody = Field({}, description="More fields for every request, as they are.")

    @property
    def backend(self) -> Backend:
        return Backend(self.base_url, self.api_key)

    @property
    def key(self) -> str:
        return self.api_key.get_secret_value() if self.api_key else ""


def refuse_fields(extra_body: ExtraBody, decided: Iterable[str]) -> None:
    """Raises: ValueError when `extra_body` sets a field that the adapter decides itself."""
    for name in decided:
        if name in extra_body:
            raise ValueError(f"extra_body must not set {name!r}: the gateway decides it, or it has a setting")
