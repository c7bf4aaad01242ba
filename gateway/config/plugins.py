"""Plug-ins by entry-point name: adapters and targets by the `type` of an agent, tool sources by their own `type`, ledgers by
the scheme of a storage URL. Law: a plug-in is loaded at its first use."""

from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar

import msgspec
from pydantic import BaseModel, BeforeValidator, ConfigDict, create_model

from gateway.ledger.port import AnyLedgerFactory, LedgerFactory
from gateway.ports.adapter import Adapter, AdapterFactory, AnyAdapterFactory
from gateway.ports.targets import Shorthand
from gateway.ports.tools import AnyToolFactory, ToolFactory, ToolSource

if TYPE_CHECKING:
    from gateway.config.agents import AgentConfig
    from gateway.config.tools import ToolConfig

ADAPTERS = "a2a_gateway.adapters"
TARGETS = "a2a_gateway.targets"
TOOLS = "a2a_gateway.tools"
LEDGERS = "a2a_gateway.ledgers"
_GROUPS = {"agents": ADAPTERS, "tools": TOOLS, "storage": LEDGERS}

F = TypeVar("F")


class InstalledAdapter(msgspec.Struct, frozen=True):
    """A type of agents, and the package that brings it, with its version; `problem` says why it cannot be used."""

    type: str
    package: str
    factory: AnyAdapterFactory | None
    problem: str | None = None


class InstalledShorthand(msgspec.Struct, frozen=True):
    """The targets of a type of agents, and the package that brings them, with its version; `problem` says why they cannot be
    used."""

    type: str
    package: str
    shorthand: Shorthand | None
    problem: str | None = None


class Registry:
    """The installed plug-ins. `recordings` is the folder with what they send and get, None where nothing is recorded."""

    recordings: Path | None = None

    def adapters(self) -> tuple[InstalledAdapter, ...]:
        """All of them, by type. This imports the module of each."""
        return tuple(_installed_adapter(kind) for kind in self.known("agents"))

    def shorthands(self) -> tuple[InstalledShorthand, ...]:
        """All of them, by type. This imports the module of each, and no adapter."""
        return tuple(_installed_shorthand(kind) for kind in sorted(_entries(TARGETS)))

    def known(self, section: str) -> tuple[str, ...]:
        """The types that the section `agents` or `tools` of the file may name, or the schemes of `storage`."""
        return tuple(sorted(_entries(_GROUPS[section])))

    def settings_model(self, section: str, kind: str) -> type[BaseModel] | None:
        """The pydantic model of the type's own keys, None for an unknown type.

        For a plug-in that cannot be used it is a model that refuses every entry, so that the reason is reported at the
        entry's `type`, or at the `url` of the storage, together with all other problems of the file.
        """
        if kind not in _entries(_GROUPS[section]):
            return None
        factory: AnyAdapterFactory | AnyToolFactory | AnyLedgerFactory
        try:
            match section:
                case "agents":
                    factory = self.factory(kind)
                case "tools":
                    factory = self.tool_factory(kind)
                case _:
                    factory = self.ledger(kind)
        except ValueError as error:
            return _refusing("url" if section == "storage" else "type", str(error))
        model: type[BaseModel] = factory.settings
        if section == "storage" and "url" not in model.model_fields:
            return _refusing("url", f"the plug-in {kind!r} cannot be used: its settings have no `url`")
        return model

    def takes_tools(self, kind: str) -> bool:
        """What the factory declares; True also for a plug-in that cannot be used, since that is reported separately."""
        try:
            return self.factory(kind).tools
        except ValueError:
            return True

    def factory(self, kind: str) -> AnyAdapterFactory:
        """Raises: ValueError for an unknown type or a plug-in that cannot be used."""
        return _adapter_factory(kind)

    def adapter(self, agent: "AgentConfig") -> Adapter:
        """Raises: ValueError as `factory`, and for contradictory settings."""
        adapter: Adapter = self.factory(agent.type).build(agent.settings)
        return adapter

    def tool_factory(self, kind: str) -> AnyToolFactory:
        """Raises: as `factory`."""
        return _plug_in(TOOLS, kind, ToolFactory)

    def tool_source(self, kind: str, settings: BaseModel) -> ToolSource:
        """Raises: ValueError for settings that cannot work."""
        return self.tool_factory(kind).build(settings)

    def source(self, tool: "ToolConfig") -> ToolSource:
        """Raises: as `tool_source`."""
        return self.tool_source(tool.type, tool.settings)

    def ledger(self, url: str) -> AnyLedgerFactory:
        """The ledgers of a URL, or of its scheme. Raises: ValueError for one that no plug-in serves."""
        return _plug_in(LEDGERS, url.partition(":")[0], LedgerFactory)


def _adapter_factory(kind: str) -> AnyAdapterFactory:
    return _plug_in(ADAPTERS, kind, AdapterFactory)


def _installed_adapter(kind: str) -> InstalledAdapter:
    packages = _packages(_entries(ADAPTERS)[kind])
    try:
        return InstalledAdapter(kind, packages, _adapter_factory(kind))
    except ValueError as error:
        return InstalledAdapter(kind, packages, None, str(error))


def _installed_shorthand(kind: str) -> InstalledShorthand:
    packages = _packages(_entries(TARGETS)[kind])
    try:
        return InstalledShorthand(kind, packages, _plug_in(TARGETS, kind, Shorthand))
    except ValueError as error:
        return InstalledShorthand(kind, packages, None, str(error))


@cache
def _installed() -> Callable[..., EntryPoints]:
    """Chooses among the entry points of all packages, which are read once: that opens a file of each package."""
    return entry_points().select


@cache
def _entries(group: str) -> dict[str, tuple[EntryPoint, ...]]:
    found = _installed()(group=group)
    return {name: tuple(found.select(name=name)) for name in found.names}


def _plug_in(group: str, name: str, kind: type[F]) -> F:
    """Raises: ValueError for a name of no package or of several, or for a plug-in that cannot be used."""
    installed = _entries(group)
    match installed.get(name, ()):
        case ():
            raise ValueError(f"there is no {name!r} in {group}; installed are {', '.join(sorted(installed)) or 'none'}")
        case (entry,):
            loaded = _load(entry)
        case several:
            raise ValueError(f"several packages bring a plug-in {name!r}: {_packages(several)}; keep one of them")
    if isinstance(loaded, kind):
        return loaded
    where = f"the plug-in {name!r} (entry point {entry.value} of {_package(entry)})"
    if isinstance(loaded, Exception):
        text = " ".join(str(loaded).split())
        raise ValueError(f"{where} cannot be loaded: {type(loaded).__name__}: {text}") from loaded
    raise ValueError(f"{where} is no {kind.__name__} but of the type {type(loaded).__name__}")


@cache
def _load(entry: EntryPoint) -> object:
    """The object of the entry point, or the exception of its import: a second try would raise another one."""
    try:
        return entry.load()
    except Exception as error:  # noqa: BLE001  # a module of a third party may raise anything
        return error


def _packages(entries: Iterable[EntryPoint]) -> str:
    return ", ".join(sorted(map(_package, entries)))


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else "an unknown package"


def _refusing(key: str, why: str) -> type[BaseModel]:
    """A model that refuses the value of this key."""

    def refuse(_: object) -> NoReturn:
        raise ValueError(why)

    refused: Any = Annotated[Any, BeforeValidator(refuse)]
    fields: dict[str, Any] = {key: (refused, ...)}
    return create_model("Unusable", __config__=ConfigDict(extra="allow"), **fields)
