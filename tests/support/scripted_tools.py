"""Tools whose answers are written down beforehand, attached to an agent through the port; they keep the runs that they got."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.a2a.model import Json
from gateway.core.tools.approval_rules import ApprovalRule
from gateway.core.tools.toolset import OfferedTool
from gateway.ports.tools import SourceTool, ToolDeclaration, ToolError, ToolOutput, ToolRun
from tests.support.scripted import Pause

Answer = Json | ToolOutput | Exception | Pause | Callable[[dict[str, Any]], Any]
"""A Pause answers "done" when it is told to go. A dict is an answer like any other JSON."""


class ScriptedTools:
    """One source, `box`, with a tool for each name. `unreachable`: why it cannot say what it has."""

    def __init__(self, answers: Mapping[str, Answer], *, timeout: float = 60.0) -> None:
        self._answers = answers
        self._timeout = timeout
        self.runs: list[ToolRun] = []
        self.unreachable: str | None = None
        self.idempotent = False

    @property
    def ran(self) -> list[str]:
        return [run.name for run in self.runs]

    def rules_in_force(self, rules: Sequence[ApprovalRule]) -> Sequence[ApprovalRule]:
        return rules

    async def offered(self) -> Mapping[str, OfferedTool]:
        if self.unreachable is not None:
            raise ToolError(self.unreachable)
        return {name: self._offer(name) for name in self._answers}

    def _offer(self, name: str) -> OfferedTool:
        parameters: dict[str, Json] = {"type": "object"}
        return OfferedTool(
            declaration=ToolDeclaration(name, f"Does {name}.", parameters),
            identity=f"box.{name}",
            server="test:box",
            own_name=name,
            source=self,
            timeout=self._timeout,
            complaint=lambda arguments, _steps=None: "no 'bad' here" if "bad" in arguments else None,
            idempotent=self.idempotent,
        )

    async def tools(self) -> tuple[SourceTool, ...]:
        return ()

    async def run(self, run: ToolRun) -> ToolOutput:
        self.runs.append(run)
        answer = self._answers[run.name]
        match answer:
            case Exception():
                raise answer
            case Pause():
                await answer.pass_by()
                return ToolOutput("done")
            case ToolOutput():
                return answer
            case _ if callable(answer):
                return ToolOutput(answer(run.arguments))
            case _:
                return ToolOutput(answer)

    async def aclose(self) -> None:
        return
