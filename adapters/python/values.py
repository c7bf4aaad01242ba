"""Values of an agent function -> adapter events. Law: every value is checked before it is an event."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from adapters.python.calls import CallFailed, Failure
from gateway import agent
from gateway.a2a import model
from gateway.a2a.model import Json
from gateway.ports import adapter as port

_ENDINGS: dict[type[agent.TurnEnding], port.Ending] = {
    agent.InputRequired: port.Ending.INPUT_REQUIRED,
    agent.AuthRequired: port.Ending.AUTH_REQUIRED,
    agent.Reject: port.Ending.REJECTED,
}
_IDENTIFIER = 256


@contextmanager
def checked_contract() -> Iterator[None]:
    """Raises: CallFailed (CONTRACT_BROKEN) for a ValueError in the block."""
    try:
        yield
    except ValueError as error:
        raise CallFailed(Failure(port.ErrorClass.CONTRACT_BROKEN, str(error))) from error


class ValueTranslator:
    """Translates the values of one call, in their order."""

    def __init__(self, new_id: Callable[[], str], direct_replies: bool) -> None:
        self._new_id = new_id
        self._direct_replies = direct_replies
        self._begun = False
        self._answered: dict[str, bool] = {}
        self._direct: tuple[model.Part, ...] | None = None

    def events(self, value: object) -> tuple[port.AdapterEvent, ...]:
        """Raises: CallFailed (CONTRACT_BROKEN) for a value that is not allowed, or not at this place."""
        with checked_contract():
            if self._direct is not None:
                raise ValueError("nothing may follow a DirectMessage")
            if isinstance(value, agent.DirectMessage):
                if not self._direct_replies:
                    raise ValueError("a DirectMessage needs `direct_replies: true` in the settings of the agent")
                if self._begun:
                    raise ValueError("a DirectMessage must be the first thing that is said")
                self._direct = agent.decode_parts(value.content)
                return ()
            self._begun = True
            return self._events(value)

    def last(self, ending: agent.TurnEnding | None, state: Json) -> port.CallCompleted | port.DirectReply:
        """Raises: CallFailed (CONTRACT_BROKEN) when a result is missing."""
        with checked_contract():
            unanswered = [call_id for call_id, answered in self._answered.items() if not answered]
            if unanswered:
                raise ValueError(f"there is no ToolResult for {', '.join(map(repr, unanswered))}")
            if ending is None:
                return (
                    port.CallCompleted(state=state) if self._direct is None else port.DirectReply(self._direct, state)
                )
            if self._direct is not None:
                raise ValueError(f"{type(ending).__name__} may not follow a DirectMessage")
            kind = next(_ENDINGS[base] for base in type(ending).__mro__ if base in _ENDINGS)
            return port.CallCompleted(ending=kind, message=agent.decode_parts(ending.content), state=state)

    def _events(self, value: object) -> tuple[port.AdapterEvent, ...]:
        match value:
            case str():
                return (port.TextDelta(agent.decode_text(value)),) if value else ()
            case dict():
                return (port.PartReady(agent.decode_part(value)),)
            case agent.Artifact():
                return (self._artifact(value),)
            case agent.Status():
                return (port.Progress(agent.decode_text(value.text, "the status")),)
            case agent.ToolCall():
                return self._tool_call(value)
            case agent.ToolResult():
                return (self._tool_result(value),)
            case agent.TurnEnding():
                raise ValueError(f"{type(value).__name__} is to be raised, not yielded or returned")
            case _:
                kinds = "text, a part (dict), Artifact, Status, ToolCall, ToolResult or DirectMessage"
                raise ValueError(f"the function gave a value of type {type(value).__name__}; it may give {kinds}")

    def _artifact(self, value: agent.Artifact) -> port.ArtifactReady:
        artifact = model.Artifact(
            artifact_id=_identifier(self._new_id() if value.artifact_id is None else value.artifact_id, "artifact_id"),
            name=None if value.name is None else agent.decode_text(value.name, "the artifact's name"),
            description=None if value.description is None else agent.decode_text(value.description),
            parts=agent.decode_parts(value.parts, "the artifact"),
            metadata=None if value.metadata is None else agent.decode_json(value.metadata, "the artifact's metadata"),
        )
        return port.ArtifactReady(artifact, value.append, value.last_chunk)

    def _tool_call(self, value: agent.ToolCall) -> tuple[port.AdapterEvent, ...]:
        call_id = _identifier(value.call_id, "the call_id of a ToolCall")
        name = _identifier(value.name, "the name of a ToolCall")
        if call_id in self._answered:
            raise ValueError(f"there are two ToolCalls with the call_id {call_id!r}")
        arguments = msgspec.json.encode(agent.decode_json(value.arguments, f"the arguments of {call_id!r}")).decode()
        self._answered[call_id] = False
        return port.ToolCallAnnounced(call_id, name, handled=True), port.ToolCallReady(
            call_id, name, arguments, handled=True
        )

    def _tool_result(self, value: agent.ToolResult) -> port.ToolResultReady:
        call_id = _identifier(value.call_id, "the call_id of a ToolResult")
        match self._answered.get(call_id):
            case None:
                raise ValueError(f"there is a ToolResult but no ToolCall before it with the call_id {call_id!r}")
            case True:
                raise ValueError(f"there are two ToolResults with the call_id {call_id!r}")
        self._answered[call_id] = True
        return port.ToolResultReady(call_id, agent.decode_json(value.output, f"the output of {call_id!r}"), value.error)


def _identifier(text: str, where: str) -> str:
    if not 0 < len(text) <= _IDENTIFIER:
        raise ValueError(f"{where} must have 1 to {_IDENTIFIER} characters, not {len(text)}")
    return agent.decode_text(text, where)
