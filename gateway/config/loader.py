"""Loads gateway.yaml: flag > environment > file > default, and every problem at once with its place."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.config.agents import AgentConfig, ToolConfig
from gateway.config.explain import (
    AGENTS,
    SECTIONS,
    TOOLS,
    Misfit,
    Section,
    SettingsResolver,
    Shape,
    explain,
    fields,
    settings_model,
)
from gateway.config.gateway import GatewayConfig, GatewaySections
from gateway.config.problems import ConfigInvalid, KeyPath, Place, Problem, path_text, shown
from gateway.config.settings import NAME
from gateway.config.yaml import Document, Literally, References, is_well_formed, read, typed
from gateway.core.tools.approvals import may_fit
from gateway.foundation.text import did_you_mean

_PREFIX = "A2A_GATEWAY__"
_ENVIRONMENT = "environment"
_COMMAND_LINE = "command line"
_NO_OVERRIDES: Mapping[str, object] = MappingProxyType({})

M = TypeVar("M", bound=BaseModel)
E = TypeVar("E", AgentConfig, ToolConfig)


def load(
    text: str,
    *,
    source: str,
    env: Mapping[str, str],
    resolver: SettingsResolver,
    base_dir: Path,
    overrides: Mapping[str, object] = _NO_OVERRIDES,
) -> GatewayConfig:
    """The configuration of a file's text. `source` is its name in messages, `base_dir` the folder that it stands in.

    `overrides` are values of flags by dotted path (`server.port`).

    Raises: ConfigInvalid with every problem, in the order of the file; problems of YAML's syntax stand alone.
    """
    document = read(text, source, References(env, base_dir))
    if document.data is None and not document.unknown:
        document.data = {}
    document.places.setdefault((), Place(source, value=(1, 1)))
    if isinstance(document.data, dict):
        document.data.setdefault("storage", {})  # so that the default path, too, is relative to the file
        _override_from_environment(document, document.data, env, resolver)
        _override_from_flags(document, document.data, overrides)
    loading = _Loading(document, resolver, base_dir)
    config = loading.config()
    if config is None:
        raise ConfigInvalid(sorted(dict.fromkeys(document.all_problems()), key=_order))
    return config


def _order(problem: Problem) -> tuple[bool, int, int, str, str]:
    return (problem.line is None, problem.line or 0, problem.column or 0, problem.file or "", problem.path)


# --- what overrides the file ------------------------------------------------------------------------------------------


def _override_from_environment(
    document: Document, data: dict[str, object], env: Mapping[str, str], resolver: SettingsResolver
) -> None:
    taken: dict[KeyPath, str] = {}
    for variable in sorted(env):
        if not variable.upper().startswith(_PREFIX):
            continue
        segments = variable[len(_PREFIX) :].split("__")
        if not all(segments):
            _complain(document, _ENVIRONMENT, variable, f"names no setting; write it like {_PREFIX}SERVER__PORT")
            continue
        path = _named_path(segments, data, Shape(resolver, data))
        if path in taken:
            _complain(document, _ENVIRONMENT, variable, f"sets the same as {taken[path]}; remove one of them")
            continue
        taken[path] = variable
        text = env[variable]
        place = Place(_ENVIRONMENT, name=variable, text=text)
        _put(document, data, path, _environment_value(text), place)


def _complain(document: Document, file: str, name: str, message: str) -> None:
    document.problems.append(Problem(file, None, None, name, message))


def _environment_value(text: str) -> object:
    """As YAML would read it; lists and mappings only in their bracketed form."""
    if text.lstrip()[:1] not in {"[", "{"}:
        return typed(text)
    try:
        document = read(text, _ENVIRONMENT, Literally())
    except ConfigInvalid:
        return text
    return text if document.all_problems() else document.data


def _named_path(segments: list[str], data: object, shape: Shape) -> KeyPath:
    """The setting that a variable names, in any case and with `_` for `-`; the file's keys first, then the models'."""
    path: tuple[str, ...] = ()
    for segment in segments:
        form = _form(segment)
        present = list(data) if isinstance(data, dict) else []
        key = next((known for known in (*present, *shape.keys(path)) if _form(known) == form), None)
        if key is None:
            key = form.replace("_", "-") if len(path) == 1 and path[0] in SECTIONS else segment.lower()
        data = data.get(key) if isinstance(data, dict) else None
        path = (*path, key)
    return path


def _form(name: str) -> str:
    return name.lower().replace("-", "_")


def _override_from_flags(document: Document, data: dict[str, object], overrides: Mapping[str, object]) -> None:
    for name, value in overrides.items():
        _put(document, data, tuple(name.split(".")), value, Place(_COMMAND_LINE, name=name))


def _put(document: Document, data: dict[str, object], path: KeyPath, value: object, place: Place) -> None:
    """Sets one value; what the file said there, right or wrong, no longer counts."""
    if isinstance(value, str) and not is_well_formed(value):
        return _complain(document, place.file, place.name or "", "is not UTF-8 text")
    node = data
    for depth, key in enumerate(path[:-1], start=1):
        below = node.get(str(key))
        if below is None:
            below = node[str(key)] = {}
            document.places[path[:depth]] = Place(place.file)
        if not isinstance(below, dict):
            message = f"cannot be set, because {path_text(path[:depth])} is not a mapping"
            return _complain(document, place.file, place.name or "", message)
        node = below
    node[str(path[-1])] = value
    for old in [old for old in document.places if old[: len(path)] == path]:
        del document.places[old]
    document.places[path] = place
    document.unknown = {old: found for old, found in document.unknown.items() if old[: len(path)] != path}
    return None


# --- what the models make of it ---------------------------------------------------------------------------------------


class _Loading:
    """One document on its way to values; problems gather in the document."""

    def __init__(self, document: Document, resolver: SettingsResolver, base_dir: Path) -> None:
        self._document = document
        self._resolver = resolver
        self._shape = Shape(resolver, document.data)
        self._base_dir = base_dir

    def config(self) -> GatewayConfig | None:
        data = self._document.data
        if not isinstance(data, dict):
            if not self._document.unknown:
                self._complain((), "the file must be a mapping that begins with `version: 1`")
            return None
        sections = self._fit(GatewaySections, {key: value for key, value in data.items() if key not in SECTIONS}, ())
        tools = self._tools(data.get("tools", {}))
        agents = self._agents(data)
        if self._document.all_problems() or sections is None:
            return None
        return GatewayConfig(**dict(sections), tools=tools, agents=agents)

    def _tools(self, tools: object) -> dict[str, ToolConfig]:
        if not isinstance(tools, dict):
            self._complain(("tools",), f"must be a mapping of sources: a name, then its settings; not {shown(tools)}")
            return {}
        found = {name: self._entry(TOOLS, ToolConfig, name, value) for name, value in tools.items()}
        return {name: source for name, source in found.items() if source is not None}

    def _agents(self, data: dict[str, object]) -> dict[str, AgentConfig]:
        agents = data.get("agents")
        if not isinstance(agents, dict) or not agents:
            message = "must be a mapping of at least one agent: its name, then its settings"
            self._complain(("agents",), message if "agents" in data else f"is required, but missing; it {message}")
            return {}
        self._check_one_default(agents)
        tools = data.get("tools")
        found = {name: self._entry(AGENTS, AgentConfig, name, value) for name, value in agents.items()}
        for name, agent in found.items():
            self._check_tools(name, agent)
            for index, source in enumerate(agent.tools if agent else ()):
                if not isinstance(tools, dict) or source not in tools:
                    self._complain(("agents", name, "tools", index), _unknown_source(source, tools))
            for index, rule in enumerate(agent.approvals if agent else ()):
                # It would leave unasked what it was written for.
                if not isinstance(tools, dict) or not any(may_fit(rule.tool, source) for source in tools):
                    self._complain(("agents", name, "approvals", index, "tool"), _fits_nothing(rule.tool, tools))
        return {name: agent for name, agent in found.items() if agent is not None}

    def _check_tools(self, name: str, agent: AgentConfig | None) -> None:
        """What would never be called, and never asked about, is not accepted in silence."""
        if agent is None or self._resolver.takes_tools(agent.type):
            return
        for key in ("tools", "client_tools", "approvals"):
            if getattr(agent, key):
                self._complain(("agents", name, key), _unused(agent.type), at_key=True)

    def _check_one_default(self, agents: Mapping[str, object]) -> None:
        marked = [name for name, agent in agents.items() if isinstance(agent, dict) and agent.get("default") is True]
        for name in marked[1:]:
            message = f"only one agent can be the default, and {marked[0]!r} already is"
            self._complain(("agents", name, "default"), message)

    def _entry(self, section: Section, entry: type[E], name: str, data: object) -> E | None:
        path: KeyPath = (section.key, name)
        is_name = NAME.fullmatch(name) is not None
        if not is_name:
            why = ": it is part of its URL" if section is AGENTS else ""
            message = f"{section.noun}'s name has 1 to 63 of a-z, 0-9 and -, and does not begin with -{why}"
            self._complain(path, message, at_key=True)
        if not isinstance(data, dict):
            self._complain(path, f"must be a mapping with at least `type:`, not {shown(data)}")
            return None
        model = settings_model(self._resolver, self._document.data, section, name)
        self._check_type((*path, "type"), data, model, section.known(self._resolver))
        common_keys = fields(section.common)
        common = self._fit(section.common, {key: data[key] for key in data if key in common_keys}, path)
        if model is None:  # so the other keys mean nothing yet
            return None
        # A type that declares a common key, as `history`, gets it too.
        own_keys = fields(model)
        theirs = {key: data[key] for key in data if key not in common_keys or key in own_keys}
        settings = self._fit(model, theirs, path, name)
        if common is None or settings is None or not is_name:
            return None
        given = common.model_fields_set | {"name", "settings"}
        return entry.model_construct(given, **dict(common), name=name, settings=settings)

    def _check_type(
        self, path: KeyPath, entry: dict[str, object], model: type[BaseModel] | None, known: Sequence[str]
    ) -> None:
        kind = entry.get("type")
        if "type" not in entry:
            self._complain(path, f"is required, but missing; known types: {', '.join(sorted(known))}")
            self._document.unknown[path] = ()
        elif model is None and isinstance(kind, str) and kind:
            meant = did_you_mean(kind, known)
            hint = f"did you mean {meant!r}? " if meant else ""
            self._complain(path, f"unknown type {shown(kind)}; {hint}Known types: {', '.join(sorted(known))}")

    def _fit(self, model: type[M], data: dict[str, object], path: KeyPath, name: str = "") -> M | None:
        """Validates as JSON and strictly: lists may become tuples and texts paths, but nothing else is converted.

        What a type's own model finds in the context: `base_dir`, and the `name` of the entry.
        """
        context = {"base_dir": self._base_dir, "name": name}
        while True:
            try:
                return model.model_validate_json(json.dumps(data), strict=True, context=context)
            except ValidationError as invalid:
                misfits = [self._misfit(error, data, path) for error in invalid.errors(include_url=False)]
            if not _read_as_text(misfits, data, path):
                break
        words: dict[KeyPath, tuple[Misfit, list[str]]] = {}
        for misfit in misfits:
            if not _is_echo(misfit):
                words.setdefault(misfit.path, (misfit, []))[1].append(explain(misfit, self._shape))
        for misfit, messages in words.values():
            at_key = misfit.error["type"] in {"missing", "extra_forbidden"}
            self._complain(misfit.path, " or ".join(dict.fromkeys(messages)), at_key=at_key)
        return None

    def _misfit(self, error: ErrorDetails, data: dict[str, object], start: KeyPath) -> Misfit:
        """The error at its path in the file: pydantic's names for the members of a union are left out."""
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
        return Misfit(error, path, value, self._document.places.get(path))

    def _complain(self, path: KeyPath, message: str, *, at_key: bool = False) -> None:
        """A problem at the path, or at the nearest thing around it that was written down."""
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


