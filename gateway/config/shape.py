"""The settings models by path of the file: what may stand where, and plain words for a value that does not fit.

Law: a secret is never shown.
"""

import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from pydantic import BaseModel, SecretBytes, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gateway.config.agents import AgentCommon
from gateway.config.gateway import GatewayConfig
from gateway.config.problems import KeyPath, Place, display
from gateway.config.settings import EXPECTED, duration, duration_text, size, size_text
from gateway.config.storage import DEFAULT_URL, TEMPORARY, StorageCommon
from gateway.config.tools import ToolCommon
from gateway.config.yaml import scalar
from gateway.foundation.spellings import SHORTEST_SECRET
from gateway.foundation.text import did_you_mean


class PluginTypes(Protocol):
    """The installed types of agents, of tool sources and of storage, by the section of the file (`agents`, `tools`,
    `storage`). The type of storage is the scheme of its URL."""

    def known(self, section: str) -> Sequence[str]: ...

    def settings_model(self, section: str, kind: str) -> type[BaseModel] | None:
        """The model of the type's own keys, None for an unknown type."""
        ...

    def takes_tools(self, kind: str) -> bool:
        """Whether an adapter of this type passes tools to its backend."""
        ...


class Section(msgspec.Struct, frozen=True):
    """A part of the file whose entries are named by the operator and have a `type` that a plug-in defines."""

    key: str
    noun: str
    common: type[AgentCommon] | type[ToolCommon]


AGENTS = Section("agents", "an agent", AgentCommon)
TOOLS = Section("tools", "a source", ToolCommon)
SECTIONS = {section.key: section for section in (AGENTS, TOOLS)}
STORAGE = "storage"
"""The section that is one entry of this kind; what a file says of it may be wanting altogether."""

_URL: KeyPath = (STORAGE, "url")
_CREDENTIALS = re.compile("[:@=]")
"""Credentials in a URL, behind its scheme, have one of these before or behind them, also where it is mistyped."""
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


class Shape(msgspec.Struct, frozen=True):
    """What may stand at a path of the file. Two models describe an entry, and the storage: the common keys, and those of
    its type."""

    plugins: PluginTypes
    data: object

    def keys(self, path: KeyPath) -> tuple[str, ...]:
        """Keys that a mapping at this path may have; none where it may have any."""
        names = [name for model in self._models(path) for name in fields(model)]
        return tuple(dict.fromkeys(names))

    def holds_entries(self, path: KeyPath) -> bool:
        """Whether the operator chooses the keys of the mapping at this path."""
        return len(path) == 1 and path[0] in SECTIONS

    def suggestion(self, path: KeyPath, word: str) -> str | None:
        """The key that an unknown one probably means: a similar one here, or the same one a level below."""
        known = self.keys(path)
        below = (key for key in known if any(word in fields(model) for model in self._models((*path, key))))
        return did_you_mean(word, known) or next((f"{key}.{word}" for key in below), None)

    def description(self, path: KeyPath) -> str | None:
        found = [fields(model).get(str(path[-1])) for model in self._models(path[:-1])] if path else []
        return next((field.description for field in found if field is not None and field.description), None)

    def is_secret(self, path: KeyPath) -> bool:
        return path == _URL or any(_holds_secret(kind) for kind in self._kinds(path))

    def _models(self, path: KeyPath) -> list[type[BaseModel]]:
        return [kind for kind in self._kinds(path) if _is_model(kind)]

    def _kinds(self, path: KeyPath) -> list[Any]:
        kinds: list[Any] = [GatewayConfig]
        rest = path
        if len(path) > 1 and (section := SECTIONS.get(str(path[0]))) is not None:
            model = settings_model(self.plugins, self.data, section, path[1])
            kinds, rest = [section.common, *([model] if model else [])], path[2:]
        elif path and path[0] == STORAGE:
            model = storage_model(self.plugins, self.data)
            kinds, rest = [StorageCommon, *([model] if model else [])], path[1:]
        for key in rest:
            kinds = [below for kind in kinds for below in _below(kind, key)]
        return kinds


def settings_model(plugins: PluginTypes, data: object, section: Section, entry: object) -> type[BaseModel] | None:
    entries = data.get(section.key) if isinstance(data, dict) else None
    match entries.get(entry) if isinstance(entries, dict) else None:
        case {"type": str() as kind}:
            return plugins.settings_model(section.key, kind)
    return None


def storage_scheme(storage: object) -> str | None:
    """The scheme of the URL in the section; None where that has none."""
    url = storage.get("url", DEFAULT_URL) if isinstance(storage, dict) else None
    if url == TEMPORARY:
        return TEMPORARY
    found = _SCHEME.match(url) if isinstance(url, str) else None
    return found and found[1]


def storage_model(plugins: PluginTypes, data: object) -> type[BaseModel] | None:
    scheme = storage_scheme(data.get(STORAGE, {}) if isinstance(data, dict) else None)
    return None if scheme is None else plugins.settings_model(STORAGE, scheme)


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
    if _is_model(kind):
        # A secret may stand in the place of the mapping that should hold it.
        return any(_holds_secret(field.annotation) for field in kind.model_fields.values())
    return any(_holds_secret(part) for part in typing.get_args(kind))


