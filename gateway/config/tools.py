"""The settings of tools: their sources, tools that callers run, approvals, what callers see of calls.

Law: as in `gateway.config.gateway`.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, JsonValue, SerializeAsAny, WithJsonSchema

from gateway.a2a.redaction import json_path
from gateway.a2a.tool_calls import Exposure
from gateway.config.settings import Name, Settings, Size, Text, TimeLimit, duration, matching, size
from gateway.core.tools.client_tools import NAME as TOOL_NAME
from gateway.core.tools.client_tools import fault

_ToolName = Annotated[
    str,
    AfterValidator(matching(TOOL_NAME, "must have 1 to 64 of a-z, A-Z, 0-9, _ and -")),
    WithJsonSchema({"type": "string", "pattern": f"^{TOOL_NAME.pattern}$"}),
]


def _call_path(text: str) -> str:
    """Raises: ValueError, also for a path to nothing that a call has, which would mask nothing."""
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


_JsonPath = Annotated[str, AfterValidator(_call_path)]


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
    timeout: TimeLimit = Field(duration("60s"), description="Longest time that one call may take.")
    required: bool = Field(
        True,
        description="A turn fails when the source cannot be reached; with `false` it goes on without these tools.",
    )
    max_result: Size = Field(size("64KiB"), gt=0, description="Largest result; more of it is cut off, and says so.")


class ToolConfig(ToolCommon):
    """One source of tools: the common keys, and `settings`, the model of its type."""

    name: Name
    settings: SerializeAsAny[BaseModel]
