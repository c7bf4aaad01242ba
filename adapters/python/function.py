"""`type: python`: the agent is a function.

A template for adapters: settings, a class with `ownership`, `call` and `aclose`, the factory of the entry point.
"""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from typing import Any

import msgspec
from pydantic import Field

from adapters.python.function_call import FunctionCall
from adapters.python.reference import RefSettings, load_agent, takes_text
from adapters.python.values import ValueTranslator, checked_contract
from gateway import agent
from gateway.a2a.model import Json
from gateway.foundation.clock import Clock
from gateway.ports.adapter import AdapterError, AdapterEvent, AdapterFactory, CallStarted, ErrorClass, ServiceRequest
from gateway.ports.capabilities import ProbeReport
from gateway.ports.conversation import AssistantItem, HandleKind, Item, Ownership, StorageOwner, UserItem


class PythonSettings(RefSettings):
    """An agent of type `python`."""

    direct_replies: bool = Field(False, description="Let it answer with a bare message instead of a task.")


class PythonFunction:
    """Speaks to a function. The gateway keeps the history; the function gets it with every turn."""

    ownership = Ownership(StorageOwner.GATEWAY, HandleKind.NONE, repeatable=False)

    def __init__(self, settings: PythonSettings, clock: Clock | None = None) -> None:
        """Raises: ValueError when there is no such function."""
        self._ref = settings.ref
        self._function = load_agent(settings)
        self._takes_text = takes_text(self._function)
        self._direct_replies = settings.direct_replies
        self._clock = clock or Clock()

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        yield CallStarted()
        call = FunctionCall(self._function)
        turn = _turn(request, call.asked_to_stop)
        translator = ValueTranslator(self._clock.new_id, self._direct_replies)
        ending: agent.TurnEnding | None = None
        async with aclosing(call.values(turn.text if self._takes_text else turn)) as values:
            try:
                async for value in values:
                    for event in translator.events(value):
                        yield event
            except agent.TurnEnding as raised:
                ending = raised
        yield translator.last(ending, _state(turn, request))

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


def _turn(request: ServiceRequest, asked_to_stop: Callable[[], bool]) -> agent.Turn:
    if not isinstance(request.state, dict | None):
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, "the stored state is no dict: another adapter wrote it")
    return agent.Turn(
        message=_json_copy(request.message),
        first_message=_json_copy(request.first_message),
        context_id=request.context_id,
        task_id=request.task_id,
        principal=request.principal,
        history=list(_history(request.items[:-1])),
        state=_json_copy(request.state or {}),
        asked_to_stop=asked_to_stop,
    )


def _history(items: tuple[Item, ...]) -> Iterator[dict[str, Any]]:
    for item in items:
        match item:
            case UserItem(message=message):
                yield {"role": "ROLE_USER", "parts": _json_copy(message)["parts"]}
            case AssistantItem():
                yield {"role": "ROLE_AGENT", "parts": _json_copy(item)["parts"]}


def _json_copy(value: object) -> dict[str, Any]:
    """JSON that the function may change."""
    return msgspec.json.decode(msgspec.json.encode(value), type=dict[str, Any])


def _state(turn: agent.Turn, request: ServiceRequest) -> Json:
    with checked_contract():
        if not isinstance(turn.state, dict):
            raise ValueError(f"turn.state must be a dict, not {type(turn.state).__name__}")
        state = agent.decode_json(turn.state, "turn.state")
    return None if request.state is None and not state else state
