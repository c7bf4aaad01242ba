"""Agents whose adapter takes no tap, such as Python functions: their calls as exchanges, by the events of the adapter port.

Law: a recorded agent has all abilities of its adapter; a replayed one answers calls, and reaches nothing.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast, get_args

import msgspec

from gateway.a2a.model import Json
from gateway.ports import adapter as port
from gateway.ports.adapter import (
    Adapter,
    AdapterError,
    AdapterEvent,
    CallCompleted,
    DirectReply,
    ErrorClass,
    ServiceRequest,
)
from gateway.ports.wire import Answer, End, Player, Recorder, Request, Tap
from gateway.recording.calls import RecordedCall, replayed
from gateway.recording.lines import Event

_FIELDS = ("handle", "items", "context_id", "task_id", "principal", "message", "state", "tools", "so_far", "owner")
"""What of a request is recorded: not its secret, and no time."""
_ERROR_FIELDS = ("kind", "detail", "retry_after", "backend_down", "stale_connection", "usage")
_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(port.AdapterEvent)}

_PURE = ("backend", "read_state", "named_handle", "check_handle")
"""Abilities that need no backend."""
_ABILITIES = (*_PURE, "probe", "describe", "forget", "fetch", "find", "resume", "cancel", "withdraw", "tail")


def tapped_agent(adapter: Adapter, name: str, tap: Tap) -> Adapter:
    """The same adapter, whose calls are recorded or answered from a recording."""
    kind: type[Any] = _Recorded if isinstance(tap, Recorder) else _Replayed
    kept = _ABILITIES if isinstance(tap, Recorder) else _PURE
    # An ability is found by `isinstance`, so it has to be in the class.
    abilities = {ability: getattr(adapter, ability) for ability in kept if hasattr(adapter, ability)}
    made_kind = type(kind.__name__, (kind,), abilities)
    return cast("Adapter", made_kind(adapter, name, tap))


class _Recorded:
    def __init__(self, adapter: Adapter, name: str, tap: Recorder) -> None:
        self.ownership = adapter.ownership
        self._adapter, self._name, self._tap = adapter, name, tap

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        with RecordedCall(self._tap, _asked(self._name, request), AdapterError, _told) as recorded:
            async with aclosing(self._adapter.call(request)) as events:
                async for event in events:
                    recorded.event(type(event).__name__, msgspec.to_builtins(event))
                    if isinstance(event, CallCompleted | DirectReply):
                        recorded.complete()
                    yield event

    async def aclose(self) -> None:
        await self._adapter.aclose()


class _Replayed:
    def __init__(self, adapter: Adapter, name: str, tap: Player) -> None:
        self.ownership = adapter.ownership
        self._adapter, self._name, self._tap = adapter, name, tap

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        answer = self._tap.answer(_asked(self._name, request))
        async with aclosing(_events(answer)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        await self._adapter.aclose()


async def _events(answer: Answer) -> AsyncGenerator[AdapterEvent, None]:
    """Raises: AdapterError as recorded; CONTRACT_BROKEN for what is no event."""
    async with aclosing(replayed(answer)) as events:
        async for event in events:
            if event is None:
                raise AdapterError(ErrorClass.CONTRACT_BROKEN, "the recording has an event that cannot be read")
            yield _read(event)
    if answer.how is not End.COMPLETE:
        raise AdapterError(ErrorClass.INTERRUPTED, f"the recording ends here: {answer.how}")


def _told(error: AdapterError) -> tuple[str, Json]:
    return AdapterError.__name__, {name: getattr(error, name) for name in _ERROR_FIELDS}


def _read(event: Event) -> AdapterEvent:
    try:
        value: Json = msgspec.json.decode(event.data)
        if event.name == AdapterError.__name__ and isinstance(value, dict):
            raise AdapterError(ErrorClass(value.pop("kind")), **value)
        found: AdapterEvent = msgspec.convert(value, _KINDS[event.name])
    except (KeyError, TypeError, ValueError) as error:
        what = f"the recording has an event {event.name!r} that cannot be read: {error}"
        raise AdapterError(ErrorClass.CONTRACT_BROKEN, what) from error
    return found


def _asked(name: str, request: ServiceRequest) -> Request:
    body = {name: getattr(request, name) for name in _FIELDS if getattr(request, name)}
    return Request("CALL", f"agent:{name}", {}, msgspec.json.encode(body))
