"""Loads gateway.yaml. Law: flag > environment > file > default; all problems are reported at once, each with its place."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.config import shape
from gateway.config.agents import AgentConfig
from gateway.config.gateway import GatewayConfig, GatewaySections, ServerConfig
from gateway.config.numbers import unusable_numbers
from gateway.config.overrides import ENVIRONMENT, override_from_environment, override_from_flags
from gateway.config.problems import ConfigInvalid, KeyPath, Place, Problem, display, path_text
from gateway.config.settings import NAME, Settings
from gateway.config.shape import PluginTypes, Section, Shape
from gateway.config.storage import DEFAULT_URL, StorageCommon, StorageConfig
from gateway.config.tools import ToolConfig
from gateway.config.yaml import Document, References, read, scalar
from gateway.core.tools.approval_rules import may_fit
from gateway.foundation.text import did_you_mean

M = TypeVar("M", bound=BaseModel)
E = TypeVar("E", AgentConfig, ToolConfig)


def load(
    text: str,
    *,
    source: str,
    env: Mapping[str, str],
    plugins: PluginTypes,
    base_dir: Path,
    overrides: Mapping[str, object] | None = None,
) -> GatewayConfig:
    """The configuration in the text of a file. `source` is the file's name in messages, `base_dir` its folder.

    `overrides` are the values of flags by dotted path (`server.port`).

    Raises: ConfigInvalid with every problem, in the order of the file; problems of YAML's syntax stand alone.
    """
    document = read(text, source, References(env, base_dir))
    if document.data is None and not document.unknown:
        document.data = {}
    if isinstance(document.data, dict):
        document.data.setdefault("storage", {})  # the default path is relative to the file, too
        override_from_environment(document, document.data, env, partial(Shape, plugins))
        override_from_flags(document, document.data, overrides or {})
    config = _Builder(document, plugins, base_dir).config()
    if config is None:
        raise _refusal(document)
    return config


class _ServerSection(Settings):
    server: ServerConfig = ServerConfig()


def load_server(document: Document, plugins: PluginTypes, base_dir: Path) -> ServerConfig:
    """The section of a document of `listening.read_server`. Raises: ConfigInvalid with every problem of the section."""
    server = _Builder(document, plugins, base_dir).server()
    if server is None:
        raise _refusal(document)
    return server


def _refusal(document: Document) -> ConfigInvalid:
    return ConfigInvalid(sorted(dict.fromkeys(document.all_problems()), key=_order))


def _order(problem: Problem) -> tuple[bool, int, int, str, str]:
    return (problem.line is None, problem.line or 0, problem.column or 0, problem.file or "", problem.path)


class _Builder:
    """Validates one document; the problems are collected in the document."""

    def __init__(self, document: Document, plugins: PluginTypes, base_dir: Path) -> None:
        self._document = document
        self._plugins = plugins
        self._shape = Shape(plugins, document.data)
        self._base_dir = base_dir
        document.places.setdefault((), Place(document.source, value=(1, 1)))

    def config(self) -> GatewayConfig | None:
        data = self._mapping()
        if data is None:
            return None
        others = {key: value for key, value in data.items() if key not in shape.SECTIONS}
        given = data.get(shape.STORAGE)
        if isinstance(given, dict):
            others[shape.STORAGE] = _common_keys(StorageCommon, given)
        sections = self._fit(GatewaySections, others, ())
        store = self._store(given) if isinstance(given, dict) else None
        tools = self._tools(data.get("tools", {}))
        agents = self._agents(data)
        if self._document.all_problems() or sections is None or store is None:
            return None
        storage = _with_settings(StorageConfig, sections.storage, settings=store, url=dict(store)["url"])
        return GatewayConfig(**dict(sections) | {"storage": storage}, tools=tools, agents=agents)

    def _store(self, given: dict[str, object]) -> BaseModel | None:
        """The settings of the storage that its kind has for itself, and of its URL."""
        path: KeyPath = (shape.STORAGE,)
        model = shape.storage_model(self._plugins, self._document.data)
        self._check_scheme((*path, "url"), given, model, self._plugins.known(shape.STORAGE))
        own = {"url": DEFAULT_URL} | given
        return None if model is None else self._fit(model, _own_keys(StorageCommon, model, own), path)

    def _check_scheme(
        self, path: KeyPath, given: dict[str, object], model: type[BaseModel] | None, known: Sequence[str]
    ) -> None:
        url, installed = given.get("url", DEFAULT_URL), f"installed: {', '.join(sorted(known))}"
        if model is not None or not isinstance(url, str) or not url:
            return
        scheme = shape.storage_scheme(given)
        if scheme is None:
            self._add_problem(path, f"must begin with the kind of storage, as {DEFAULT_URL}; {installed}")
        else:
            self._add_problem(path, f"unknown kind of storage {display(scheme)}; {_hint(scheme, known)}{installed}")

    def server(self) -> ServerConfig | None:
        data = self._mapping()
        if data is None:
            return None
        found = self._fit(_ServerSection, {key: data[key] for key in _ServerSection.model_fields if key in data}, ())
        return None if found is None or self._document.all_problems() else found.server

    def _mapping(self) -> dict[str, object] | None:
        data = self._document.data
        if isinstance(data, dict):
            return data
        if not self._document.unknown:
            self._add_problem((), "the file must be a mapping that begins with `version: 1`")
        return None

    def _tools(self, tools: object) -> dict[str, ToolConfig]:
        if isinstance(tools, dict):
            return self._entries(shape.TOOLS, ToolConfig, tools)
        self._add_problem(("tools",), f"must be a mapping of sources: a name, then its settings; not {display(tools)}")
        return {}

    def _agents(self, data: dict[str, object]) -> dict[str, AgentConfig]:
        agents, tools = data.get("agents"), data.get("tools")
        if not isinstance(agents, dict) or not agents:
            message = "must be a mapping of at least one agent: its name, then its settings"
            self._add_problem(("agents",), message if "agents" in data else f"is required, but missing; it {message}")
            return {}
        defaults = [name for name, agent in agents.items() if isinstance(agent, dict) and agent.get("default") is True]
        for name in defaults[1:]:
            message = f"only one agent can be the default, and {defaults[0]!r} already is"
            self._add_problem(("agents", name, "default"), message)
        found = self._entries(shape.AGENTS, AgentConfig, agents)
        for name, agent in found.items():
            self._check_tools(("agents", name), agent, list(tools) if isinstance(tools, dict) else [])
        return found

    def _check_tools(self, path: KeyPath, agent: AgentConfig, sources: list[str]) -> None:
        there = f"There: {', '.join(sources) or 'nothing'}"
        for key in ("tools", "client_tools", "approvals"):
            if getattr(agent, key) and not self._plugins.takes_tools(agent.type):
                message = (
                    f"an agent of type {agent.type!r} never learns of tools of the gateway or of its clients, so nothing would "
                    "call them; remove this key, and let the agent itself call what it needs"
                )
                self._add_problem((*path, key), message, at_key=True)
        for index, source in enumerate(agent.tools):
            if source not in sources:
                message = f"there is no {display(source)} under `tools`; {_hint(source, sources)}{there}"
                self._add_problem((*path, "tools", index), message)
        own = f"its sources are {', '.join(agent.tools)}" if agent.tools else "it has no `tools`"
        for index, rule in enumerate(agent.approvals if self._plugins.takes_tools(agent.type) else ()):
            # A rule that fits nothing would let the calls that it was meant for run unasked.
            if not any(may_fit(rule.tool, source) for source in agent.tools):
                message = f"{rule.tool!r} fits no tool of this agent: write SOURCE.TOOL, as 'github.*'; {own}"
                self._add_problem((*path, "approvals", index, "tool"), message)

    def _entries(self, section: Section, entry: type[E], values: Mapping[str, object]) -> dict[str, E]:
        found = {name: self._entry(section, entry, name, value) for name, value in values.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _entry(self, section: Section, entry: type[E], name: str, data: object) -> E | None:
        path: KeyPath = (section.key, name)
        is_name = NAME.fullmatch(name) is not None
        if not is_name:
            why = ": it is part of its URL" if section is shape.AGENTS else ""
            message = f"{section.noun}'s name has 1 to 63 of a-z, 0-9 and -, and does not begin with -{why}"
            self._add_problem(path, message, at_key=True)
        if not isinstance(data, dict):
            self._add_problem(path, f"must be a mapping with at least `type:`, not {display(data)}")
            return None
        model = shape.settings_model(self._plugins, self._document.data, section, name)
        self._check_type((*path, "type"), data, model, self._plugins.known(section.key))
        common = self._fit(section.common, _common_keys(section.common, data), path)
        if model is None:  # the other keys cannot be checked
            return None
        settings = self._fit(model, _own_keys(section.common, model, data), path, name)
        if common is None or settings is None or not is_name:
            return None
        return _with_settings(entry, common, name=name, settings=settings)

    def _check_type(
        self, path: KeyPath, entry: dict[str, object], model: type[BaseModel] | None, known: Sequence[str]
    ) -> None:
        kind = entry.get("type")
        if "type" not in entry:
            self._add_problem(path, f"is required, but missing; known types: {', '.join(sorted(known))}")
            self._document.unknown[path] = ()
        elif model is None and isinstance(kind, str) and kind:
            self._add_problem(
                path, f"unknown type {display(kind)}; {_hint(kind, known)}Known types: {', '.join(sorted(known))}"
            )

    def _fit(self, model: type[M], data: dict[str, object], path: KeyPath, name: str = "") -> M | None:
        """Validates as JSON and strictly: lists may become tuples and texts paths, but nothing else is converted.

        The context for the model of a type: `base_dir`, and the `name` of the entry.
        """
        context = {"base_dir": self._base_dir, "name": name}
        read_again: set[KeyPath] = set()
        while True:
            try:
                fitted = model.model_validate_json(json.dumps(data), strict=True, context=context)
            except ValidationError as invalid:
                misfits = [self._misfit(error, data, path) for error in invalid.errors(include_url=False)]
            else:
                return None if self._has_unusable_numbers(data, path) else fitted
            other = {misfit.path: value for misfit in misfits if (value := _other_reading(misfit)) is not None}
            if other.keys() <= read_again:
                break
            read_again |= other.keys()
            for place, value in other.items():
                _put(data, place[len(path) :], value)
        words: dict[KeyPath, tuple[shape.Misfit, list[str]]] = {}
        for misfit in misfits:
            if not _is_consequence(misfit):
                words.setdefault(misfit.path, (misfit, []))[1].append(shape.explain(misfit, self._shape))
        for misfit, messages in words.values():
            at_key = misfit.error["type"] in {"missing", "extra_forbidden"}
            self._add_problem(misfit.path, " or ".join(dict.fromkeys(messages)), at_key=at_key)
        return None

    def _has_unusable_numbers(self, data: dict[str, object], path: KeyPath) -> bool:
        found = [*unusable_numbers(data, path)]
        for place, message in found:
            self._add_problem(place, message)
        return bool(found)

    def _misfit(self, error: ErrorDetails, data: dict[str, object], start: KeyPath) -> shape.Misfit:
        """The error at its path in the file, without pydantic's names for the members of a union."""
        path, value = start, cast("object", data)
        for position, key in enumerate(error["loc"], start=1):
            match value, key:
                case (dict(), str()) if key in value:
                    value = value[key]
                case (list(), int()) if key < len(value):
                    value = value[key]
                case _ if error["type"] == "missing" and position == len(error["loc"]):
                    value = None
                case _:
                    continue
            path = (*path, key)
        return shape.Misfit(error, path, value, self._document.places.get(path))

    def _add_problem(self, path: KeyPath, message: str, *, at_key: bool = False) -> None:
        """Adds a problem at the path, or at the nearest parent that has a place."""
        if any(path[: len(unknown)] == unknown for unknown in self._document.unknown):
            return
        known = next(path[:end] for end in range(len(path), -1, -1) if path[:end] in self._document.places)
        place = self._document.places[known]
        line, column = (place.key if at_key or known != path else None) or place.value or (None, None)
        name = path_text(path)
        if place.name is not None:
            inside = path_text(path[len(known) :])
            name = place.name + (f".{inside}" if inside and not inside.startswith("[") else inside)
        self._document.problems.append(Problem(place.file, line, column, name, message))


