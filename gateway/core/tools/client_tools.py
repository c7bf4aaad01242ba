"""The tools that a client runs, declared with a message or in the agent's settings. Law: pure; a declaration that is
too large or incomplete is refused with the name of its field; a schema is checked in linear time, and its references
are never fetched.

The check of jsonschema takes a second for 16 KiB of a hostile schema. The check in this module knows the keywords of
drafts 7 to 2020-12 and the type of value of each keyword; an unknown keyword may have any value.
"""

import re
from collections.abc import Callable, Container, Iterator, Sequence
from math import inf

import msgspec

from gateway.a2a.errors import InvalidParams, echo, invalid
from gateway.a2a.model import Json, Message, Part
from gateway.a2a.tool_calls import URI
from gateway.ports.tools import ToolDeclaration

AG2_SCHEMAS = "application/vnd.ag2.tool-schemas+json"
"""A part of this type declares the tools of an ag2 client, as its data."""

MOST = 64
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DESCRIPTION = 4096
_PARAMETERS = 16 * 1024

_ANYTHING: dict[str, Json] = {"type": "object"}

_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})

_A_SCHEMA = {"contains", "contentSchema", "else", "if", "not", "propertyNames", "then"} | {
    f"{which}{what}" for which in ("additional", "unevaluated") for what in ("Items", "Properties")
}
_SCHEMAS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_NAMED_SCHEMAS = frozenset({"$defs", "definitions", "dependentSchemas", "patternProperties", "properties"})
_REFERENCES = frozenset({"$dynamicRef", "$recursiveRef", "$ref"})

Fault = tuple[str, str]
"""The place, as `.properties.city.type`, and the fault."""


def fault(schema: Json) -> Fault | None:
    """The fault in the parameters of a tool, or None when they are a JSON Schema of an object."""
    if not isinstance(schema, dict):
        return "", f"must be the JSON Schema of an object, not {echo(schema)}"
    if schema.get("type", "object") != "object":
        return ".type", f"must be object, as arguments are, not {echo(schema['type'])}"
    return next(_faults(schema, schema, ""), None)


def _faults(schema: Json, root: dict[str, Json], at: str) -> Iterator[Fault]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield at, f"must be a JSON Schema, which is an object, true or false, not {echo(schema)}"
        return
    for word, value in schema.items():
        here = f"{at}.{word}"
        known = _VALUES.get(word)
        if known is not None and not known[0](value):
            yield here, f"must be {known[1]}, not {echo(value)}"
        elif word in _REFERENCES and isinstance(value, str) and not _resolves(value, root):
            yield here, f"must refer to something in the schema itself, as #/$defs/NAME; {echo(value)} is not in it"
        yield from _below(word, value, root, here)


def _below(word: str, value: Json, root: dict[str, Json], at: str) -> Iterator[Fault]:
    if word in _A_SCHEMA or (word == "items" and not isinstance(value, list)):
        yield from _faults(value, root, at)
    elif word in _SCHEMAS or word == "items":
        if not isinstance(value, list) or not (value or word == "items"):
            yield at, f"must be a list of JSON Schemas, not {echo(value)}"
            return
        for index, each in enumerate(value):
            yield from _faults(each, root, f"{at}[{index}]")
    elif word in _NAMED_SCHEMAS:
        if not isinstance(value, dict):
            yield at, f"must be an object of JSON Schemas, not {echo(value)}"
            return
        for name, each in value.items():
            yield from _faults(each, root, f"{at}.{name}")


def _resolves(reference: str, root: dict[str, Json]) -> bool:
    """Follows a pointer; any other name inside the schema counts as valid."""
    if not reference.startswith("#"):
        return False
    value: Json = root
    for step in reference[1:].split("/")[1:] if reference.startswith("#/") else ():
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return False
    return isinstance(value, dict | bool)


def _is_type(value: Json) -> bool:
    if isinstance(value, list):
        return bool(value) and _are_names(value) and _TYPES.issuperset(str(each) for each in value)
    return isinstance(value, str) and value in _TYPES


def _are_names(value: Json) -> bool:
    return (
        isinstance(value, list)
        and all(isinstance(each, str) for each in value)
        and len(set(map(str, value))) == len(value)
    )


