"""`backends`: the types of agents that are installed, and what each can do. Law: what is told is what the adapters declare and
the abilities of their classes; nothing is built, and no service is asked."""

import sys
from collections.abc import Iterable, Iterator, Mapping

from gateway.a2a.model import Json
from gateway.cli.console.output import Output, print_json, visible
from gateway.config.plugins import InstalledAdapter, Registry
from gateway.ports.adapter import AnyAdapterFactory, StateKind
from gateway.ports.capabilities import (
    CanCancel,
    CanDescribe,
    CanFetch,
    CanForget,
    CanListTail,
    CanProbe,
    CanResume,
    CanWithdraw,
)
from gateway.ports.conversation import HandleKind, StorageOwner
from gateway.ports.targets import Shorthand

_ABILITIES: Mapping[str, type] = {
    "resume": CanResume,
    "cancel": CanCancel,
    "withdraw": CanWithdraw,
    "fetch": CanFetch,
    "reconcile": CanListTail,
    "delete": CanForget,
    "probe": CanProbe,
    "describe": CanDescribe,
}
_OF_WHAT_THE_SERVICE_KEEPS = frozenset({"withdraw", "fetch", "reconcile", "delete"})
_NO_FILES = frozenset({"text/plain", "application/json"})


def print_backends(output: Output) -> None:
    adapters = Registry().adapters()
    if output is Output.text:
        sys.stdout.writelines(f"{visible(line)}\n" for line in _text(adapters))
    else:
        targets = {each.type: each.shorthand for each in Registry().shorthands()}
        described = [describe(adapter, targets.get(adapter.type)) for adapter in adapters]
        print_json(described, {"backends": described}, output)


def describe(adapter: InstalledAdapter, shorthand: Shorthand | None) -> Json:
    """The JSON of one type. One that cannot be used has only `type`, `package` and `problem`."""
    factory = adapter.factory
    if factory is None:
        return {"type": adapter.type, "package": adapter.package, "problem": adapter.problem}
    return {
        "type": adapter.type,
        "package": adapter.package,
        "summary": factory.summary,
        "targets": [] if shorthand is None else [form.text for form in shorthand.forms],
        "inputModes": list(factory.input_modes),
        "outputModes": list(factory.output_modes),
        "states": [
            {
                "owner": state.owner,
                "handle": state.handle,
                "setting": state.setting or None,
                "abilities": list(_abilities(factory, state)),
            }
            for state in factory.states
        ],
    }


def _abilities(factory: AnyAdapterFactory, state: StateKind) -> Iterator[str]:
    if factory.streaming:
        yield "streaming"
    if factory.tools:
        yield "tools"
    if factory.approvals is not None:
        yield "approvals"
    for direction, modes in (("in", factory.input_modes), ("out", factory.output_modes)):
        if not _NO_FILES.issuperset(modes):
            yield f"files {direction}"
    kept = state.owner is StorageOwner.BACKEND
    for name, ability in _ABILITIES.items():
        if issubclass(state.adapter, ability) and (kept or name not in _OF_WHAT_THE_SERVICE_KEEPS):
            yield name
    if kept:
        yield "adopt"


def _text(adapters: Iterable[InstalledAdapter]) -> Iterator[str]:
    for adapter in adapters:
        factory = adapter.factory
        if factory is None:
            yield f"{adapter.type}: cannot be used: {adapter.problem}"
            continue
        yield f"{adapter.type}: {factory.summary} ({adapter.package})"
        rows = [(_state(state), ", ".join(_abilities(factory, state))) for state in factory.states]
        column = max((len(state) for state, _ in rows), default=0) + 2
        yield from (f"  {state:{column}}{abilities}" for state, abilities in rows)


def _state(state: StateKind) -> str:
    handle = "" if state.handle is HandleKind.NONE else f", {state.handle}"
    setting = f" ({state.setting})" if state.setting else ""
    return f"{state.owner}{handle}{setting}"
