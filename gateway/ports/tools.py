"""The port of tools that the gateway runs itself, and what crosses it. Law: a tool source knows nothing of tasks, turns
or models; what a model may call, and when, is decided by the core."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gateway.a2a.model import Json


class ToolDeclaration(msgspec.Struct, frozen=True):
    """What a model is told of a tool. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: dict[str, Json]


class SourceTool(msgspec.Struct, frozen=True):
    """One tool of a source, under the source's own name for it. `idempotent`: running it twice does what once does."""

    name: str
    description: str
    parameters: dict[str, Json]
    idempotent: bool = False


class ToolOutput(msgspec.Struct, frozen=True):
    """What came of a run: text or any JSON value, an empty one too. `error`: the tool says that it failed, and why."""

    output: Json
    error: bool = False


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One run. `arguments` fit the tool's schema. `key` is the same for every try of this call, and only for those."""

    name: str
    arguments: dict[str, Json]
    key: str
    context_id: str
    principal: str
    progress: Callable[[str], None] = field(default=lambda _text: None)


class ToolError(Exception):
    """The tool could not be run, or its source broke. `detail` is for the operator's log and never reaches a caller."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class ProgramNotStarted(ToolError):
    """The source is a program of this machine, and it does not run. `detail` says which, why, and what to do."""


class ConsentPage(msgspec.Struct, frozen=True):
    """`url` is for the user's browser alone; `text` says why, in the source's words."""

    url: str
    text: str = ""


class ConsentNeeded(ToolError):
    """The call was not carried out: its user has to consent to something on these pages first. It may then be made again."""

    def __init__(self, detail: str, pages: tuple[ConsentPage, ...]) -> None:
        super().__init__(detail)
        self.pages = pages


class ToolSource(Protocol):
    """What one entry under `tools:` stands for. Made without touching network or disk; connects when first needed."""

    async def tools(self) -> tuple[SourceTool, ...]:
        """The tools that it has now: asked before every service call, so answered from what is known where that holds.

        Raises: ToolError when it cannot be told.
        """
        ...

    async def run(self, run: ToolRun) -> ToolOutput:
        """Cancelling it ends the run as well as the tool allows. Raises: ToolError, ConsentNeeded before anything was done."""
        ...

    async def aclose(self) -> None: ...


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class ToolFactory(Generic[S]):
    """What an entry point of the group `a2a_gateway.tools` names.

    `settings` is a pydantic model (frozen, extra keys forbidden) of the entry's own keys; `build` makes the source
    without touching the network and raises ValueError for settings that contradict each other.
    """

    settings: type[S]
    build: Callable[[S], ToolSource]


AnyToolFactory = ToolFactory[Any]
