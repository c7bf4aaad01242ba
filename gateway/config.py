"""gateway.yaml as frozen values: every setting, default and unit in one place. Law: only what is honoured is here."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializeAsAny,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from gateway.client_tools import NAME as TOOL_NAME
from gateway.commits import LONGEST_LEASE
from gateway.config_problem import ConfigInvalid, Problem
from gateway.config_text import (
    Duration,
    LocalPath,
    LongKey,
    Network,
    Size,
    TextOrFile,
    WebUrl,
    base_dir,
    duration,
    matching,
    size,
)
from gateway.items import StorageOwner
from gateway.loopback import is_loopback
from gateway.redaction import json_path
from gateway.schema_words import fault
from gateway.tool_calls import Exposure

__all__ = [
    "AgentCommon",
    "AgentConfig",
    "ApiKeysConfig",
    "ApprovalConfig",
    "AuthConfig",
    "CardConfig",
    "CardsConfig",
    "ClientToolConfig",
    "ConfigInvalid",
    "Duration",
    "ExtensionConfig",
    "GatewayConfig",
    "HistoryConfig",
    "LimitsConfig",
    "LocalPath",
    "Problem",
    "ProviderConfig",
    "PushConfig",
    "RetentionConfig",
    "ServerConfig",
    "Settings",
    "Size",
    "SkillConfig",
    "StorageConfig",
    "TextOrFile",
    "ToolCallsConfig",
    "ToolCommon",
    "ToolConfig",
    "WebUrl",
    "base_dir",
    "refuse_open_listen",
    "refuse_window",
]

NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_MEDIA_TYPE = re.compile(r"[^/\s;,]+/[^/\s;,]+")

_Text = Annotated[str, Field(min_length=1)]
_Name = Annotated[
    str,
    AfterValidator(matching(NAME, "must have 1 to 63 of a-z, 0-9 and -, and not begin with -")),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"}),
]
_ToolName = Annotated[
    str,
    AfterValidator(matching(TOOL_NAME, "must have 1 to 64 of a-z, A-Z, 0-9, _ and -")),
    WithJsonSchema({"type": "string", "pattern": f"^{TOOL_NAME.pattern}$"}),
]
_MediaType = Annotated[
    str,
    AfterValidator(matching(_MEDIA_TYPE, "must be a media type such as text/plain")),
    WithJsonSchema({"type": "string", "pattern": f"^{_MEDIA_TYPE.pattern}$"}),
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
_MediaTypes = Annotated[tuple[_MediaType, ...], Field(min_length=1)]
_Count = Annotated[int, Field(ge=1)]
_SQLITE = "sqlite:///"


class Settings(BaseModel):
    """One mapping of the file: frozen, unknown keys are errors. Adapters derive their own settings from it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


def _public_address(data: dict[str, Any]) -> str:
    host = data["host"]
    if host in {"0.0.0.0", "::", ""}:  # noqa: S104  # 'everywhere' is no address that a client can call
        host = "localhost"
    return f"http://{f'[{host}]' if ':' in host else host}:{data['port']}"


def _base_url(value: str) -> str:
    if "?" in value or "#" in value:
        raise ValueError("must not have a query or a fragment: paths are put behind it")
    return value.rstrip("/")


def _sqlite_url(value: str, info: ValidationInfo) -> str:
    path = value.removeprefix(_SQLITE)
    if path == value:
        raise ValueError("must start with sqlite:/// (the only storage there is): sqlite:///./data/gateway.db")
    if path in {"", ":memory:"} or "?" in path:
        raise ValueError("must name a file and nothing else: sqlite:///./data/gateway.db")
    return f"{_SQLITE}{base_dir(info) / Path(path)}"


class ServerConfig(Settings):
    """Where the gateway listens, and under which address clients reach it."""

    host: _Text = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0 lets the system choose one.")
    public_url: Annotated[WebUrl, AfterValidator(_base_url)] = Field(
        default_factory=_public_address,
        description="Address that clients use, as the cards say it; derived from host and port when not given.",
    )
    shutdown_grace: Duration = Field(
        duration("30s"), description="How long running turns may take to end after SIGTERM."
    )

    def bound_to(self, port: int) -> "ServerConfig":
        """The same settings once the system has chosen the port; a `public_url` that was given stays."""
        update: dict[str, Any] = {"port": port}
        if "public_url" not in self.model_fields_set:
            update["public_url"] = _public_address({"host": self.host, "port": port})
        return self.model_copy(update=update)


class StorageConfig(Settings):
    """Where contexts, tasks and events are kept."""

    url: Annotated[str, AfterValidator(_sqlite_url)] = Field(
        "sqlite:///./data/gateway.db",
        validate_default=True,
        description="sqlite:///PATH of the database file, relative to the folder of this file.",
    )
    auto_migrate: bool = Field(True, description="Bring the database to the current schema at start.")
    lease_timeout: Duration = Field(
        duration("5s"),
        gt=0,
        le=LONGEST_LEASE / 1000,
        description="Silence after which a process that shares the database counts as dead and others take its turns.",
    )


