"""The settings of an agent that every type has, its card among them. Law: as in `gateway.config.gateway`."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, JsonValue, SerializeAsAny, field_validator, model_validator

from gateway.a2a.model import Json
from gateway.a2a.wire.card import first_empty
from gateway.config.settings import Count, MediaTypes, Name, Settings, Text, TimeLimit, WebUrl, duration
from gateway.config.tools import ApprovalConfig, ClientToolConfig, ToolCallsConfig
from gateway.ports.conversation import StorageOwner


class SkillConfig(Settings):
    """One thing that an agent can do, for its card."""

    id: Text = Field(description="Id of the skill, unique in its card.")
    name: Text = Field(description="Name for people.")
    description: Text = Field(description="What the skill does.")
    tags: Annotated[tuple[Text, ...], Field(min_length=1)] = Field(description="Keywords, at least one.")
    examples: tuple[Text, ...] = Field((), description="Prompts that show what to ask.")
    input_modes: MediaTypes | None = Field(
        None, description="Media types it takes, where they differ from the agent's."
    )
    output_modes: MediaTypes | None = Field(
        None, description="Media types it gives, where they differ from the agent's."
    )


class ExtendedSkillConfig(SkillConfig):
    """One thing that an agent can do for some callers."""

    principals: Annotated[tuple[Text, ...], Field(min_length=1)] = Field(
        ("*",), description="Callers that see it, by name; `*` stands for any characters."
    )


class ExtendedCardConfig(Settings):
    """What the card says to callers who say who they are, besides what it says to everybody."""

    skills: Annotated[tuple[ExtendedSkillConfig, ...], Field(min_length=1)] = Field(
        description="What the agent can do for them. One with the id of a public skill takes its place."
    )

    @model_validator(mode="after")
    def _has_each_skill_once(self) -> Self:
        ids = [skill.id for skill in self.skills]
        twice = next((id_ for id_ in ids if ids.count(id_) > 1), None)
        if twice is not None:
            raise ValueError(f"skills has {twice!r} twice")
        return self


class ExtensionConfig(Settings):
    """An A2A extension that the card announces."""

    uri: Text = Field(description="URI of the extension.")
    description: Text | None = Field(None, description="How this agent uses it.")
    required: bool = Field(False, description="Refuse clients that do not name it.")
    params: dict[str, JsonValue] | None = Field(
        None, description="Parameters, as the extension defines them, without null and without what is empty."
    )

    @field_validator("params")
    @classmethod
    def _is_whole_in_a_card(cls, params: dict[str, Json] | None) -> dict[str, Json] | None:
        place = None if params is None else first_empty(params)
        if place is not None:
            raise ValueError(
                f"{place.removeprefix('.')} is null or empty: a card holds nothing empty, because clients leave it out before "
                "they check its signature"
            )
        return params


class CardConfig(Settings):
    """What the agent's card says."""

    name: Text | None = Field(None, description="Name for people; the agent's name in this file when not given.")
    description: Text | None = Field(None, description="What the agent is for.")
    version: Text = Field("1.0.0", description="Version of the agent.")
    documentation_url: WebUrl | None = Field(None, description="Where its documentation is.")
    icon_url: WebUrl | None = Field(None, description="Where its icon is.")
    skills: tuple[SkillConfig, ...] = Field((), description="What the agent can do.")
    input_modes: MediaTypes | None = Field(None, description="Media types it takes; those of its type when not given.")
    output_modes: MediaTypes | None = Field(None, description="Media types it gives; those of its type when not given.")
    extensions: tuple[ExtensionConfig, ...] = Field((), description="A2A extensions that the card announces.")
    tenant: Name | None = Field(None, description="Tenant under which this agent answers.")
    extended: ExtendedCardConfig | None = Field(
        None, description="What only callers see who say who they are, in the extended card."
    )


class HistoryConfig(Settings):
    """Who keeps the conversation, and how much of it is sent."""

    owner: Literal["backend", "gateway"] | None = Field(
        None, description="Who keeps the conversation; what the type does by itself when not given."
    )
    max_messages: Count | None = Field(
        None, description="With a history kept by the gateway: most messages of it to send, the new one included."
    )
    max_tokens: Count | None = Field(
        None, description="With a history kept by the gateway: most tokens of it to send, the new message included."
    )
    uncited_sources: Literal["keep", "drop"] = Field(
        "keep",
        description="With a history kept by the gateway: whether numbered sources in the results of earlier turns' tools are "
        "sent that no answer has cited.",
    )
    persistence: Literal["per_service_call", "per_turn"] = Field(
        "per_service_call",
        description="What the model sees of a turn that failed: what happened in it, or nothing of it.",
    )
    interrupted_answers: Literal["note", "omit"] = Field(
        "note",
        description="With a history kept by the backend: whether the next message brings a note with the part of a cancelled "
        "answer that the caller has seen. A history kept by the gateway has that part anyway.",
    )


