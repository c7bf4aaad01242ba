"""Settings of an agent of type `openai-chat`."""

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from adapters.openai.settings import OpenAISettings
from adapters.openai.tools import tool_names
from gateway.config.agents import HistoryConfig


class ChatSettings(OpenAISettings):
    """An agent of type `openai-chat`."""

    history: HistoryConfig = Field(HistoryConfig(), description="Who keeps the conversation: always the gateway.")
    instructions_role: Literal["system", "developer"] = Field("system", description="Role of the instructions.")
    max_tokens: int | None = Field(
        None, ge=1, description="Limit of an answer; OpenAI's newer models want the next one."
    )
    max_completion_tokens: int | None = Field(None, ge=1, description="Limit of an answer, reasoning included.")
    reasoning_effort: str | None = Field(None, description="How much a reasoning model thinks.")
    include_usage: bool = Field(True, description="Ask for the number of tokens; some servers refuse the question.")

    @field_validator("history")
    @classmethod
    def _owner_is_the_gateway(cls, history: HistoryConfig) -> HistoryConfig:
        if history.owner == "backend":
            raise ValueError("a Chat Completions server keeps no conversation: the owner can only be 'gateway'")
        return history

    @model_validator(mode="after")
    def _check_extra_body(self) -> Self:
        self.refuse_fields(("messages", "stream", "stream_options", "n"))
        tools = self.extra_body.get("tools", [])
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise ValueError("extra_body.tools must be a list of objects")
        names = tool_names(tool for tool in tools if isinstance(tool, dict))
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"two of extra_body.tools are called {twice!r}")
        return self