def _common_keys(common: type[BaseModel], data: dict[str, object]) -> dict[str, object]:
    keys = shape.fields(common)
    return {key: data[key] for key in data if key in keys}


def _own_keys(common: type[BaseModel], model: type[BaseModel], data: dict[str, object]) -> dict[str, object]:
    """The keys of the type. One that declares a common key, such as `history`, gets its value too."""
    common_keys, keys = shape.fields(common), shape.fields(model)
    return {key: data[key] for key in data if key not in common_keys or key in keys}


def _with_settings(entry: type[M], common: BaseModel, **others: object) -> M:
    """The entry of these common keys and others, which are valid already."""
    return entry.model_construct(common.model_fields_set | (others.keys() - dict(common)), **dict(common) | others)


def _hint(word: str, known: Iterable[str]) -> str:
    meant = did_you_mean(word, known)
    return f"did you mean {meant!r}? " if meant else ""


def _is_consequence(misfit: shape.Misfit) -> bool:
    """Whether it follows from another problem: a default made of a broken setting, a list too short without broken items."""
    context = misfit.error.get("ctx", {})
    match misfit.error["type"]:
        case "default_factory_not_called":
            return True
        case "too_short":
            return isinstance(misfit.value, list) and len(misfit.value) >= context["min_length"]
    return False


def _other_reading(misfit: shape.Misfit) -> object:
    """A value from outside the file in the type that is required, None where it has no other: an API key of digits stays
    text, and a port is a number also where its `${...}` stands in quotes, as it has to inside { } and [ ]."""
    place = misfit.place
    if place is None or not place.text or (place.reference is None and place.file != ENVIRONMENT):
        return None
    match misfit.error["type"]:
        case "string_type":
            return place.text
        case "int_type" | "float_type" | "bool_type" if place.quoted:
            value = scalar(place.text)
            return None if isinstance(value, str) else value
    return None


def _put(data: dict[str, object], path: KeyPath, value: object) -> None:
    holder: Any = data
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
