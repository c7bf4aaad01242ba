"""Declarations of what may be called: a tool with the schema of its arguments, a schema, a card. Law: pure; only what is known
to be a part of a declaration is one."""

from collections.abc import Mapping
from enum import Enum, auto

from gateway.a2a.model import Json


class Part(Enum):
    """A member of a declaration."""

    WORDS = auto()
    """It describes, whatever its value."""
    DECLARATION = auto()
    SCHEMA = auto()
    """A schema, or a list of schemas."""
    VALUES = auto()
    """Values of what it describes."""
    SCHEMAS = auto()
    """Schemas by the names of what they describe."""


Parts = Mapping[str, Part]


_SCHEMA: Parts = {
    **dict.fromkeys(
        {"$anchor", "$comment", "$id", "$ref", "$schema", "$vocabulary"}
        | {"contentEncoding", "contentMediaType", "dependentRequired", "deprecated", "description"}
        | {"discriminator", "exclusiveMaximum", "exclusiveMinimum", "format"}
        | {"maxContains", "maxItems", "maxLength", "maxProperties", "maximum"}
        | {"minContains", "minItems", "minLength", "minProperties", "minimum", "multipleOf", "nullable", "pattern"}
        | {"propertyOrdering", "readOnly", "required", "title", "type", "uniqueItems", "writeOnly"},
        Part.WORDS,
    ),
    **dict.fromkeys({"const", "default", "enum", "example", "examples"}, Part.VALUES),
    **dict.fromkeys(
        {"additionalItems", "additionalProperties", "contentSchema", "items", "prefixItems", "propertyNames"}
        | {"unevaluatedItems", "unevaluatedProperties"}
        | {"allOf", "anyOf", "contains", "else", "if", "not", "oneOf", "then"},
        Part.SCHEMA,
    ),
    **dict.fromkeys(
        {"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}, Part.SCHEMAS
    ),
}
"""Source: JSON Schema 2020-12 and draft 7, OpenAPI 3.0, Gemini."""

_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
"""In small letters: Gemini has them in capitals."""

_ARGUMENTS = ("inputSchema", "input_schema", "parameters", "parametersJsonSchema")
_TOOL: Parts = {
    **dict.fromkeys(
        ("annotations", "cache_control", "description", "idempotent", "name", "strict", "title", "type"), Part.WORDS
    ),
    **dict.fromkeys((*_ARGUMENTS, "outputSchema", "response", "responseJsonSchema"), Part.SCHEMA),
}
_NESTED: Parts = {"type": Part.WORDS, "function": Part.DECLARATION}


def parts_of(value: dict[str, Json], *, within: bool = False) -> Parts | None:
    """The members that may be parts of this declaration; None for what is no declaration. `within`: it stands where a
    declaration has another.
    """
    match value:
        case {"name": str(), "skills": list(), "capabilities": dict()}:
            return dict.fromkeys(value, Part.WORDS)
        case {"type": "function", "function": {"name": str(), "arguments": _}}:
            return None
        case {"type": "function", "function": {"name": str()}}:
            return _NESTED
        case {"name": str()} if within or any(_may_be_schema(value.get(name)) for name in _ARGUMENTS):
            return _TOOL
    return _SCHEMA if _is_schema(value) else None


def parts_of_schema(value: dict[str, Json]) -> Parts | None:
    """The same for what stands where a declaration has a schema."""
    return _SCHEMA if not value or (_has_type(value) and not _SCHEMA.keys().isdisjoint(value)) else None


def _may_be_schema(value: Json) -> bool:
    return value == {} or (isinstance(value, dict) and (_is_schema(value) or _is_object(value)))


def _is_schema(value: dict[str, Json]) -> bool:
    match value:
        case {"properties": dict(members)} if _has_type(value):
            return (bool(members) or _is_object(value)) and all(
                isinstance(member, bool) or (isinstance(member, dict) and parts_of_schema(member) is not None)
                for member in members.values()
            )
    return False


def _has_type(value: dict[str, Json]) -> bool:
    """Whether its types, if it has any, are those of schemas."""
    kinds = value.get("type", [])
    return all(
        isinstance(kind, str) and kind.lower() in _TYPES for kind in (kinds if isinstance(kinds, list) else [kinds])
    )


def _is_object(value: dict[str, Json]) -> bool:
    kind = value.get("type")
    return isinstance(kind, str) and kind.lower() == "object"
