"""Commands in groups, each with examples. Law: imports nothing but typer, as `commands`."""

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperCommand

from gateway.cli.console.output import ExitCode, Output, Stop

Command: TypeAlias = Callable[..., int | None]
Told: TypeAlias = Callable[[], Sequence[str]]
_TOLD = "..."


class CommandGroup:
    """Commands under one word. The help of a group below another shows the first example of each command."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.commands: list[str] = []
        self.app = typer.Typer(
            name=name, help=text, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
        )
        self._shown: list[str] = []

    def command(self, name: str, *lines: str, told: Told | None = None) -> Callable[[Command], Command]:
        """Registers a function with these examples. The lines of `told` stand where its docstring has the line `...`; they are
        made when somebody asks for the help."""

        def register(command: Command) -> Command:
            self.app.command(name, epilog=examples(*lines), cls=_telling(told) if told is not None else TyperCommand)(
                _expanded(command)
            )
            return command

        self.commands.append(name)
        self._shown.append(lines[0])
        return register

    def add(self, group: "CommandGroup") -> None:
        self.app.add_typer(group.app, epilog=examples(*group._shown))


def _telling(told: Told) -> type[TyperCommand]:
    class Telling(TyperCommand):
        def format_help_text(self, ctx: Any, formatter: Any) -> None:
            place = re.compile(rf"^( *){re.escape(_TOLD)}$", re.MULTILINE)
            self.help = place.sub(lambda found: "\n".join(found[1] + line for line in told()), self.help or "")
            super().format_help_text(ctx, formatter)

    return Telling


def examples(*lines: str) -> str:
    """The last section of a command's help."""
    return "\n".join(("Examples:", "", "\b", *(f"  {line}" for line in lines)))


_OUTPUT = "output"
_AS_JSON = inspect.Parameter(
    "as_json",
    inspect.Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[bool, typer.Option("--json", help="The same as -o json.")],
)


def _expanded(command: Command) -> Command:
    """The command with one parameter for each field of a parameter that is a dataclass, as typer reads parameters only; and
    with `--json` beside `-o`."""
    signature = inspect.signature(command)
    groups = {
        name: inspect.signature(signature.parameters[name].annotation).parameters
        for name, each in signature.parameters.items()
        if is_dataclass(each.annotation)
    }

    @functools.wraps(command)
    def run(**given: Any) -> int | None:
        if given.pop(_AS_JSON.name, False):
            if given[_OUTPUT] not in (Output.text, Output.json):
                raise Stop(ExitCode.USAGE, f"--json is the same as -o json: leave out --json or -o {given[_OUTPUT]}")
            given[_OUTPUT] = Output.json
        for name, members in groups.items():
            given[name] = signature.parameters[name].annotation(**{member: given.pop(member) for member in members})
        return command(**given)

    expanded = [
        member.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in signature.parameters.items()
        for member in groups.get(name, {name: parameter}).values()
    ]
    for member in expanded:
        for described in getattr(member.annotation, "__metadata__", ()):
            described.readable = False  # a command itself says why it cannot read a file
    if any(member.name == _OUTPUT for member in expanded):
        expanded.append(_AS_JSON)
    run.__signature__ = signature.replace(parameters=expanded)  # type: ignore[attr-defined]  # inspect.signature reads it
    run.__annotations__ = {each.name: each.annotation for each in expanded}
    return run
