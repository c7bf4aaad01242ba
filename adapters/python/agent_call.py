"""One call of an agent's function: its turn, and its values as adapter events. Runs on the loop of the function."""

from typing import Any

import msgspec

from adapters.python.calls import CallFailed, Failure
from adapters.python.function_call import ReturnedValue, answer
from adapters.python.reference import FunctionSettings, load_agent, takes_text
from adapters.python.values import ValueTranslator, checked_contract
from adapters.python.worker import Run, summary
from gateway import agent
from gateway.a2a.model import Json
from gateway.foundation.clock import Clock
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError, ErrorClass, ServiceRequest
from gateway.ports.conversation import AssistantItem, UserItem


class _Given(msgspec.Struct, frozen=True):
    """The turn as it travels, as JSON."""

    message: Any
    first_message: Any
    context_id: str
    task_id: str
    principal: str
    history: list[dict[str, Any]]
    state: dict[str, Any] | None


_decoder = msgspec.json.Decoder(_Given)


def encoded(request: ServiceRequest) -> bytes:
    """Raises: AdapterError for a state that is none of this adapter's."""
    if not isinstance(request.state, dict | None):
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, "the stored state is no dict: another adapter wrote it")
    history: list[dict[str, Any]] = []
    for item in request.items[:-1]:
        match item:
            case UserItem(message=message):
                history.append({"role": "ROLE_USER", "parts": message.parts})
            case AssistantItem(parts=parts):
                history.append({"role": "ROLE_AGENT", "parts": parts})
    given = _Given(
        request.message,
        request.first_message,
        request.context_id,
        request.task_id,
        request.principal,
        history,
        request.state,
    )
    return msgspec.json.encode(given)


class AgentService:
    """Emits the events of a call, CallCompleted or DirectReply the last of them."""

    tool = None

    def __init__(self, settings: FunctionSettings, clock: Clock, *, direct_replies: bool) -> None:
        """Raises: ValueError when there is no such function."""
        self._settings = settings
        self._function = load_agent(settings)
        self._takes_text = takes_text(self._function)
        self._direct_replies = direct_replies
        self._clock = clock

    async def run(self, given: bytes, run: Run) -> None:
        asked = _decoder.decode(given)
        turn = agent.Turn(
            message=asked.message,
            first_message=asked.first_message,
            context_id=asked.context_id,
            task_id=asked.task_id,
            principal=asked.principal,
            history=asked.history,
            state=asked.state or {},
            asked_to_stop=run.asked_to_stop,
        )
        translator = ValueTranslator(self._clock.new_id, self._direct_replies)

        def emit(value: object) -> None:
            try:
                for event in translator.events(value):
                    run.emit(event)
            except AdapterError as error:
                raise _broken(error.detail) from error

        ending: agent.TurnEnding | None = None
        try:
            await answer(self._function, turn.text if self._takes_text else turn, run, emit)
        except agent.TurnEnding as raised:
            ending = raised
            drop_tracebacks(ending)
        except ReturnedValue as error:
            raise _broken("a generator function returned a value; there an answer is yielded") from error
        try:
            run.emit(translator.last(ending, _state(turn, had_state=asked.state is not None)))
        except AdapterError as error:
            raise _broken(error.detail) from error

    def failure(self, error: BaseException) -> Failure:
        remedy = self._settings.remedy(error)
        return Failure(ErrorClass.BACKEND_FAILED, summary(error) + (f"\n{remedy}" if remedy else ""))


def _broken(detail: str) -> CallFailed:
    return CallFailed(Failure(ErrorClass.CONTRACT_BROKEN, detail))


def _state(turn: agent.Turn, *, had_state: bool) -> Json:
    with checked_contract():
        if not isinstance(turn.state, dict):
            raise ValueError(f"turn.state must be a dict, not {type(turn.state).__name__}")
        state = agent.decode_json(turn.state, "turn.state")
    return state if state or had_state else None