class ApiKeysConfig(Settings):
    """Keys that `a2a-gateway keys create` makes."""

    enabled: bool = Field(False, description="An API key is a way to say who calls.")


class AuthConfig(Settings):
    """Who may call."""

    mode: Literal["none", "any_of"] = Field(
        "none",
        description="`none`: everybody who can reach the gateway may use it, as one and the same caller. `any_of`: only who "
        "says who they are, in one of the ways that are enabled here.",
    )
    api_keys: ApiKeysConfig = Field(ApiKeysConfig(), description="Keys that `a2a-gateway keys create` makes.")

    @model_validator(mode="after")
    def _says_what_it_does(self) -> Self:
        if self.mode == "none" and self.api_keys.enabled:
            raise ValueError("api_keys are enabled, but nobody is asked for one: set `mode: any_of`")
        if self.mode == "any_of" and not self.api_keys.enabled:
            raise ValueError("mode: any_of needs a way to say who calls: set `api_keys: {enabled: true}`")
        return self


class LimitsConfig(Settings):
    """What one caller may ask for. Over a limit is an error for the caller, never a crash."""

    request_body: Size = Field(size("8MiB"), gt=0, description="Largest request body, files included.")
    json_depth: _Count = Field(100, description="Deepest nesting of JSON in a request.")
    parts: _Count = Field(1000, description="Most parts in a message.")
    reference_ids: _Count = Field(100, description="Most referenceTaskIds in a message.")
    extensions: _Count = Field(50, description="Most extensions in a request.")
    metadata: Size = Field(size("64KiB"), gt=0, description="Largest metadata, as JSON.")
    id_length: _Count = Field(256, description="Longest id, in characters.")
    turn_timeout: Duration = Field(
        duration("15m"), gt=0, description="Longest time that a turn may take; then it fails."
    )
    queued_turns_per_context: int = Field(
        8, ge=0, description="Turns that may wait behind the running one of a context."
    )
    tool_rounds: _Count = Field(20, description="Rounds of tools that a turn may have.")
    parallel_tools: _Count = Field(8, description="Tools of one round that may run at once.")
    requests_per_minute: int = Field(
        0,
        ge=0,
        description="Requests that one principal may make in a minute; so many may come at once. 0: no limit. With "
        "`auth.mode: none` all callers are one principal.",
    )
    runs_per_principal: int = Field(
        0, ge=0, description="Messages of one principal that may be worked on or wait, in this process. 0: no limit."
    )
    streams_per_principal: int | None = Field(
        None,
        ge=0,
        description="Open streams of one principal, in this process. 0: no limit. Not given: 100, or no limit with "
        "`auth.mode: none`.",
    )
    streams: _Count = Field(2000, description="Open streams of the whole process.")
    stream_buffer_events: _Count = Field(1000, description="Events that may wait for a slow reader of a stream.")
    stream_buffer_bytes: Size = Field(
        size("1MiB"), gt=0, description="Bytes that may wait for a slow reader of a stream."
    )
    stream_blocked: Duration = Field(
        duration("30s"),
        gt=0,
        description="A connection whose reader takes nothing for so long is closed; its stream can be resumed.",
    )
    stream_keepalive: Duration = Field(
        duration("15s"), gt=0, description="Silence after which a stream gets a comment."
    )


class RetentionConfig(Settings):
    """How long things are kept. What is over its time goes within the hour."""

    events: Duration = Field(
        duration("7d"),
        gt=0,
        description="The event log of a task, from its end: so long can its stream be resumed from any event.",
    )
    tasks: Duration = Field(
        duration("30d"),
        ge=duration("1d"),
        description="A task as GetTask and ListTasks tell it, and its idempotency keys, from its end. "
        "The conversation that it belongs to remembers it all the same.",
    )
    contexts_idle: Duration = Field(
        duration("90d"),
        ge=duration("1d"),
        description="A conversation with all that was said in it, from its last message. Its id is never used again.",
    )


class PushConfig(Settings):
    """Push notifications: what happens to a task is posted to where its caller wants it."""

    enabled: bool = Field(
        True, description="Offer them. Without them nothing is delivered, what was promised included."
    )
    allow_private_networks: tuple[Network, ...] = Field(
        (), description="Networks, as 10.1.0.0/16, that may be reached although they are not public."
    )
    allow_http: bool = Field(False, description="Also post to http:// addresses.")
    ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] = Field(
        (443, 8443), description="Ports that may be posted to; any when the list is empty."
    )
    timeout: Duration = Field(duration("15s"), gt=0, le=duration("5m"), description="Longest time of one post.")
    max_attempts: _Count = Field(
        10, description="Attempts to deliver an event, over 75 hours; then its configuration is stopped."
    )
    encryption_key: LongKey | None = Field(
        None,
        description="Encrypts tokens and credentials in the database; a key in the database itself when not given.",
    )
    signing: bool = Field(False, description="Sign notifications; the key is at `/.well-known/jwks.json`.")


class ProviderConfig(Settings):
    """Who offers the agents."""

    organization: _Text = Field(description="Name of the organisation.")
    url: WebUrl = Field(description="Its web page.")


