"""`type: python`: the agent is a function. Law: what a function says is checked here, before it is an event.

The adapter to copy: settings, a class with `ownership`, `call` and `aclose`, the factory that the entry point names.
"""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from typing import Any

import msgspec
from pydantic import Field

from adapters.python.loading import RefSettings, load, takes_text
from adapters.python.running import Run
from gateway import agent
from gateway.a2a import model
from gateway.a2a.model import Json
from gateway.foundation.clock import Clock
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    AdapterFactory,
    ArtifactReady,
    CallCompleted,
    CallStarted,
    DirectReply,
    Ending,
    ErrorClass,
    PartReady,
    Progress,
    ServiceRequest,
    TextDelta,
    ToolCallAnnounced,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.capabilities import ProbeReport
from gateway.ports.conversation import AssistantItem, HandleKind, Item, Ownership, StorageOwner, UserItem

_ENDINGS: dict[type[agent.TurnEnding], Ending] = {
    agent.InputRequired: Ending.INPUT_REQUIRED,
    agent.AuthRequired: Ending.AUTH_REQUIRED,
    agent.Reject: Ending.REJECTED,
}
_IDENTIFIER = 256


class PythonSettings(RefSettings):
    """An agent of type `python`."""

    direct_replies: bool = Field(False, description="Let it answer with a bare message instead of a task.")


class PythonFunction:
    """Speaks to a function. The gateway keeps the history; the function gets it with every turn."""

    def __init__(self, settings: PythonSettings, clock: Clock | None = None) -> None:
        """Raises: ValueError when there is no such function."""
        self._ref = settings.ref
        self._function = load(settings.ref, settings.base_dir)
        self._takes_text = takes_text(self._function)
        self._direct_replies = settings.direct_replies
        self._clock = clock or Clock()

    @property
    def ownership(self) -> Ownership:
        return Ownership(StorageOwner.GATEWAY, HandleKind.NONE, repeatable=False)

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        yield CallStarted()
        run = Run(self._function)
        turn = _turn(request, run.asked_to_stop)
        said = _Translation(self._clock.new_id, self._direct_replies)
        ending: agent.TurnEnding | None = None
        async with aclosing(run.values(turn.text if self._takes_text else turn)) as values:
            try:
                async for value in values:
                    for event in said.events(value):
                        yield event
            except agent.TurnEnding as raised:
                ending = raised
        yield said.last(ending, _state(turn, request))

    async def probe(self) -> ProbeReport:
        return ProbeReport(notes=(f"{self._ref} is loaded",))

    async def aclose(self) -> None:
        """Nothing outlives a call."""


factory = AdapterFactory(
    settings=PythonSettings,
    build=PythonFunction,
    direct_replies=lambda settings: settings.direct_replies,
    tools=False,
)


# --- the turn that the function gets ----------------------------------------------------------------------------------


def _turn(request: ServiceRequest, asked_to_stop: Callable[[], bool]) -> agent.Turn:
    if not isinstance(request.state, dict | None):
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, "the stored state is no dict: another adapter wrote it")
    return agent.Turn(
        message=_as_json(request.message),
        first_message=_as_json(request.first_message),
        context_id=request.context_id,
        task_id=request.task_id,
        principal=request.principal,
        history=list(_history(request.items[:-1])),
        state=_as_json(request.state or {}),
        asked_to_stop=asked_to_stop,
    )


def _history(items: tuple[Item, ...]) -> Iterator[dict[str, Any]]:
    for item in items:
        match item:
            case UserItem(message=message):
                yield {"role": "ROLE_USER", "parts": _as_json(message)["parts"]}
            case AssistantItem():
                yield {"role": "ROLE_AGENT", "parts": _as_json(item)["parts"]}
            case _:
                pass


def _as_json(value: object) -> dict[str, Any]:
    """JSON of its own, which the function may change."""
    return msgspec.json.decode(msgspec.json.encode(value), type=dict[str, Any])


def _state(turn: agent.Turn, request: ServiceRequest) -> Json:
    with _contract():
        if not isinstance(turn.state, dict):
            raise ValueError(f"turn.state must be a dict, not {type(turn.state).__name__}")
        state = agent.decode_json(turn.state, "turn.state")
    return None if request.state is None and not state else state


# --- what the function said, as events of the port --------------------------------------------------------------------


@contextmanager
def _contract() -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, str(error)) from error


