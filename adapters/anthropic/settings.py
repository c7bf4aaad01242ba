"""Settings of an agent of type `anthropic`. Law: what the service would refuse with every request is refused when it is
read.
"""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, SecretStr, field_validator, model_validator

from adapters.http.credentials.settings import Auth, CredentialSettings
from adapters.http.credentials.signing import headers_of
from adapters.http.settings import ApiKey, BaseUrl, Timeouts
from gateway.config.agents import HistoryConfig
from gateway.config.settings import Count, Settings, TextOrFile, WebUrl

_MCP_BETA = "mcp-client-2025-11-20"
MCP_TOOLSET = "mcp_toolset"
_MCP_BETAS = "mcp-client-"
_INTERLEAVED = "interleaved-thinking"
_LEAST_BUDGET = 1024
# The service does not run these tools; their calls come back in the answer.
_CLIENT_TOOLS = ("custom", "bash_", "text_editor_", "computer_", "memory_", "browser_")
_DECIDED = ("messages", "stream", "system", "cache_control")


def _service_tool(tool: dict[str, JsonValue]) -> dict[str, JsonValue]:
    kind = tool.get("type")
    if not isinstance(kind, str) or not kind:
        raise ValueError("a tool needs a `type`, such as web_search_20250305 or code_execution_20250825")
    if kind.startswith(_CLIENT_TOOLS):
        raise ValueError(
            f"tools of type {kind!r} run at the client: only tools that the service runs itself can be used"
        )
    return tool


def _without_version(url: str) -> str:
    return url.removesuffix("/v1")


Tool = Annotated[dict[str, JsonValue], AfterValidator(_service_tool)]
ServiceUrl = Annotated[BaseUrl, AfterValidator(_without_version)]


class Thinking(Settings):
    """How the model thinks before it answers."""

    type: Literal["adaptive", "enabled", "between_tools", "disabled"] = Field(
        description="adaptive: as much as the model wants; enabled: within the budget."
    )
    budget_tokens: Annotated[int, Field(ge=_LEAST_BUDGET)] | None = Field(
        None, description="Limit of the thinking of `enabled`, a part of `max_tokens`."
    )
    display: Literal["summarized", "omitted"] | None = Field(None, description="Whether the thinking comes as text.")

    @model_validator(mode="after")
    def _check_budget(self) -> Self:
        if (self.type == "enabled") is (self.budget_tokens is None):
            raise ValueError("'budget_tokens' belongs to 'type: enabled', which needs it")
        return self


class McpServer(Settings):
    """An MCP server that the service calls."""

    name: str = Field(min_length=1, description="What the model and callers know it by.")
    url: WebUrl = Field(description="Where it is.")
    authorization_token: SecretStr | None = Field(None, description="Sent to it as a bearer token.")


class AnthropicSettings(CredentialSettings):
    """An agent of type `anthropic`."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    model: str = Field(min_length=1, description="Name of the model.")
    api_key: ApiKey | None = Field(None, description="Sent as `x-api-key`.")
    auth: Auth | None = Field(
        None,
        description="Other credentials than `x-api-key`, such as a bearer token: `api_key`, `oauth2`, `entra` or `aws`.",
    )
    base_url: ServiceUrl = Field(
        "https://api.anthropic.com", description="Where the service is; `/v1` at its end makes no difference."
    )
    api_version: str = Field("2023-06-01", pattern=r"^[!-~]+$", description="Sent as `anthropic-version`.")
    betas: tuple[Annotated[str, Field(pattern=r"^[!-+\--~]+$")], ...] = Field(
        (), description="Sent as `anthropic-beta`."
    )
    history: HistoryConfig = Field(HistoryConfig(), description="Who keeps the conversation: always the gateway.")
    instructions: TextOrFile | None = Field(None, description="What the model is told before every conversation.")
    max_tokens: Count = Field(8192, description="Limit of an answer, thinking included.")
    temperature: float | None = Field(None, ge=0, le=1, description="Sampling temperature.")
    top_p: float | None = Field(None, ge=0, le=1, description="Nucleus sampling.")
    top_k: Count | None = Field(None, description="Sampling from so many tokens.")
    stop_sequences: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="Texts that end the answer."
    )
    thinking: Thinking | None = Field(None, description="How the model thinks; the model decides when not given.")
    cache: Literal["5m", "1h", "none"] = Field(
        "5m", description="How long the service keeps what the next request begins with: costs less than it saves."
    )
    citations: bool = Field(False, description="Ask for citations of the documents in the conversation.")
    tools: tuple[Tool, ...] = Field(
        (), alias="service_tools", description="Tools that the service runs itself, as its API describes them."
    )
    mcp_servers: tuple[McpServer, ...] = Field((), description="MCP servers that the service calls.")
    repeat_unknown: bool | None = Field(
        None,
        description="Send a request again when nobody knows what became of it (5xx, a cut, no answer): costs tokens, "
        "and nothing else where the service runs no tools. When not given: unless it is given tools.",
    )
    timeouts: Timeouts = Field(Timeouts(), description="How long the service may be silent.")
    extra_body: dict[str, JsonValue] = Field({}, description="More fields for every request, as they are.")

    @field_validator("history")
    @classmethod
    def _owner_is_the_gateway(cls, history: HistoryConfig) -> HistoryConfig:
        if history.owner == "backend":
            raise ValueError("the Messages API keeps no conversation: the owner can only be 'gateway'")
        return history

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        budget = self.thinking.budget_tokens if self.thinking else None
        interleaved = any(beta.startswith(_INTERLEAVED) for beta in self.betas)
        if budget is not None and budget >= self.max_tokens and not interleaved:
            raise ValueError(f"thinking.budget_tokens must be below max_tokens, which is {self.max_tokens}")
        for name in (*_DECIDED, *type(self).model_fields, "tools"):
            if name in self.extra_body:
                raise ValueError(f"extra_body must not set {name!r}: the gateway decides it, or it has a setting")
        names = [server.name for server in self.mcp_servers]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two of mcp_servers are called {name!r}")
        return self

    @property
    def repeatable(self) -> bool:
        """Whether a request of unknown outcome may be sent again: a tool that the service ran for it would run twice."""
        if self.repeat_unknown is not None:
            return self.repeat_unknown
        return not (self.tools or self.mcp_servers)

    @property
    def service_headers(self) -> dict[str, str]:
        """The headers of every request."""
        chosen = any(beta.startswith(_MCP_BETAS) for beta in self.betas)
        betas = [*self.betas, *([_MCP_BETA] if self.mcp_servers and not chosen else ())]
        given = {
            "x-api-key": self.key,
            "anthropic-version": self.api_version,
            "anthropic-beta": ",".join(betas),
        }
        return {name: value for name, value in given.items() if value} | headers_of(self.auth)

    def secrets(self) -> Iterator[str]:
        """Texts that no error may quote."""
        yield from super().secrets()
        for server in self.mcp_servers:
            if server.authorization_token is not None:
                yield server.authorization_token.get_secret_value()
