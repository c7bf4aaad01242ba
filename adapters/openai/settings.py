"""Settings of both OpenAI wires."""

from collections.abc import Iterable

from pydantic import Field, JsonValue

from adapters.http.settings import ApiKey, BaseUrl, Timeouts
from gateway.a2a.model import Json
from gateway.config.settings import Settings, TextOrFile
from gateway.ports.capabilities import Backend


class OpenAISettings(Settings):
    model: str = Field(min_length=1, description="Name of the model.")
    api_key: ApiKey | None = Field(None, description="Sent as a bearer token; none is sent when it is not given.")
    base_url: BaseUrl = Field("https://api.openai.com/v1", description="Where the service is, its version included.")
    instructions: TextOrFile | None = Field(None, description="What the model is told before every conversation.")
    temperature: float | None = Field(None, ge=0, le=2, description="Sampling temperature.")
    top_p: float | None = Field(None, ge=0, le=1, description="Nucleus sampling.")
    timeouts: Timeouts = Field(Timeouts(), description="How long the service may be silent.")
    extra_body: dict[str, JsonValue] = Field({}, description="More fields for every request, as they are.")

    @property
    def backend(self) -> Backend:
        return Backend(self.base_url, self.api_key)

    @property
    def key(self) -> str:
        return self.api_key.get_secret_value() if self.api_key else ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def request_fields(self, **optional: Json) -> dict[str, Json]:
        """The fields of every request; an `optional` one that is None is left out."""
        optional |= {"temperature": self.temperature, "top_p": self.top_p}
        given = {name: value for name, value in optional.items() if value is not None}
        return {"model": self.model, "stream": True, **given, **self.extra_body}

    def refuse_fields(self, decided: Iterable[str]) -> None:
        """Raises: ValueError when `extra_body` sets a field that has a setting, or that the adapter decides itself."""
        for name in (*decided, *type(self).model_fields):
            if name in self.extra_body:
                raise ValueError(f"extra_body must not set {name!r}: the gateway decides it, or it has a setting")
