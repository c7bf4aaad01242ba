"""The tools that a client runs: what it declares with its message, what its agent's settings declare. Law: pure; what is
declared is small and whole, or its sender is told what is not."""

import re
from collections.abc import Container, Sequence

import msgspec

from gateway.errors import InvalidParams, echo, invalid
from gateway.model import Json, Message, Part
from gateway.schema_words import fault
from gateway.tool_calls import URI
from gateway.tool_port import ToolDeclaration

AG2_SCHEMAS = "application/vnd.ag2.tool-schemas+json"
"""A part of this type declares the tools of an ag2 client, as its data."""

MOST = 64
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DESCRIPTION = 4096
_PARAMETERS = 16 * 1024

_ANYTHING: dict[str, Json] = {"type": "object"}


def declared(message: Message) -> tuple[ToolDeclaration, ...]:
    """What this message declares, as `with_declarations` left it. Nothing where it is not well-formed."""
    ours = (message.metadata or {}).get(URI)
    tools = ours.get("tools") if isinstance(ours, dict) else None
    if not isinstance(tools, list):
        return ()
    try:
        return tuple(_tool("tools", entry) for entry in tools)
    except InvalidParams:  # of a message that nobody had checked
        return ()


def with_declarations(message: Message, taken: Container[str] = ()) -> Message:
    """The message with its declarations checked, and all of them in its metadata. `taken`: names that others have.

    Raises: InvalidParams naming the field.
    """
    ours = (message.metadata or {}).get(URI)
    field = f"message.metadata[{URI!r}].tools"
    listed: list[tuple[str, Json]] = []
    if isinstance(ours, dict) and "tools" in ours:
        if not isinstance(ours["tools"], list):
            raise invalid(field, f"must be a list of tools, not {echo(ours['tools'])}")
        listed += [(f"{field}[{index}]", entry) for index, entry in enumerate(ours["tools"])]
    rest: list[Part] = []
    for index, part in enumerate(message.parts):
        if part.media_type != AG2_SCHEMAS:
            rest.append(part)
            continue
        at = f"message.parts[{index}].data.tools"
        tools = part.data.get("tools") if isinstance(part.data, dict) else None
        if not isinstance(tools, list):
            raise invalid(at, "must be a list of tools")
        listed += [(f"{at}[{number}]", entry) for number, entry in enumerate(tools)]
    if not listed:
        return message
    if len(listed) > MOST:
        raise invalid(field, f"must not have more than {MOST} tools, there are {len(listed)}")
    names: set[str] = set()
    found: list[ToolDeclaration] = []
    for at, entry in listed:
        tool = _checked(at, entry)
        if tool.name in names:
            raise invalid(f"{at}.name", f"{tool.name!r} is declared twice")
        if tool.name in taken:
            raise invalid(f"{at}.name", f"{tool.name!r} is a tool of the agent's own; use another name")
        names.add(tool.name)
        found.append(tool)
    if not rest:
        raise invalid("message.parts", "a message needs more than the declaration of tools")
    others = ours if isinstance(ours, dict) else {}
    metadata = {**(message.metadata or {}), URI: {**others, "tools": [msgspec.to_builtins(tool) for tool in found]}}
    return msgspec.structs.replace(message, parts=tuple(rest), metadata=metadata)


def offered(configured: Sequence[ToolDeclaration], message: Message) -> tuple[ToolDeclaration, ...]:
    """The client's tools in the turn that this message opened. What the client declares goes before the settings."""
    own = declared(message)
    names = {tool.name for tool in own}
    return (*own, *(tool for tool in configured if tool.name not in names))


def _checked(field: str, entry: Json) -> ToolDeclaration:
    tool = _tool(field, entry)
    wrong = fault(tool.parameters)
    if wrong is not None:
        raise invalid(f"{field}.parameters{wrong[0]}", wrong[1])
    return tool


def _tool(field: str, entry: Json) -> ToolDeclaration:
    if not isinstance(entry, dict):
        raise invalid(field, f"must be an object with name, description and parameters, not {echo(entry)}")
    name, description = entry.get("name"), entry.get("description")
    parameters = entry.get("parameters")
    if not isinstance(name, str) or NAME.fullmatch(name) is None:
        raise invalid(f"{field}.name", f"must be 1 to 64 of a-z, A-Z, 0-9, _ and -, not {echo(name)}")
    if description is not None and (not isinstance(description, str) or len(description) > _DESCRIPTION):
        raise invalid(f"{field}.description", f"must be text of up to {_DESCRIPTION} characters")
    if parameters is not None and not isinstance(parameters, dict):
        raise invalid(f"{field}.parameters", f"must be the JSON Schema of an object, not {echo(parameters)}")
    if parameters and (length := len(msgspec.json.encode(parameters))) > _PARAMETERS:
        raise invalid(f"{field}.parameters", f"must not be larger than {_PARAMETERS} bytes of JSON, it has {length}")
    return ToolDeclaration(name, description or "", parameters or _ANYTHING)
