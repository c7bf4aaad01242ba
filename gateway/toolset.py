"""The tools of one agent: from several sources, under names that its model can tell apart. Law: what may be called is
what was offered; arguments are checked before a tool sees them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway.model import Json
from gateway.tool_port import ToolDeclaration, ToolOutput, ToolRun, ToolSource
from gateway.tool_results import bounded


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool as one agent's model may call it. `identity` is `source.tool`, as rules name it; `server` as callers see it.

    `timeout` is in seconds, `max_result` in bytes. `complaint` says what is wrong with arguments, None when they fit.
    """

    declaration: ToolDeclaration
    identity: str
    server: str
    own_name: str
    source: ToolSource
    timeout: float
    complaint: Callable[[dict[str, Json]], str | None]
    idempotent: bool = False
    max_result: int = 65536

    async def run(self, run: ToolRun) -> ToolOutput:
        """Raises: ToolError."""
        return bounded(await self.source.run(run), self.max_result)


class Toolset(Protocol):
    async def offered(self) -> Mapping[str, OfferedTool]:
        """By the name that the model uses, in a stable order. Raises: ToolError when a source cannot say what it has."""
        ...