class CardsConfig(Settings):
    """What all cards say."""

    provider: ProviderConfig | None = Field(None, description="Who offers the agents.")


class SkillConfig(Settings):
    """One thing that an agent can do, for its card."""

    id: _Text = Field(description="Id of the skill, unique in its card.")
    name: _Text = Field(description="Name for people.")
    description: _Text = Field(description="What the skill does.")
    tags: Annotated[tuple[_Text, ...], Field(min_length=1)] = Field(description="Keywords, at least one.")
    examples: tuple[_Text, ...] = Field((), description="Prompts that show what to ask.")
    input_modes: _MediaTypes | None = Field(
        None, description="Media types it takes, where they differ from the agent's."
    )
    output_modes: _MediaTypes | None = Field(
        None, description="Media types it gives, where they differ from the agent's."
    )


class ExtensionConfig(Settings):
    """An A2A extension that the card announces."""

    uri: _Text = Field(description="URI of the extension.")
    description: _Text | None = Field(None, description="How this agent uses it.")
    required: bool = Field(False, description="Refuse clients that do not name it.")
    params: dict[str, JsonValue] | None = Field(None, description="Parameters, as the extension defines them.")


class CardConfig(Settings):
    """What the agent's card says."""

    name: _Text | None = Field(None, description="Name for people; the agent's name in this file when not given.")
    description: _Text | None = Field(None, description="What the agent is for.")
    version: _Text = Field("1.0.0", description="Version of the agent.")
    documentation_url: WebUrl | None = Field(None, description="Where its documentation is.")
    icon_url: WebUrl | None = Field(None, description="Where its icon is.")
    skills: tuple[SkillConfig, ...] = Field((), description="What the agent can do.")
    input_modes: _MediaTypes | None = Field(None, description="Media types it takes; those of its type when not given.")
    output_modes: _MediaTypes | None = Field(
        None, description="Media types it gives; those of its type when not given."
    )
    extensions: tuple[ExtensionConfig, ...] = Field((), description="A2A extensions that the card announces.")
    tenant: _Name | None = Field(None, description="Tenant under which this agent answers.")


class HistoryConfig(Settings):
    """Who keeps the conversation, and how much of it is sent."""

    owner: Literal["backend", "gateway"] | None = Field(
        None, description="Who keeps the conversation; what the type does by itself when not given."
    )
    max_messages: _Count | None = Field(
        None, description="With a history kept by the gateway: most messages of it to send, the new one included."
    )
    max_tokens: _Count | None = Field(
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


class ApprovalConfig(Settings):
    """Which calls of the agent's tools somebody has to allow. The first rule that fits a call decides."""

    tool: _Text = Field(description="Pattern for SOURCE.TOOL, as `github.*`.")
    ask: bool = Field(True, description="Whether the caller is asked before such a call runs.")
    arguments: dict[_Text, str] = Field(
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

    principals: Annotated[tuple[_Text, ...], Field(min_length=1)] = Field(
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


class AgentCommon(Settings):
    """The keys that every agent may have, whatever its type. The others belong to its type."""

    type: _Text = Field(description="Kind of backend: the name of an adapter.")
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

    name: _Name
    settings: SerializeAsAny[BaseModel]


class ToolCommon(Settings):
    """The keys that every source of tools may have, whatever its type. The others belong to its type."""

    type: _Text = Field(description="Kind of source.")
    allow: tuple[_Text, ...] | None = Field(
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

    name: _Name
    settings: SerializeAsAny[BaseModel]


class GatewaySections(Settings):
    """Everything but the agents and the tools."""

    version: Literal[1] = Field(description="Version of this file's format: 1.")
    server: ServerConfig = Field(ServerConfig(), description="Where the gateway listens.")
    storage: StorageConfig = Field(StorageConfig(), description="Where state is kept.")
    auth: AuthConfig = Field(AuthConfig(), description="Who may call.")
    limits: LimitsConfig = Field(LimitsConfig(), description="What one caller may ask for.")
    retention: RetentionConfig = Field(RetentionConfig(), description="How long things are kept.")
    push: PushConfig = Field(PushConfig(), description="Push notifications.")
    cards: CardsConfig = Field(CardsConfig(), description="What all cards say.")


class GatewayConfig(GatewaySections):
    """The configuration of a gateway: where it listens, where it keeps state, and its agents."""

    tools: Mapping[str, ToolConfig] = Field({}, description="Sources of tools, by the name that agents use.")
    agents: Mapping[str, AgentConfig] = Field(
        min_length=1, description="The agents, by the name that their URLs carry."
    )


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


def refuse_open_listen(config: GatewayConfig, insecure: bool) -> Problem | None:
    """Why the gateway must not listen: other machines could reach it, and nobody is asked who they are."""
    host = config.server.host
    if insecure or is_loopback(host) or config.auth.mode != "none":
        return None
    message = (
        f"{host!r} can be reached from other machines and auth.mode is none, so anyone could use the agents; "
        "ask for API keys (auth: {mode: any_of, api_keys: {enabled: true}}), listen on 127.0.0.1, or start with --insecure if "
        "that is what you want"
    )
    return Problem(file=None, line=None, column=None, path="server.host", message=message)
