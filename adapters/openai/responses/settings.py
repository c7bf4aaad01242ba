"""Settings of an agent of type `openai-responses`."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, JsonValue, field_validator, model_validator

from adapters.openai.settings import OpenAISettings
from gateway.a2a.model import Json
from gateway.config.agents import HistoryConfig, check_window
from gateway.ports.conversation import StorageOwner

_ENCRYPTED_REASONING = "reasoning.encrypted_content"

# These tools wait for an answer of the client.
_CLIENT_TOOLS = frozenset(
    {"function", "custom", "namespace", "local_shell", "apply_patch", "computer", "computer_use_preview"}
)


def _backend_tool(tool: dict[str, JsonValue]) -> dict[str, JsonValue]:
    kind = tool.get("type")
    if not isinstance(kind, str) or not kind:
        raise ValueError("a tool needs a `type`, such as web_search or mcp")
    if kind in _CLIENT_TOOLS:
        raise ValueError(
            f"tools of type {kind!r} run at the client: only tools that the service runs itself can be used"
        )
    return tool


Tool = Annotated[dict[str, JsonValue], AfterValidator(_backend_tool)]


def _owner(history: HistoryConfig) -> StorageOwner:
    return StorageOwner(history.owner or StorageOwner.BACKEND)


class ResponsesSettings(OpenAISettings):
    """An agent of type `openai-responses`."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    history: HistoryConfig = Field(HistoryConfig(), description="Who keeps the conversation: the backend by default.")
    max_output_tokens: int | None = Field(None, ge=1, description="Limit of an answer, reasoning included.")
    reasoning: dict[str, JsonValue] | None = Field(None, description="Effort and summary of reasoning models.")
    encrypted_reasoning: bool = Field(
        True, description="With a history kept by the gateway: ask for reasoning to send back. Some models refuse it."
    )
    tools: tuple[Tool, ...] = Field(
        (), alias="service_tools", description="Tools that the service runs itself, as its API describes them."
    )
    include: tuple[str, ...] = Field((), description="More output to ask for, as web_search_call.action.sources.")
    truncation: Literal["auto", "disabled"] | None = Field(None, description="What to do when the context is full.")
    metadata: dict[str, str] | None = Field(None, description="Kept with every response at the service.")
    conversation: bool = Field(
        False,
        description="Make one conversation at the service for each context and stay in it: no chain of responses.",
    )
    verify_chain: bool = Field(
        True, description="Fail when the service says that it did not go on from the response it was told to."
    )
    repeat_unknown: bool = Field(
        False,
        description="Send a request again when nobody knows what became of it: costs tokens, and nothing else without tools.",
    )

    background: bool = Field(
        False,
        description="Let the service go on when nobody listens, and listen again: a turn outlives its gateway process.",
    )

    @field_validator("history")
    @classmethod
    def _window_over_own_history(cls, history: HistoryConfig) -> HistoryConfig:
        check_window(history, _owner(history))
        return history

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        gateway, background, conversation = self.owner is StorageOwner.GATEWAY, self.background, self.conversation
        excluded = (
            (background and gateway, "'background: true' and 'history.owner: gateway'", ": it has to be kept there"),
            (background and conversation, "'background: true' and 'conversation: true'", ""),
            (
                background and self.repeat_unknown,
                "'background: true' and 'repeat_unknown'",
                ": what goes on is listened to, not asked again",
            ),
            (
                self.repeat_unknown and self.tools,
                "'repeat_unknown: true' and 'service_tools'",
                ": what a tool did would be done twice",
            ),
            (conversation and gateway, "'conversation: true' and 'history.owner: gateway'", ": who keeps it?"),
            (
                conversation and "verify_chain" in self.model_fields_set,
                "'conversation: true' and 'verify_chain'",
                ": there is no chain to verify",
            ),
            (
                conversation and "previous_response_id" in self.extra_body,
                "'conversation: true' and 'extra_body.previous_response_id'",
                "",
            ),
        )
        for applies, names, why in excluded:
            if applies:
                raise ValueError(f"{names} exclude each other{why}")
        self.refuse_fields(("input", "stream", "store", "previous_response_id"))
        return self

    @property
    def owner(self) -> StorageOwner:
        return _owner(self.history)

    @property
    def fields(self) -> dict[str, Json]:
        """The fields of every request. Instructions and tools are among them: a chain does not carry them over."""
        wanted = (_ENCRYPTED_REASONING,) if self.owner is StorageOwner.GATEWAY and self.encrypted_reasoning else ()
        return self.request_fields(
            instructions=self.instructions,
            tools=self.tools or None,
            include=tuple(dict.fromkeys((*wanted, *self.include))) or None,
            max_output_tokens=self.max_output_tokens,
            reasoning=self.reasoning,
            truncation=self.truncation,
            metadata=self.metadata,
            background=self.background or None,
        )

    def secrets(self) -> Iterator[str]:
        yield self.key
        for tool in self.tools:
            headers = tool.get("headers")
            values = headers.values() if isinstance(headers, dict) else ()
            yield from (value for value in (tool.get("authorization"), *values) if isinstance(value, str))
