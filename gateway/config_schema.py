"""The JSON Schema (draft 2020-12) of gateway.yaml, for editors. `${...}` may stand for every scalar."""

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from gateway.config import NAME, AgentCommon, GatewayConfig, GatewaySections
from gateway.config_words import SettingsResolver

Schema = dict[str, Any]

_REFERENCE = {"type": "string", "pattern": r"\$\{.+\}"}
_CONSTRAINTS = {"pattern", "maxLength", "enum", "const"}
_NOTES = ("title", "description", "default", "examples", "deprecated")
_DEFS = "#/$defs/"


def schema(resolver: SettingsResolver, types: Iterable[str]) -> Schema:
    """The file's schema, with one alternative per type of agent. Raises: ValueError for an unknown type."""
    models: dict[str, type[BaseModel]] = {}
    for adapter_type in types:
        model = resolver.settings_model(adapter_type)
        if model is None:
            raise ValueError(f"unknown type {adapter_type!r}")
        models[adapter_type] = model
    wanted: tuple[type[BaseModel], ...] = (GatewaySections, AgentCommon, *dict.fromkeys(models.values()))
    references, whole = models_json_schema([(model, "validation") for model in wanted], schema_generator=_Generator)
    definitions: Schema = whole["$defs"]

    def definition(model: type[BaseModel]) -> Schema:
        found: Schema = definitions[references[(model, "validation")]["$ref"].removeprefix(_DEFS)]
        return found

    root, common = definition(GatewaySections), definition(AgentCommon)
    agents = {f"agent:{name}": _agent(name, common, definition(model)) for name, model in models.items()}
    root = root | {
        "title": "gateway.yaml",
        "description": GatewayConfig.__doc__,
        "properties": root["properties"] | {"agents": _agents(agents)},
        "required": [*root["required"], "agents"],
    }
    definitions = {name: _with_references(body) for name, body in (definitions | agents).items()}
    root = _with_references(root)
    used = sorted(_reachable(root, definitions))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "$defs": {name: definitions[name] for name in used},
    }


class _Generator(GenerateJsonSchema):
    """Defaults as the file writes them, and no titles made of names."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # the same for every field
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        found = super().default_schema(schema)
        inner: Any = schema["schema"]
        while "serialization" not in inner and "schema" in inner:
            inner = inner["schema"]
        written = inner.get("serialization", {})
        if found.get("default") is not None and written.get("type") == "function-plain":
            found["default"] = written["function"](found["default"])
        if isinstance(found.get("default"), dict):  # the defaults of a section stand at its own keys
            del found["default"]
        return found


def _agent(adapter_type: str, common: Schema, settings: Schema) -> Schema:
    kind = common["properties"]["type"] | {"const": adapter_type}
    required = [*common.get("required", ()), *settings.get("required", ())]
    return {
        "type": "object",
        "description": settings.get("description", f"An agent of type {adapter_type}."),
        "properties": settings.get("properties", {}) | common["properties"] | {"type": kind},
        "required": list(dict.fromkeys(required)),
        "additionalProperties": settings.get("additionalProperties", True),
    }


def _agents(agents: Iterable[str]) -> Schema:
    return {
        "type": "object",
        "description": GatewayConfig.model_fields["agents"].description,
        "minProperties": 1,
        "propertyNames": {"pattern": f"^{NAME.pattern}$"},
        "additionalProperties": {"oneOf": [{"$ref": _DEFS + name} for name in agents]},
    }


def _with_references(node: Schema) -> Schema:
    """The schema with `${...}` allowed for every scalar that is not free text."""
    changed = dict(node)
    for keyword in ("properties", "$defs"):
        if keyword in node:
            changed[keyword] = {
                name: below
                if keyword == "properties" and name == "type" and "const" in below
                else _with_references(below)
                for name, below in node[keyword].items()
            }
    for keyword in ("items", "additionalProperties"):
        if isinstance(node.get(keyword), dict):
            changed[keyword] = _with_references(node[keyword])
    for keyword in ("anyOf", "prefixItems"):
        if keyword in node:
            changed[keyword] = [_with_references(below) for below in node[keyword]]
    kind = node.get("type")
    if kind in {"integer", "number", "boolean"} or (kind in {"string", None} and _CONSTRAINTS & node.keys()):
        notes = {keyword: changed.pop(keyword) for keyword in _NOTES if keyword in changed}
        return {"anyOf": [changed, _REFERENCE], **notes}
    return changed


def _reachable(root: Schema, definitions: Schema) -> set[str]:
    found: set[str] = set()
    waiting = list(_references(root))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting.extend(_references(definitions[name]))
    return found


def _references(node: object) -> Iterator[str]:
    match node:
        case dict():
            if isinstance(node.get("$ref"), str):
                yield node["$ref"].removeprefix(_DEFS)
            for below in node.values():
                yield from _references(below)
        case list():
            for below in node:
                yield from _references(below)
