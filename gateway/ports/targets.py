"""What a target of `serve` means to an adapter: an agent in one word, such as `chat:http://localhost:8000/v1#MODEL`. Law: pure;
a secret is named by its variable, never read."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec


class TargetProblem(Exception):
    """A target that gives no agent. The text goes on after the target, as `names no model; write ...` does: problem, then
    remedy. `lacking`: the target is well written, and something outside of it is missing, such as a variable with a key."""

    def __init__(self, text: str, *, lacking: bool = False) -> None:
        super().__init__(text)
        self.text = text
        self.lacking = lacking


class EnvironmentValue(msgspec.Struct, frozen=True):
    """A setting whose value is a variable of the environment; the configuration file refers to it."""

    variable: str


TargetSetting: TypeAlias = (
    "str | int | float | bool | EnvironmentValue | Sequence[TargetSetting] | Mapping[str, TargetSetting]"
)


class Target(msgspec.Struct, frozen=True):
    """A target `kind:rest`, which was typed as `text`, perhaps with a name for the agent before it (`notes=kind:rest`).

    `env` is the environment. `here` is the folder where it was typed, `folder` that of the configuration file.
    """

    text: str
    kind: str
    rest: str
    name: str | None
    env: Mapping[str, str]
    here: Path
    folder: Path

    def spelt(self, unnamed: str) -> str:
        """Another target under the same name, as it would be typed."""
        return unnamed if self.name is None else f"{self.name}={unnamed}"

    def path(self, file: str) -> str:
        """The path of a file that the target names, as the configuration file has to write it."""
        return file if Path(file).is_absolute() else os.path.relpath(self.here / file, self.folder)


class TargetAgent(msgspec.Struct, frozen=True):
    """The agent of a target: its settings without `type`, as literal values, and a name in case that the target gives none.
    Characters that a URL cannot carry are replaced in the name."""

    name: str
    settings: Mapping[str, TargetSetting]


def _resembles_nothing(_: str) -> bool:
    return False


class TargetForm(msgspec.Struct, frozen=True):
    """One form of targets, as `chat:URL#MODEL`; the word before its first colon is the kind. `help` says in one line what it
    serves.

    `resembles` tells whether a text without a known kind looks like the rest of such a target, to suggest the kind.
    """

    text: str
    help: str
    resembles: Callable[[str], bool] = _resembles_nothing

    @property
    def kind(self) -> str:
        return self.text.partition(":")[0]


class Shorthand(msgspec.Struct, frozen=True):
    """The targets that stand for agents of one type.

    An entry point of the group `a2a_gateway.targets`, called as the type, names one. Its module imports nothing of the adapter,
    because `serve` imports all such modules for a target, and for its help.

    `read` gets every target whose kind is that of a form. It returns None for one that belongs to another type, and raises
    TargetProblem for one that gives no agent. It is pure.
    """

    forms: tuple[TargetForm, ...]
    read: Callable[[Target], TargetAgent | None]
