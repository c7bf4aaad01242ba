"""A configuration as the text of a gateway.yaml: everything in force, defaults marked. Law: secrets are masked."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, SecretBytes, SecretStr

from gateway.config.agents import AgentConfig
from gateway.config.gateway import GatewayConfig
from gateway.config.problems import without_credentials
from gateway.config.storage import StorageConfig
from gateway.config.tools import ToolConfig
from gateway.config.yaml import scalar

MASK = "***"

_PLAIN = re.compile(r"[A-Za-z./][A-Za-z0-9_./:+-]*[A-Za-z0-9_/]|[A-Za-z]|[0-9]+[A-Za-z]+")
_SECRET = re.compile(r"authorization|headers?$|token$|secret|password|credential|api[-_]?key", re.IGNORECASE)
_DEFAULT = "  # default"


def inline(value: object) -> str:
    """A scalar, a list or a mapping on one line; text in quotes where YAML would read it as something else."""
    match value:
        case str() if isinstance(scalar(value), str) and _PLAIN.fullmatch(value):
            return value
        case _:
            return json.dumps(value, ensure_ascii=False)


def escape_references(text: str) -> str:
    """The text for a file in which `${` begins a reference."""
    return text.replace("${", "$${")


def dump(config: GatewayConfig) -> str:
    """The whole file. It loads again to the same configuration, except for masked values."""
    lines: list[str] = []
    for name in type(config).model_fields:
        if name == "storage":
            lines += ["storage:", *_entry(config.storage, "  ")]
        elif name not in {"tools", "agents"}:
            lines += _fields(config, [name], "")
    for key, entries in (("tools", config.tools), ("agents", config.agents)):
        lines.append(f"{key}:" if entries else f"{key}: {{}}{_DEFAULT}")
        for name, entry in entries.items():
            lines += [f"  {inline(name)}:", *_entry(entry, "    ")]
    return "\n".join(lines) + "\n"


def _entry(entry: AgentConfig | ToolConfig | StorageConfig, indent: str) -> Iterator[str]:
    common = [name for name in type(entry).model_fields if name not in {"name", "settings"}]
    yield from _fields(entry, common, indent)
    own = type(entry.settings).model_fields
    yield from _fields(entry.settings, [name for name in own if (own[name].alias or name) not in common], indent)


def _fields(model: BaseModel, names: Iterable[str], indent: str) -> Iterator[str]:
    dumped = model.model_dump(mode="json")
    for name in names:
        value = getattr(model, name)
        key = type(model).model_fields[name].alias or name
        if isinstance(value, BaseModel):
            yield f"{indent}{key}:"
            yield from _fields(value, type(value).model_fields, f"{indent}  ")
        else:
            is_default = name not in model.model_fields_set or value == type(model).model_fields[name].default
            mark = _DEFAULT if is_default else ""
            shown = _public(value, dumped[name])
            if isinstance(model, StorageConfig) and name == "url":
                shown = escape_references(model.address)
            yield f"{indent}{key}: {inline(shown)}{mark}"


def _public(value: object, dumped: Any) -> Any:
    """The JSON of a value without secrets; `dumped` is pydantic's JSON of the same value."""
    match value:
        case SecretStr() | SecretBytes():
            return MASK
        case BaseModel():
            return {
                key: _public(getattr(value, key), below) for key, below in dumped.items() if below not in (None, [])
            }
        case Mapping():
            return {str(key): _masked(str(key), _public(value[key], dumped[key])) for key in value}
        case list() | tuple():
            return [_public(below, text) for below, text in zip(value, dumped, strict=True)]
        case _:
            return escape_references(without_credentials(dumped)) if isinstance(dumped, str) else dumped


def _masked(key: str, value: Any) -> Any:
    """Settings of free JSON, such as those of a tool, hold secrets under the usual names."""
    match value:
        case str() if value and _SECRET.search(key):
            return MASK
        case dict() if _SECRET.search(key):
            return {below: _masked(key, under) for below, under in value.items()}
        case _:
            return value