class AgentCommon(Settings):
    """The keys that every agent may have, whatever its type. The others belong to its type."""

    type: Text = Field(description="Kind of backend: the name of an adapter.")
    card: CardConfig = Field(CardConfig(), description="What the agent's card says.")
    default: bool = Field(False, description="The agent whose card stands at the root. At most one.")
    client_context_ids: Literal["allow", "refuse"] = Field(
        "allow", description="May a client name a context that does not exist yet."
    )
    busy_context: Literal["queue", "reject", "interrupt", "rollback"] = Field(
        "queue",
        description="What becomes of a message while the context is busy with another: it waits, it is refused, "
        "it cancels the other, or it cancels the other and takes it back.",
    )
    idempotency: Literal["negotiated", "message_id", "off"] = Field(
        "negotiated",
        description="When a repeated message is the same one: if the client asks for it, always by messageId, never.",
    )
    history: HistoryConfig = Field(HistoryConfig(), description="Who keeps the conversation.")
    on_missing_handle: Literal["fail", "tolerate"] = Field(
        "fail", description="What to do when the backend completes a call without an id to continue from."
    )
    on_lost_handle: Literal["fail", "rebuild"] = Field(
        "fail",
        description="What to do when the backend has lost a conversation: tell the caller, or tell the backend again.",
    )
    on_owner_conflict: Literal["fail", "warn", "adopt"] = Field(
        "fail",
        description="What to do when the backend keeps a conversation of the gateway: fail, go on, or leave it there.",
    )
    shadow_history: Literal["items", "text", "none"] = Field(
        "items", description="What the gateway keeps of a conversation that the backend owns."
    )
    tools: tuple[str, ...] = Field(
        (), description="Names under `tools`: what its model may call, and the gateway then runs."
    )
    unknown_tool: Literal["error_result", "fail"] = Field(
        "error_result",
        description="What to do when the model calls a tool that it was not offered: tell it, or fail the turn.",
    )
    round_limit_action: Literal["final_call_without_tools", "fail"] = Field(
        "final_call_without_tools",
        description="What to do at `limits.tool_rounds`: ask for an answer without tools, or fail the turn.",
    )
    approvals: tuple[ApprovalConfig, ...] = Field(
        (), description="Which tool calls the caller has to allow; without a rule that fits, a tool runs unasked."
    )
    approval_timeout: TimeLimit = Field(
        duration("24h"),
        description="How long a task waits for a decision, or for the result of a tool that its caller runs.",
    )
    standing_approvals: Literal["refuse", "allow"] = Field(
        "refuse",
        description="Whether a caller may allow a tool for good (`always: true`), which holds for its own calls in the same "
        "context.",
    )
    mixed_batch: Literal["eager", "hold"] = Field(
        "eager",
        description="What becomes of other calls of an answer while one of them waits for a yes: "
        "they run, or none runs before the decision.",
    )
    new_task_while_waiting: Literal["reject", "supersede"] = Field(
        "reject",
        description="What becomes of a new task in a context in which another waits for a decision: it is refused, "
        "or it cancels the other.",
    )
    client_tools: tuple[ClientToolConfig, ...] = Field(
        (), description="Tools that every caller of the agent runs itself."
    )

    repeat_answer: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Whether a streamed answer comes once more, whole, at its end, as Google ADK needs it to remember it; "
        "`auto`: for clients that ask for ADK's extension.",
    )
    mark_thoughts: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Whether notes that are no part of the answer (progress, reasoning, what an answer lacks) are marked as "
        "Google ADK marks thoughts, by `adk_thought` in the metadata of the part; `auto`: for clients that ask for ADK's "
        "extension.",
    )
    tool_calls: ToolCallsConfig = Field(ToolCallsConfig(), description="What callers see of tool calls.")

    @model_validator(mode="after")
    def _has_each_client_tool_once(self) -> Self:
        names = [tool.name for tool in self.client_tools]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"client_tools has {twice!r} twice")
        return self

    @model_validator(mode="after")
    def _can_be_rebuilt(self) -> Self:
        if self.on_lost_handle == "rebuild" and self.shadow_history != "items":
            raise ValueError(
                f"on_lost_handle: rebuild needs shadow_history: items; from {self.shadow_history!r} a conversation "
                "cannot be told again"
            )
        return self


class AgentConfig(AgentCommon):
    """One agent: the common keys, and `settings`, the model of its type."""

    name: Name
    settings: SerializeAsAny[BaseModel]


def check_window(history: HistoryConfig, owner: StorageOwner) -> None:
    """Raises: ValueError when a limit is set for a history that the gateway does not send."""
    windows = [f"history.{name}" for name in ("max_messages", "max_tokens") if getattr(history, name) is not None]
    if history.uncited_sources == "drop":
        windows.append("history.uncited_sources")
    if windows and owner is StorageOwner.BACKEND:
        raise ValueError(
            f"{' and '.join(windows)} can only limit a history that the gateway keeps, but history.owner is 'backend': "
            "remove that, or set `owner: gateway`"
        )
