"""The JSON Schema (draft 2020-12) of gateway.yaml, for editors. Law: every scalar may be a `${...}`."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from gateway.config.gateway import GatewayConfig, GatewaySections
from gateway.config.settings import NAME
from gateway.config.shape import AGENTS, SECTIONS, STORAGE, PluginTypes, Section, storage_scheme
from gateway.config.storage import StorageCommon

Schema = dict[str, Any]

_REFERENCE = {"type": "string", "pattern": r"\$\{.+\}"}
_CONSTRAINTS = {"pattern", "maxLength", "enum", "const"}
_NOTES = ("title", "description", "default", "examples", "deprecated")
_DEFS = "#/$defs/"


def schema(plugins: PluginTypes) -> Schema:
    """The schema of the file, with one alternative for each type of agent and of tools, and each kind of storage."""
    models = {
        (key, name): model
        for key in (*SECTIONS, STORAGE)
        for name in plugins.known(key)
        if (model := plugins.settings_model(key, name)) is not None
    }
    common = [*(section.common for section in SECTIONS.values()), StorageCommon]
    wanted: tuple[type[BaseModel], ...] = (GatewaySections, *common, *dict.fromkeys(models.values()))
    references, whole = models_json_schema([(model, "validation") for model in wanted], schema_generator=_Generator)
    definitions: Schema = whole["$defs"]

    def definition(model: type[BaseModel]) -> Schema:
        found: Schema = definitions[references[(model, "validation")]["$ref"].removeprefix(_DEFS)]
        return found

    root = definition(GatewaySections)
    entries = {
        entry_name(key, name): _storage(name, definition(StorageCommon), definition(model))
        if key == STORAGE
        else _entry(SECTIONS[key], name, definition(SECTIONS[key].common), definition(model))
        for (key, name), model in models.items()
    }
    storage = {
        "description": GatewayConfig.model_fields[STORAGE].description,
        # A URL from a variable may be of any kind.
        "anyOf": [{"$ref": _DEFS + entry_name(STORAGE, name)} for key, name in models if key == STORAGE],
    }
    maps = {
        key: _map(key, [entry_name(key, name) for other, name in models if other == key], required=key == AGENTS.key)
        for key in reversed(SECTIONS)
    }
    root = root | {
        "title": "gateway.yaml",
        "description": GatewayConfig.__doc__,
        "properties": root["properties"] | {STORAGE: storage} | maps,
        "required": [*root["required"], AGENTS.key],
    }
    definitions = {name: _with_references(body) for name, body in (definitions | entries).items()}
    root = _with_references(root)
    used: set[str] = set()
    _add_reachable(root, definitions, used)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **root,
        "$defs": {name: definitions[name] for name in sorted(used)},
    }


def entry_name(key: str, kind: str) -> str:
    """The definition of an entry of this type in `agents` or `tools`, or of this kind of storage."""
    return f"{key.removesuffix('s')}:{kind}"


class _Generator(GenerateJsonSchema):
    """Defaults in the form of the file, and no titles made of names."""

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
        if isinstance(found.get("default"), dict):  # the keys of a section have defaults of their own
            del found["default"]
        return found


def _entry(section: Section, kind: str, common: Schema, settings: Schema) -> Schema:
    type_key = common["properties"]["type"] | {"const": kind}
    required = [*common.get("required", ()), *settings.get("required", ())]
    return {
        "type": "object",
        "description": settings.get("description", f"{section.noun.capitalize()} of type {kind}."),
        "properties": settings.get("properties", {}) | common["properties"] | {"type": type_key},
        "required": list(dict.fromkeys(required)),
        "additionalProperties": settings.get("additionalProperties", True),
    }


def _storage(kind: str, common: Schema, settings: Schema) -> Schema:
    """The section with a URL of this kind. It has to be given where the default is of another kind."""
    url = common["properties"]["url"] | settings["properties"]["url"]
    if "const" not in url:
        url["pattern"] = f"^{re.escape(kind)}:"
    required = [name for name in settings.get("required", ()) if name != "url"]
    if kind != storage_scheme({}):
        required = ["url", *required]
        url.pop("default")
    return {
        "type": "object",
        "description": settings.get("description", f"Storage of kind {kind}."),
        "properties": settings["properties"] | common["properties"] | {"url": url},
        "required": required,
        "additionalProperties": settings.get("additionalProperties", True),
    }


def _map(key: str, entries: Iterable[str], *, required: bool) -> Schema:
    return {
        "type": "object",
        "description": GatewayConfig.model_fields[key].description,
        **({"minProperties": 1} if required else {}),
        "propertyNames": {"pattern": f"^{NAME.pattern}$"},
        "additionalProperties": {"oneOf": [{"$ref": _DEFS + name} for name in entries]},
    }


def _with_references(node: Schema) -> Schema:
    """The schema with `${...}` allowed for every scalar that is not free text."""
    changed = dict(node)
    if "properties" in node:
        changed["properties"] = {
            name: below if name == "type" and "const" in below else _with_references(below)
            for name, below in node["properties"].items()
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


def _add_reachable(node: object, definitions: Schema, found: set[str]) -> None:
    for name in _references(node):
        if name not in found:
            found.add(name)
            _add_reachable(definitions[name], definitions, found)


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
