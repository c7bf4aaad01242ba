"""The settings of cards: what all of them say, and each agent's own. Law: as in `config`.

The settings of tools: their sources, those that callers run, which calls have to be allowed, what is shown of calls.
Law: as in `config`.

The settings of an agent, whatever its type. Law: as in `config`.
"""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, JsonValue, SerializeAsAny, WithJsonSchema, model_validator

from gateway.a2a.redaction import json_path
from gateway.a2a.tool_calls import Exposure
from gateway.config.settings import (
    Count,
    Duration,
    MediaTypes,
    Name,
    Settings,
    Size,
    Text,
    WebUrl,
    duration,
    matching,
    size,
)
from gateway.core.tools.client_tools import NAME as TOOL_NAME
from gateway.core.tools.client_tools import fault
from gateway.ports.conversation import StorageOwner


class ProviderConfig(Settings):
    """Who offers the agents."""

    organization: Text = Field(description="Name of the organisation.")
    url: WebUrl = Field(description="Its web page.")


class CardsConfig(Settings):
    """What all cards say."""

    provider: ProviderConfig | None = Field(None, description="Who offers the agents.")


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


class ExtensionConfig(Settings):
    """An A2A extension that the card announces."""

    uri: Text = Field(description="URI of the extension.")
    description: Text | None = Field(None, description="How this agent uses it.")
    required: bool = Field(False, description="Refuse clients that do not name it.")
    params: dict[str, JsonValue] | None = Field(None, description="Parameters, as the extension defines them.")


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


_ToolName = Annotated[
    str,
    AfterValidator(matching(TOOL_NAME, "must have 1 to 64 of a-z, A-Z, 0-9, _ and -")),
    WithJsonSchema({"type": "string", "pattern": f"^{TOOL_NAME.pattern}$"}),
]


def _path_of_a_call(text: str) -> str:
    """Raises: ValueError, also for a path that points at nothing that a call has: it would mask nothing."""
    first = json_path(text).steps[0]
    if not first.deep and first.key not in (None, "args", "response"):
        raise ValueError("must begin with $.args, $.response or $.. to point at something in a call")
    return text


def _arguments_schema(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Raises: ValueError."""
    wrong = fault(schema)
    if wrong is not None:
        raise ValueError(f"{wrong[0].removeprefix('.')} {wrong[1]}".lstrip())
    return schema


_JsonPath = Annotated[str, AfterValidator(_path_of_a_call)]


class ApprovalConfig(Settings):
    """Which calls of the agent's tools somebody has to allow. The first rule that fits a call decides."""

    tool: Text = Field(description="Pattern for SOURCE.TOOL, as `github.*`.")
    ask: bool = Field(True, description="Whether the caller is asked before such a call runs.")
    arguments: dict[Text, str] = Field(
        {},
        description="Patterns for arguments of the call, by their path (`to.country`); the rule fits when all of them do.",
    )


class ClientToolConfig(Settings):
    """A tool that the caller runs, whether or not it says so itself."""

    name: _ToolName = Field(description="Name of the tool, as the model calls it.")
    description: str = Field("", description="What it does, for the model.")
    parameters: Annotated[dict[str, JsonValue], AfterValidator(_arguments_schema)] = Field(
        {"type": "object"}, description="JSON Schema of its arguments."
    )


class ToolCallsRule(Settings):
    """What some callers see of tool calls."""

    principals: Annotated[tuple[Text, ...], Field(min_length=1)] = Field(
        description="Callers that this is for, by name; `*` stands for any characters."
    )
    exposure: Exposure | None = Field(None, description="What they see of a call.")
    redact: tuple[_JsonPath, ...] | None = Field(None, description="What is masked for them, in place of the agent's.")


class ToolCallsConfig(Settings):
    """What callers see of tool calls."""

    when: Literal["always", "negotiated", "never"] = Field(
        "always", description="Whether tool calls are shown: to all, to those who ask for the extension, to nobody."
    )
    channel: Literal["auto", "status", "artifact"] = Field(
        "auto",
        description="How calls and results travel: in status updates, in artifacts, or as the client is known to read them.",
    )
    exposure: Exposure = Field(
        "full", description="What is shown of a call: all, not its result, its name only, nothing."
    )
    redact: tuple[_JsonPath, ...] = Field(
        (), description="What is masked, as JSON paths: `$.args.password`, `$.response.rows[*].email`, `$..token`."
    )
    max_result: Size = Field(size("64KiB"), gt=0, description="Largest result; of a larger one the beginning is shown.")
    rules: tuple[ToolCallsRule, ...] = Field((), description="Other settings for some callers; the first that fits.")


class ToolCommon(Settings):
    """The keys that every source of tools may have, whatever its type. The others belong to its type."""

    type: Text = Field(description="Kind of source.")
    allow: tuple[Text, ...] | None = Field(
        None, description="Which of its tools may be used, by name or pattern (`search_*`); all when not given."
    )
    timeout: Duration = Field(duration("60s"), gt=0, description="Longest time that one call may take.")
    required: bool = Field(
        True,
        description="A turn fails when the source cannot be reached; with `false` it goes on without these tools.",
    )
    max_result: Size = Field(size("64KiB"), gt=0, description="Largest result; more of it is cut off, and says so.")


class ToolConfig(ToolCommon):
    """One source of tools: the common keys, and `settings`, the model of its type."""

    name: Name
    settings: SerializeAsAny[BaseModel]


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
    approval_timeout: Duration = Field(
        duration("24h"),
        gt=0,
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

    @model_validator(mode="after")
    def _has_each_client_tool_once(self) -> Self:
        names = [tool.name for tool in self.client_tools]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ValueError(f"client_tools has {twice!r} twice")
        return self

    repeat_answer: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Whether a streamed answer comes once more, whole, at its end, as Google ADK needs it to remember it; "
        "`auto`: for clients that ask for ADK's extension.",
    )
    tool_calls: ToolCallsConfig = Field(ToolCallsConfig(), description="What callers see of tool calls.")

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


def refuse_window(history: HistoryConfig, owner: StorageOwner) -> None:
    """Raises: ValueError when less is to be sent of a conversation that is not sent at all."""
    windows = [f"history.{name}" for name in ("max_messages", "max_tokens") if getattr(history, name) is not None]
    if history.uncited_sources == "drop":
        windows.append("history.uncited_sources")
    if windows and owner is StorageOwner.BACKEND:
        raise ValueError(
            f"{' and '.join(windows)} can only limit a history that the gateway keeps, but history.owner is 'backend': "
            "remove that, or set `owner: gateway`"
        )