class _Translation:
    """The values of one call, in their order."""

    def __init__(self, new_id: Callable[[], str], direct_replies: bool) -> None:
        self._new_id = new_id
        self._direct_replies = direct_replies
        self._spoken = False
        self._answered: dict[str, bool] = {}
        self._direct: tuple[model.Part, ...] | None = None

    def events(self, value: object) -> tuple[AdapterEvent, ...]:
        """Raises: AdapterError (CONTRACT_BROKEN) for what may not be said, or not now."""
        with _contract():
            if self._direct is not None:
                raise ValueError("nothing may follow a DirectMessage")
            if isinstance(value, agent.DirectMessage):
                self._direct = self._direct_reply(value)
                return ()
            self._spoken = True
            return self._events(value)

    def last(self, ending: agent.TurnEnding | None, state: Json) -> CallCompleted | DirectReply:
        """Raises: AdapterError (CONTRACT_BROKEN) when something is missing."""
        with _contract():
            unanswered = [call_id for call_id, answered in self._answered.items() if not answered]
            if unanswered:
                raise ValueError(f"there is no ToolResult for {', '.join(map(repr, unanswered))}")
            if ending is None:
                return CallCompleted(state=state) if self._direct is None else DirectReply(self._direct, state)
            if self._direct is not None:
                raise ValueError(f"{type(ending).__name__} may not follow a DirectMessage")
            kind = next(_ENDINGS[base] for base in type(ending).__mro__ if base in _ENDINGS)
            return CallCompleted(ending=kind, message=agent.decode_parts(ending.content), state=state)

    def _events(self, value: object) -> tuple[AdapterEvent, ...]:
        match value:
            case str():
                return (TextDelta(agent.decode_text(value)),) if value else ()
            case dict():
                return (PartReady(agent.decode_part(value)),)
            case agent.Artifact():
                return (self._artifact(value),)
            case agent.Status():
                return (Progress(agent.decode_text(value.text, "the status")),)
            case agent.ToolCall():
                return self._tool_call(value)
            case agent.ToolResult():
                return (self._tool_result(value),)
            case agent.TurnEnding():
                raise ValueError(f"{type(value).__name__} is to be raised, not yielded or returned")
            case _:
                kinds = "text, a part (dict), Artifact, Status, ToolCall, ToolResult or DirectMessage"
                raise ValueError(f"the function gave a value of type {type(value).__name__}; it may give {kinds}")

    def _direct_reply(self, value: agent.DirectMessage) -> tuple[model.Part, ...]:
        if not self._direct_replies:
            raise ValueError("a DirectMessage needs `direct_replies: true` in the settings of the agent")
        if self._spoken:
            raise ValueError("a DirectMessage must be the first thing that is said")
        return agent.decode_parts(value.content)

    def _artifact(self, value: agent.Artifact) -> ArtifactReady:
        artifact = model.Artifact(
            artifact_id=_identifier(self._new_id() if value.artifact_id is None else value.artifact_id, "artifact_id"),
            name=None if value.name is None else agent.decode_text(value.name, "the artifact's name"),
            description=None if value.description is None else agent.decode_text(value.description),
            parts=agent.decode_parts(value.parts, "the artifact"),
            metadata=None if value.metadata is None else agent.decode_json(value.metadata, "the artifact's metadata"),
        )
        return ArtifactReady(artifact, value.append, value.last_chunk)

    def _tool_call(self, value: agent.ToolCall) -> tuple[AdapterEvent, ...]:
        call_id = _identifier(value.call_id, "the call_id of a ToolCall")
        name = _identifier(value.name, "the name of a ToolCall")
        if call_id in self._answered:
            raise ValueError(f"there are two ToolCalls with the call_id {call_id!r}")
        arguments = msgspec.json.encode(agent.decode_json(value.arguments, f"the arguments of {call_id!r}")).decode()
        self._answered[call_id] = False
        return ToolCallAnnounced(call_id, name), ToolCallReady(call_id, name, arguments, handled=True)

    def _tool_result(self, value: agent.ToolResult) -> ToolResultReady:
        call_id = _identifier(value.call_id, "the call_id of a ToolResult")
        match self._answered.get(call_id):
            case None:
                raise ValueError(f"there is a ToolResult but no ToolCall before it with the call_id {call_id!r}")
            case True:
                raise ValueError(f"there are two ToolResults with the call_id {call_id!r}")
        self._answered[call_id] = True
        return ToolResultReady(call_id, agent.decode_json(value.output, f"the output of {call_id!r}"), value.error)


def _identifier(text: str, where: str) -> str:
    if not 0 < len(text) <= _IDENTIFIER:
        raise ValueError(f"{where} must have 1 to {_IDENTIFIER} characters, not {len(text)}")
    return agent.decode_text(text, where)
