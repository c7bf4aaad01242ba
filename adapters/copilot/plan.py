"""The steps of an agent's plan -> tool calls, which the agent runs itself. Law: a step is told, complete and answered once,
whatever of it came.

Source: event activities of Copilot Studio with generative orchestration, as conversation transcripts keep them.
"""

from collections.abc import Iterator

import msgspec

from adapters.copilot.activities import Activity
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterEvent, ReasoningDelta, ToolCallAnnounced, ToolCallReady, ToolResultReady

_TRIGGERED = "DynamicPlanStepTriggered"
_BOUND = "DynamicPlanStepBindUpdate"
_FINISHED = "DynamicPlanStepFinished"
_DONE = "completed"
_OF_SERVER = "MCP"
_BUILT_IN = "P"


class Plan:
    def __init__(self) -> None:
        self._tools: dict[str, tuple[str, str | None]] = {}
        """By the id of the step: its tool, and the server of the tool."""
        self._complete: set[str] = set()
        self._answered: set[str] = set()

    @property
    def open(self) -> bool:
        """Whether a step runs."""
        return len(self._answered) < len(self._tools)

    def receive(self, activity: Activity) -> Iterator[AdapterEvent]:
        kind, value = activity.name or activity.value_type, activity.value
        if kind not in (_TRIGGERED, _BOUND, _FINISHED) or not isinstance(value, dict):
            return
        tool = value.get("taskDialogId")
        step = value.get("stepId") or tool
        if not isinstance(tool, str) or not isinstance(step, str) or step in self._answered:
            return
        yield from self._begin(step, tool, value.get("thought"))
        if kind == _BOUND:
            yield from self._bind(step, value.get("arguments"))
        elif kind == _FINISHED:
            yield from self._bind(step, None)
            self._answered.add(step)
            observation = value.get("observation")
            yield ToolResultReady(step, observation, error=_failed(value.get("state"), observation))

    def _begin(self, step: str, tool: str, thought: Json) -> Iterator[AdapterEvent]:
        if step in self._tools:
            return
        name, server = self._tools[step] = _named(tool)
        if isinstance(thought, str) and thought:
            yield ReasoningDelta(f"{thought}\n")
        yield ToolCallAnnounced(step, name, handled=True, server=server)

    def _bind(self, step: str, arguments: Json) -> Iterator[AdapterEvent]:
        if step in self._complete:
            return
        self._complete.add(step)
        name, server = self._tools[step]
        given = arguments if isinstance(arguments, dict) else {}
        yield ToolCallReady(step, name, msgspec.json.encode(given).decode(), handled=True, server=server)


def _named(tool: str) -> tuple[str, str | None]:
    """The name of a tool, and its server: `MCP:server:name`, `P:name`, or a name alone."""
    match tool.split(":"):
        case [kind, server, *name] if kind == _OF_SERVER and name:
            return ":".join(name), f"mcp:{server}"
        case [kind, *name] if kind == _BUILT_IN and name:
            return ":".join(name), None
    return tool, None


def _failed(state: Json, observation: Json) -> bool:
    refused = isinstance(observation, dict) and observation.get("isError") is True
    return refused or (isinstance(state, str) and state != _DONE)
