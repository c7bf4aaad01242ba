"""What the settings' models say of a path, and plain words for what does not fit them. Secrets are never shown."""

import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gateway.config.agents import AgentCommon, ToolCommon
from gateway.config.gateway import GatewayConfig
from gateway.config.problems import KeyPath, Place, shown
from gateway.config.settings import EXPECTED, duration, duration_text, size, size_text
from gateway.config.yaml import typed
from gateway.foundation.text import did_you_mean


class SettingsResolver(Protocol):
    """Knows the types that an agent, and a source of tools, may have."""

    def settings_model(self, adapter_type: str) -> type[BaseModel] | None:
        """The model of the keys that belong to this type, None for an unknown type."""
        ...

    def known_types(self) -> Sequence[str]: ...

    def takes_tools(self, adapter_type: str) -> bool:
        """Does something of this type learn of the tools that an agent may call?"""
        ...

    def tool_model(self, tool_type: str) -> type[BaseModel] | None:
        """As `settings_model`, of a source of tools."""
        ...

    def known_tools(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the file whose entries have names of the operator's and a `type` that a plug-in brings."""

    key: str
    noun: str
    common: type[AgentCommon] | type[ToolCommon]
    model: Callable[[SettingsResolver, str], type[BaseModel] | None]
    known: Callable[[SettingsResolver], Sequence[str]]


AGENTS = Section(
    "agents",
    "an agent",
    AgentCommon,
    lambda resolver, name: resolver.settings_model(name),
    lambda resolver: resolver.known_types(),
)
TOOLS = Section(
    "tools",
    "a source",
    ToolCommon,
    lambda resolver, name: resolver.tool_model(name),
    lambda resolver: resolver.known_tools(),
)
SECTIONS = {section.key: section for section in (AGENTS, TOOLS)}


@dataclass(frozen=True, slots=True)
class Shape:
    """What may stand at a path of the file. An entry's mapping is two models: the common keys and its type's."""

    resolver: SettingsResolver
    data: object

    def keys(self, path: KeyPath) -> tuple[str, ...]:
        """Keys that a mapping at this path may have; none where any key may stand."""
        names = [name for model in self._models(path) for name in fields(model)]
        return tuple(dict.fromkeys(names))

    def suggestion(self, path: KeyPath, word: str) -> str | None:
        """The key that an unknown one probably means: a similar one here, or the same one a level further down."""
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
            model = settings_model(self.resolver, self.data, section, path[1])
            kinds, rest = [section.common, *([model] if model else [])], path[2:]
        for key in rest:
            kinds = [below for kind in kinds for below in _below(kind, key)]
        return kinds


def settings_model(resolver: SettingsResolver, data: object, section: Section, entry: object) -> type[BaseModel] | None:
    entries = data.get(section.key) if isinstance(data, dict) else None
    match entries.get(entry) if isinstance(entries, dict) else None:
        case {"type": str() as kind}:
            return section.model(resolver, kind)
    return None


def _is_model(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """By the key that the file has for each."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _alternatives(kind: Any) -> list[Any]:
    """The types behind a type: what Annotated wraps, what a union joins."""
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


@dataclass(frozen=True, slots=True)
class Misfit:
    """One of pydantic's errors at its path, with what the file says there."""

    error: ErrorDetails
    path: KeyPath
    value: object
    place: Place | None


def explain(misfit: Misfit, shape: Shape) -> str:
    """The message: what is so, what is allowed, what to do. A value is shown unless it is a secret."""
    kind, context = misfit.error["type"], misfit.error.get("ctx", {})
    match kind:
        case "missing":
            hint = shape.description(misfit.path)
            return "is required, but missing" + (f" ({_lower(hint)})" if hint else "")
        case "extra_forbidden":
            return _unknown_key(misfit.path, shape)
        case "value_error" | "assertion_error":
            return _own_words(misfit, shape, str(context.get("error", misfit.error["msg"]))) + _origin(misfit)
    context = _limits(context, misfit.value)
    requirement = _requirement(kind, context, misfit.error["msg"])
    found, remedy = _found(misfit, shape), _remedy(misfit, kind, context)
    return requirement + found + _origin(misfit) + remedy


def _origin(misfit: Misfit) -> str:
    return f" (from {misfit.place.reference})" if misfit.place and misfit.place.reference else ""


def _lower(sentence: str) -> str:
    text = sentence.strip().rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


def _unknown_key(path: KeyPath, shape: Shape) -> str:
    suggestion = shape.suggestion(path[:-1], str(path[-1]))
    if suggestion is not None:
        return f"unknown key; did you mean {suggestion!r}?"
    return f"unknown key; known here: {', '.join(shape.keys(path[:-1]))}"


def _own_words(misfit: Misfit, shape: Shape, message: str) -> str:
    """A validator's own text; it must not repeat a secret, whatever the validator's author thought."""
    if isinstance(misfit.value, str) and misfit.value and shape.is_secret(misfit.path):
        message = message.replace(misfit.value, "***")
    return message


_REQUIREMENTS: dict[str, str | Callable[[dict[str, Any]], str]] = {
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "string_type": "must be text",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "set_type": "must be a list",
    "frozen_set_type": "must be a list",
    "dict_type": "must be a mapping (lines of `key: value`)",
    "model_type": "must be a mapping (lines of `key: value`)",
    "model_attributes_type": "must be a mapping (lines of `key: value`)",
    "greater_than": lambda limit: f"must be more than {limit['gt']}",
    "greater_than_equal": lambda limit: f"must be at least {limit['ge']}",
    "less_than": lambda limit: f"must be less than {limit['lt']}",
    "less_than_equal": lambda limit: f"must be at most {limit['le']}",
    "too_short": lambda limit: (
        f"must have at least {limit['min_length']} entr{'y' if limit['min_length'] == 1 else 'ies'}"
    ),
    "too_long": lambda limit: f"must have at most {limit['max_length']} entries",
    "string_too_short": lambda limit: (
        "must not be empty" if limit["min_length"] == 1 else f"must have at least {limit['min_length']} characters"
    ),
    "string_too_long": lambda limit: f"must have at most {limit['max_length']} characters",
    "string_pattern_mismatch": lambda limit: f"must match the pattern {limit['pattern']}",
    "literal_error": lambda limit: f"must be {_choices_text(limit)}",
    "enum": lambda limit: f"must be {_choices_text(limit)}",
}


@dataclass(frozen=True, slots=True)
class _Unit:
    """A quantity that the file has as text, and only the models as a number."""

    read: Callable[[str], float]
    written: Callable[[float], str]
    units: str


_UNITS = (
    _Unit(duration, duration_text, "ms, s, m, h, d"),
    _Unit(size, lambda limit: size_text(int(limit)), "B, kB, KiB, MB, MiB, GB, GiB"),
)
_LIMITS = frozenset({"gt", "ge", "lt", "le"})


def _unit(value: object) -> _Unit | None:
    for unit in _UNITS if isinstance(value, str) else ():
        try:
            unit.read(str(value))
        except ValueError:
            continue
        return unit
    return None


def _limits(context: dict[str, Any], value: object) -> dict[str, Any]:
    """The same with limits written as the file would write them."""
    unit = _unit(value)
    return {
        name: limit if name not in _LIMITS else f"{limit:g}" if unit is None else unit.written(limit)
        for name, limit in context.items()
    }


def _requirement(kind: str, context: dict[str, Any], message: str) -> str:
    known = _REQUIREMENTS.get(kind)
    if known is None:
        return message if kind == EXPECTED else _lower(message.replace("Input should be", "must be"))
    return known if isinstance(known, str) else known(context)


def _choices_text(context: dict[str, Any]) -> str:
    return str(context["expected"]).replace("'", "")


def _found(misfit: Misfit, shape: Shape) -> str:
    if shape.is_secret(misfit.path) or misfit.value == "" or isinstance(misfit.value, list):
        return ""
    return f", not {shown(misfit.value, misfit.place.text if misfit.place else None)}"


def _remedy(misfit: Misfit, kind: str, context: dict[str, Any]) -> str:
    value, place = misfit.value, misfit.place
    if _LIMITS & context.keys() and (unit := _unit(value)) is not None:
        return f"; the units are {unit.units}"
    match kind:
        case "literal_error" | "enum" if isinstance(value, str):
            meant = did_you_mean(value, re.findall(r"'([^']*)'", str(context["expected"])))
            return f"; did you mean {meant!r}?" if meant else ""
        case "string_type" if isinstance(value, bool | int | float):
            return "; put it in quotes"
        case "bool_type" if isinstance(value, str) and value.lower() in {"yes", "no", "on", "off"}:
            return "; YAML 1.2 reads yes, no, on and off as text"
        case "int_type" | "float_type" | "bool_type" if isinstance(value, str) and place is not None and place.quoted:
            return "" if isinstance(typed(value), str) else "; remove the quotes"
    return ""
