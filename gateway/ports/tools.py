"""The port of tools that the gateway runs. Law: a tool source knows nothing of tasks, turns or models; the core decides what a
model may call, and when."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gateway.a2a.model import Json


class ToolDeclaration(msgspec.Struct, frozen=True):
    """A tool as the model sees it. `parameters` is a JSON Schema of an object."""

    name: str
    description: str
    parameters: dict[str, Json]


class SourceTool(ToolDeclaration, frozen=True):
    """One tool of a source, under the source's name for it. `idempotent` says that two runs have the same effect as one
    run."""

    idempotent: bool = False


class ToolOutput(msgspec.Struct, frozen=True):
    """The result of a run: text or any JSON value, which may be empty. `error` says that the tool failed; `output` is
    then the reason."""

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
    """The tool could not be run, or its source broke. `detail` is for the operator's log and never reaches a caller.

    `may_have_run`: the request has gone out, and no answer was understood, so nobody knows whether the tool did its work.
    """

    def __init__(self, detail: str, *, may_have_run: bool = False) -> None:
        super().__init__(detail)
        self.detail = detail
        self.may_have_run = may_have_run


class ResultTooDeep(ToolError):
    """The result is nested deeper than what is stored. The tool ran; its callers and the model learn why it failed."""


class ProgramNotStarted(ToolError):
    """The source is a program of this machine that does not run. `detail` says which, why, and what to do."""


class TlsFailed(ToolError):
    """There is no safe connection to the server of the source. `detail` says why, and what helps."""


class ConsentPage(msgspec.Struct, frozen=True):
    """A page on which a user gives a consent. `url` is meant only for the user's browser. `text` is the reason, in the
    words of the source."""

    url: str
    text: str = ""


class ConsentNeeded(ToolError):
    """The call did nothing yet: the user has to consent on these pages first. Then it may be made again."""

    def __init__(self, detail: str, pages: tuple[ConsentPage, ...]) -> None:
        super().__init__(detail)
        self.pages = pages


class ToolSource(Protocol):
    """The tools of one entry under `tools:`. Made without network or disk; connects when first needed."""

    async def tools(self) -> tuple[SourceTool, ...]:
        """The present tools. Called before every service call, so answered from a cache where possible.

        Raises: ToolError when the tools are not known.
        """

    async def run(self, run: ToolRun) -> ToolOutput:
        """Cancelling it ends the run as well as the tool allows. Raises: ToolError, ConsentNeeded before anything was done."""

    async def aclose(self) -> None: ...


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class ToolFactory(Generic[S]):
    """An entry point of the group `a2a_gateway.tools` names one.

    `settings`: a pydantic model (frozen, extra keys forbidden) of the entry's own keys. `build` makes the source without
    network and raises ValueError for contradictory settings.
    """

    settings: type[S]
    build: Callable[[S], ToolSource]


AnyToolFactory = ToolFactory[Any]
