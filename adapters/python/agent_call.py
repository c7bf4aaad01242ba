"""One call of an agent's function: its turn, and its values as adapter events. Runs on the loop of the function."""

from typing import Any

import msgspec
from pydantic import Field

from adapters.python.calls import Failure
from adapters.python.function_call import answer
from adapters.python.reference import FunctionSettings, load_agent, takes_text
from adapters.python.values import ValueTranslator, checked_contract
from adapters.python.worker import Run, summary
from gateway import agent
from gateway.a2a.model import Json
from gateway.foundation.clock import Clock
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError, ErrorClass, ServiceRequest
from gateway.ports.conversation import AssistantItem, UserItem


def encoded(request: ServiceRequest) -> bytes:
    """The fields of a Turn, as JSON. Raises: AdapterError for a state that is none of this adapter's."""
    if not isinstance(request.state, dict | None):
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, "the stored state is no dict: another adapter wrote it")
    history: list[dict[str, Any]] = []
    for item in request.items[:-1]:
        match item:
            case UserItem(message=message):
                history.append({"role": "ROLE_USER", "parts": message.parts})
            case AssistantItem(parts=parts):
                history.append({"role": "ROLE_AGENT", "parts": parts})
    names = ("message", "first_message", "context_id", "task_id", "principal", "state")
    return msgspec.json.encode({name: getattr(request, name) for name in names} | {"history": history})


class PythonSettings(FunctionSettings):
    """An agent of type `python`."""

    kind = "agent"
    direct_replies: bool = Field(False, description="Let it answer with a bare message instead of a task.")


class AgentService:
    """Emits the events of a call, CallCompleted or DirectReply the last of them."""

    tool = None

    def __init__(self, settings: PythonSettings, clock: Clock | None = None) -> None:
        """Raises: ValueError when there is no such function."""
        self._settings = settings
        self._function = load_agent(settings)
        self._takes_text = takes_text(self._function)
        self._new_id = (clock or Clock()).new_id

    async def run(self, given: bytes, run: Run) -> None:
        turn = agent.Turn(**msgspec.json.decode(given), asked_to_stop=run.asked_to_stop)
        had_state, turn.state = turn.state is not None, turn.state or {}
        translator = ValueTranslator(self._new_id, self._settings.direct_replies)

        def emit(value: object) -> None:
            for event in translator.events(value):
                run.emit(event)

        ending: agent.TurnEnding | None = None
        try:
            await answer(self._function, turn.text if self._takes_text else turn, run, emit)
        except agent.TurnEnding as raised:
            ending = raised
            drop_tracebacks(ending)
        with checked_contract():
            state = _state(turn.state, had_state)
        run.emit(translator.last(ending, state))

    def failure(self, error: BaseException) -> Failure:
        remedy = self._settings.remedy(error)
        return Failure(ErrorClass.BACKEND_FAILED, summary(error) + (f"\n{remedy}" if remedy else ""))


def _state(state: object, had_state: bool) -> Json:
    if not isinstance(state, dict):
        raise ValueError(f"turn.state must be a dict, not {type(state).__name__}")
    left = agent.decode_json(state, "turn.state")
    return left if left or had_state else None