def _at_least(least: float, *, whole: bool = False) -> Callable[[Json], bool]:
    def fits(value: Json) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        return value >= least and (not whole or isinstance(value, int) or value.is_integer())

    return fits


_NUMBER = _at_least(-inf), "a number"
_LENGTH = _at_least(0, whole=True), "a whole number, 0 or more"
_WORDS: tuple[Callable[[Json], bool], str] = (lambda value: isinstance(value, str)), "text"

_VALUES: dict[str, tuple[Callable[[Json], bool], str]] = {
    "type": (_is_type, f"one of {', '.join(sorted(_TYPES))}, or a list of them"),
    "required": (_are_names, "a list of names, each once"),
    "enum": ((lambda value: isinstance(value, list)), "a list"),
    "uniqueItems": ((lambda value: isinstance(value, bool)), "true or false"),
    "multipleOf": ((lambda value: _NUMBER[0](value) and value > 0), "a number above 0"),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum"), _NUMBER),
    **{f"{bound}{what}": _LENGTH for bound in ("max", "min") for what in ("Contains", "Items", "Length", "Properties")},
    **dict.fromkeys(("$anchor", "$id", "$schema", "description", "format", "pattern", "title", *_REFERENCES), _WORDS),
}
"""The values of keywords that hold no schemas: the check and its description."""


def declared(message: Message) -> tuple[ToolDeclaration, ...]:
    """The tools that the message declares, after `with_declarations`. None where they are not well-formed."""
    ours = (message.metadata or {}).get(URI)
    tools = ours.get("tools") if isinstance(ours, dict) else None
    if not isinstance(tools, list):
        return ()
    try:
        return tuple(_tool("tools", entry) for entry in tools)
    except InvalidParams:  # The message was never checked.
        return ()


def with_declarations(message: Message, taken: Container[str] = ()) -> Message:
    """The message with its declarations checked and collected in its metadata. `taken` are the names of the agent's
    tools.

    Raises: InvalidParams, which names the field.
    """
    ours = (message.metadata or {}).get(URI)
    members = ours if isinstance(ours, dict) else {}
    field = f"message.metadata[{URI!r}].tools"
    listed: list[tuple[str, Json]] = []
    if "tools" in members:
        if not isinstance(members["tools"], list):
            raise invalid(field, f"must be a list of tools, not {echo(members['tools'])}")
        listed += _numbered(field, members["tools"])
    rest: list[Part] = []
    for index, part in enumerate(message.parts):
        if part.media_type != AG2_SCHEMAS:
            rest.append(part)
            continue
        at = f"message.parts[{index}].data.tools"
        tools = part.data.get("tools") if isinstance(part.data, dict) else None
        if not isinstance(tools, list):
            raise invalid(at, "must be a list of tools")
        listed += _numbered(at, tools)
    if not listed:
        return message
    if len(listed) > MOST:
        raise invalid(field, f"must not have more than {MOST} tools, there are {len(listed)}")
    found: dict[str, ToolDeclaration] = {}
    for at, entry in listed:
        tool = _checked(at, entry)
        if tool.name in found:
            raise invalid(f"{at}.name", f"{tool.name!r} is declared twice")
        if tool.name in taken:
            raise invalid(f"{at}.name", f"{tool.name!r} is a tool of the agent's own; use another name")
        found[tool.name] = tool
    if not rest:
        raise invalid("message.parts", "a message needs more than the declaration of tools")
    declarations = [msgspec.to_builtins(tool) for tool in found.values()]
    metadata = {**(message.metadata or {}), URI: {**members, "tools": declarations}}
    return msgspec.structs.replace(message, parts=tuple(rest), metadata=metadata)


def _numbered(field: str, entries: list[Json]) -> Iterator[tuple[str, Json]]:
    return ((f"{field}[{index}]", entry) for index, entry in enumerate(entries))


def offered(configured: Sequence[ToolDeclaration], message: Message) -> tuple[ToolDeclaration, ...]:
    """The client's tools in the turn that this message opened. The client's declarations override the settings."""
    own = declared(message)
    names = {tool.name for tool in own}
    return (*own, *(tool for tool in configured if tool.name not in names))


def _checked(field: str, entry: Json) -> ToolDeclaration:
    tool = _tool(field, entry)
    if (wrong := fault(tool.parameters)) is not None:
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