def _fits_nothing(pattern: str, tools: object) -> str:
    there = ", ".join(tools) if isinstance(tools, dict) and tools else "nothing"
    return f"{pattern!r} fits no tool of any source under `tools`: write SOURCE.TOOL, as 'github.*'; There: {there}"


def _unused(kind: str) -> str:
    return (
        f"an agent of type {kind!r} never learns of tools of the gateway or of its clients, so nothing would call them; "
        "remove this key, and let the agent itself call what it needs"
    )


def _unknown_source(name: str, tools: object) -> str:
    known = [str(each) for each in tools] if isinstance(tools, dict) else []
    meant = did_you_mean(name, known)
    hint = f"did you mean {meant!r}? " if meant else ""
    return f"there is no {shown(name)} under `tools`; {hint}There: {', '.join(known) or 'nothing'}"


def _is_echo(misfit: Misfit) -> bool:
    """It follows from another problem: a default made of a broken setting, a list too short without broken items."""
    context = misfit.error.get("ctx", {})
    match misfit.error["type"]:
        case "default_factory_not_called":
            return True
        case "too_short":
            return isinstance(misfit.value, list) and len(misfit.value) >= context["min_length"]
    return False


def _read_as_text(misfits: Iterable[Misfit], data: dict[str, object], start: KeyPath) -> bool:
    """Where text is wanted, a value from outside the file is its text: a key made of digits stays a key."""
    changed = False
    for misfit in misfits:
        place = misfit.place
        outside = place is not None and (place.reference is not None or place.file == _ENVIRONMENT)
        if misfit.error["type"] == "string_type" and place is not None and outside and place.text:
            holder: Any = data
            for key in misfit.path[len(start) : -1]:
                holder = holder[key]
            holder[misfit.path[-1]] = place.text
            changed = True
    return changed
