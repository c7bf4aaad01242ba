"""Settings of an agent of type `langgraph`. Law: what the gateway decides for each run cannot be set."""

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from adapters.http.credentials.settings import Auth, CredentialSettings
from adapters.http.settings import ApiKey, BaseUrl, Timeouts
from gateway.a2a.model import Json
from gateway.config.settings import Text, TimeLimit

_DECIDED = ("thread_id", "run_id", "checkpoint_id", "checkpoint_ns")


class LangGraphSettings(CredentialSettings):
    """An agent of type `langgraph`."""

    url: BaseUrl = Field(description="Where the Agent Server is, such as http://localhost:2024.")
    assistant: Text = Field("agent", description="Name of the graph, or the id of an assistant.")
    api_key: ApiKey | None = Field(None, description="Sent as `x-api-key`; none is sent when it is not given.")
    auth: Auth | None = Field(
        None, description="Other credentials than `x-api-key`: `api_key`, `oauth2`, `entra` or `aws`."
    )
    input_key: Text = Field("messages", description="Key of the messages in the state of the graph.")
    config: dict[str, JsonValue] = Field(
        {}, description="`config` of every run: `configurable`, `tags`, `recursion_limit`."
    )
    context: dict[str, JsonValue] | None = Field(None, description="`context` of every run.")
    metadata: dict[str, JsonValue] = Field({}, description="Kept with every thread and every run at the server.")
    approvals: bool = Field(
        True,
        description="Interrupts of LangChain's human-in-the-loop middleware and agent inbox are approvals. When false they are "
        "questions as any others, and a tool call is told before its result comes.",
    )
    subgraphs: bool = Field(False, description="Stream the messages of subgraphs as they come.")
    durability: Literal["sync", "async", "exit"] | None = Field(
        None, description="When the server stores checkpoints; its own default when not given."
    )
    thread_ttl: TimeLimit | None = Field(None, description="How long the server keeps a thread after its creation.")
    delete_threads: bool = Field(True, description="Delete a thread with its context.")
    verify_thread: bool = Field(
        True, description="Fail when the thread of a first turn does not hold the message that it was sent."
    )
    timeouts: Timeouts = Field(Timeouts(), description="How long the server may be silent.")

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        configurable = self.config.get("configurable", {})
        if not isinstance(configurable, dict):
            raise ValueError("config.configurable must be a mapping")
        if configurable and self.context is not None:
            raise ValueError("'context' and 'config.configurable' exclude each other: the server takes one of them")
        for name in _DECIDED:
            if name in configurable:
                raise ValueError(f"config.configurable must not set {name!r}: the gateway decides it")
        return self

    @property
    def run_fields(self) -> dict[str, Json]:
        """The fields of every run, but its metadata. A run goes on when nobody listens, and its events can be read again from
        the first on."""
        optional = {
            "config": self.config or None,
            "context": self.context,
            "durability": self.durability,
        }
        return {
            "assistant_id": self.assistant,
            "stream_mode": ["messages-tuple", "updates", "custom"],
            "stream_subgraphs": self.subgraphs,
            "stream_resumable": True,
            "on_disconnect": "continue",
            "multitask_strategy": "reject",
            "if_not_exists": "reject",
            **{name: value for name, value in optional.items() if value is not None},
        }

    @property
    def thread_fields(self) -> dict[str, Json]:
        """The fields of a new thread besides its id."""
        metadata = {"metadata": self.metadata} if self.metadata else {}
        ttl = {"ttl": {"strategy": "delete", "ttl": self.thread_ttl / 60}} if self.thread_ttl is not None else {}
        return {"if_exists": "do_nothing", **metadata, **ttl}