class Misfit(msgspec.Struct, frozen=True):
    """One of pydantic's errors at its path in the file, with the value there."""

    error: ErrorDetails
    path: KeyPath
    value: object
    place: Place | None


def explain(misfit: Misfit, shape: Shape) -> str:
    """The message: the value, what is allowed, the remedy. A secret value is left out."""
    kind, context = misfit.error["type"], misfit.error.get("ctx", {})
    origin = f" (from {misfit.place.reference})" if misfit.place and misfit.place.reference else ""
    match kind:
        case "missing":
            hint = shape.description(misfit.path)
            return "is required, but missing" + (f" ({_lower(hint)})" if hint else "")
        case "extra_forbidden":
            *above, key = misfit.path
            suggestion = shape.suggestion(tuple(above), str(key))
            known = ", ".join(shape.keys(tuple(above)))
            return f"unknown key; did you mean {suggestion!r}?" if suggestion else f"unknown key; known here: {known}"
        case "value_error" | "assertion_error":
            message = str(context.get("error", misfit.error["msg"]))
            if isinstance(misfit.value, str) and shape.is_secret(misfit.path) and _holds_some(misfit):
                message = message.replace(misfit.value, "***")
            return message + origin
        case "union_tag_not_found":
            return f"needs {context['discriminator']}, which says of what form it is" + origin
        case "union_tag_invalid":
            known = str(context["expected_tags"]).replace("'", "")
            return f"{context['discriminator']} must be one of {known}, not {display(context['tag'])}" + origin
    context = _limits(context, misfit.value)
    requirement = _requirement(kind, context, misfit.error["msg"])
    return requirement + _found(misfit, shape) + origin + _remedy(misfit, kind, context)


def _holds_some(misfit: Misfit) -> bool:
    """Whether the text at the path of a secret holds one. What holds none may be a part of the error's own words: so may a
    beginning of a URL, such as that of an example."""
    value = str(misfit.value)
    if misfit.path == _URL:
        return _CREDENTIALS.search(value.partition(":")[2]) is not None
    return len(value) >= SHORTEST_SECRET


def _lower(sentence: str) -> str:
    text = sentence.strip().rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() else text


_REQUIREMENTS: dict[str, str | Callable[[dict[str, Any]], str]] = {
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), "must be a whole number"),
    **dict.fromkeys(("float_type", "float_parsing"), "must be a number"),
    "finite_number": "must be a finite number",
    **dict.fromkeys(("bool_type", "bool_parsing"), "must be true or false"),
    "string_type": "must be text",
    **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type"), "must be a list"),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), "must be a mapping (lines of `key: value`)"),
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
    **dict.fromkeys(("literal_error", "enum"), lambda limit: "must be " + str(limit["expected"]).replace("'", "")),
}


_QUANTITIES: tuple[tuple[Callable[[str], float], Callable[[float], str], str], ...] = (
    (duration, duration_text, "ms, s, m, h, d"),
    (size, lambda limit: size_text(int(limit)), "B, kB, KiB, MB, MiB, GB, GiB"),
)
_LIMITS = frozenset({"gt", "ge", "lt", "le"})


def _unit(value: object) -> tuple[Callable[[float], str], str] | None:
    """The text form of a limit and the units, where the value is a quantity, which is text in the file and a number later."""
    for read, write, units in _QUANTITIES if isinstance(value, str) else ():
        with suppress(ValueError):
            read(str(value))
            return write, units
    return None


def _limits(context: dict[str, Any], value: object) -> dict[str, Any]:
    """The same with limits in the form that the file has for them."""
    unit = _unit(value)
    write = unit[0] if unit else "{:.15g}".format
    return {name: write(limit) if name in _LIMITS else limit for name, limit in context.items()}


def _requirement(kind: str, context: dict[str, Any], message: str) -> str:
    known = _REQUIREMENTS.get(kind)
    if known is None:
        return message if kind == EXPECTED else _lower(message.replace("Input should be", "must be"))
    return known if isinstance(known, str) else known(context)


def _found(misfit: Misfit, shape: Shape) -> str:
    if shape.is_secret(misfit.path) or misfit.value == "" or isinstance(misfit.value, list):
        return ""
    return f", not {display(misfit.value, misfit.place.text if misfit.place else None)}"


def _remedy(misfit: Misfit, kind: str, context: dict[str, Any]) -> str:
    value, place = misfit.value, misfit.place
    if isinstance(value, dict) and list(value.values()) == [None]:
        return "; a variable is written as ${NAME}"
    if _LIMITS & context.keys() and (unit := _unit(value)) is not None:
        return f"; the units are {unit[1]}"
    match kind:
        case "literal_error" | "enum" if isinstance(value, str):
            meant = did_you_mean(value, re.findall(r"'([^']*)'", str(context["expected"])))
            return f"; did you mean {meant!r}?" if meant else ""
        case "string_type" if isinstance(value, bool | int | float):
            return "; put it in quotes"
        case "bool_type" if isinstance(value, str) and value.lower() in {"yes", "no", "on", "off"}:
            return "; YAML 1.2 reads yes, no, on and off as text"
        case "int_type" | "float_type" | "bool_type" if isinstance(value, str) and place is not None and place.quoted:
            return "" if isinstance(scalar(value), str) else "; remove the quotes"
    return ""
