"""The settings models by path of the file: which keys may stand where, and whether a value is secret."""

import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo

from gateway.config.agents import AgentCommon
from gateway.config.gateway import GatewayConfig
from gateway.config.problems import KeyPath
from gateway.config.tools import ToolCommon
from gateway.foundation.text import did_you_mean


class PluginTypes(Protocol):
    """The installed types of agents and of tool sources, by the section of the file (`agents`, `tools`)."""

    def known(self, section: str) -> Sequence[str]: ...

    def settings_model(self, section: str, kind: str) -> type[BaseModel] | None:
        """The model of the type's own keys, None for an unknown type."""
        ...

    def takes_tools(self, kind: str) -> bool:
        """Whether an adapter of this type passes tools to its backend."""
        ...


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the file whose entries are named by the operator and have a `type` that a plug-in defines."""

    key: str
    noun: str
    common: type[AgentCommon] | type[ToolCommon]


AGENTS = Section("agents", "an agent", AgentCommon)
TOOLS = Section("tools", "a source", ToolCommon)
SECTIONS = {section.key: section for section in (AGENTS, TOOLS)}


@dataclass(frozen=True, slots=True)
class Shape:
    """What may stand at a path of the file. Two models describe an entry: the common keys, and those of its type."""

    plugins: PluginTypes
    data: object

    def keys(self, path: KeyPath) -> tuple[str, ...]:
        """Keys that a mapping at this path may have; none where it may have any."""
        names = [name for model in self._models(path) for name in fields(model)]
        return tuple(dict.fromkeys(names))

    def suggestion(self, path: KeyPath, word: str) -> str | None:
        """The key that an unknown one probably means: a similar one here, or the same one a level below."""
        known = self.keys(path)
        below = (key for key in known if any(word in fields(model) for model in self._models((*path, key))))
        return did_you_mean(word, known) or next((f"{key}.{word}" for key in below), None)

    def description(self, path: KeyPath) -> str | None:
        found = [fields(model).get(str(path[-1])) for model in self._models(path[:-1])] if path else []
        return next((field.description for field in found if field is not None and field.description), None)

    def is_secret(self, path: KeyPath) -> bool:
        return any(_holds_secret(kind) for kind in self._kinds(path))

    def _models(self, path: KeyPath) -> list[type[BaseModel]]:
        return [kind for kind in self._kinds(path) if _is_model(kind)]

    def _kinds(self, path: KeyPath) -> list[Any]:
        kinds: list[Any] = [GatewayConfig]
        rest = path
        if len(path) > 1 and (section := SECTIONS.get(str(path[0]))) is not None:
            model = settings_model(self.plugins, self.data, section, path[1])
            kinds, rest = [section.common, *([model] if model else [])], path[2:]
        for key in rest:
            kinds = [below for kind in kinds for below in _below(kind, key)]
        return kinds


def settings_model(plugins: PluginTypes, data: object, section: Section, entry: object) -> type[BaseModel] | None:
    entries = data.get(section.key) if isinstance(data, dict) else None
    match entries.get(entry) if isinstance(entries, dict) else None:
        case {"type": str() as kind}:
            return plugins.settings_model(section.key, kind)
    return None


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields by their keys in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _alternatives(kind: Any) -> list[Any]:
    """The types inside a type: what Annotated wraps, what a union joins."""
    origin = typing.get_origin(kind)
    if origin is typing.Annotated:
        return _alternatives(typing.get_args(kind)[0])
    if origin in {typing.Union, types.UnionType}:
        return [found for part in typing.get_args(kind) for found in _alternatives(part)]
    return [kind]


def _below(kind: Any, key: str | int) -> list[Any]:
    if _is_model(kind):
        field = fields(kind).get(str(key))
        return _alternatives(field.annotation) if field is not None else []
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if not isinstance(origin, type) or not arguments:
        return []
    if issubclass(origin, Mapping):
        return _alternatives(arguments[-1])
    return _alternatives(arguments[0]) if issubclass(origin, Iterable) else []


def _holds_secret(kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, SecretStr | SecretBytes):
        return True
    return any(_holds_secret(part) for part in typing.get_args(kind))
