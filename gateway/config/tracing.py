"""Traces for OpenTelemetry. Where they are sent, how many and how often, say the environment variables of OpenTelemetry."""

from typing import Literal, Self

from pydantic import Field, model_validator

from gateway.config.settings import Settings


class TracingConfig(Settings):
    """Traces for OpenTelemetry. It needs `a2a-gateway[otel]`; the `OTEL_*` environment variables say where they are sent and
    which share of them."""

    enabled: bool = Field(False, description="Make spans and send them over OTLP/HTTP.")
    parent: Literal["continue", "link"] = Field(
        "continue",
        description="What the `traceparent` of a request leads to. `continue`: its trace goes on, for callers with a key and "
        "for those on this machine; for others it is linked. `link`: it is linked for all.",
    )
    content: bool = Field(
        False,
        description="Put what was said, and the arguments and results of tools, on spans, masked as for callers and cut.",
    )

    @model_validator(mode="after")
    def _says_what_it_does(self) -> Self:
        if self.content and not self.enabled:
            raise ValueError("has content: true and makes no spans: set `enabled: true`")
        return self
