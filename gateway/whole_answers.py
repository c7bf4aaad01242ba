"""An answer once more, whole, when it is complete. Law: it replaces what was streamed of it and adds nothing.

Google ADK takes what comes in pieces for a preview: its session remembers only an artifact that comes whole with `lastChunk`.
"""

from collections.abc import Iterator
from typing import Literal

from gateway.model import TaskArtifactUpdateEvent
from gateway.record import TurnOutput

ADK = "https://google.github.io/adk-docs/a2a/a2a-extension/"

Repeat = Literal["auto", "always", "never"]


def repeats(setting: Repeat, named: frozenset[str]) -> bool:
    """Does the client that asks for these extensions get its answers whole at the end?"""
    return setting == "always" or (setting == "auto" and ADK in named)


def whole(output: TurnOutput, task_id: str, context_id: str) -> Iterator[TaskArtifactUpdateEvent]:
    """The artifacts of this turn that no update has closed. What goes on with an earlier turn's is left as it is."""
    for artifact in output.unfinished():
        yield TaskArtifactUpdateEvent(task_id=task_id, context_id=context_id, artifact=artifact, last_chunk=True)
