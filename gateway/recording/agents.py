"""Agents whose adapter takes no tap, such as Python functions: their calls as exchanges, by the events of the adapter port.

Law: a recorded agent has all abilities of its adapter; a replayed one answers calls, and reaches nothing.
"""

import asyncio
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
from gateway.ports.wire import EVENTS, Answer, End, Player, Recorder, Request, Tap
from gateway.recording.lines import Blocks, Event, made
from gateway.recording.pace import passed

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
        taking = self._tap.begin(_asked(self._name, request))
        taking.answered(200, EVENTS)
        how = End.CANCELLED
        try:
            async with aclosing(self._adapter.call(request)) as events:
                async for event in events:
                    taking.received(made(type(event).__name__, msgspec.to_builtins(event)))
                    if isinstance(event, CallCompleted | DirectReply):
                        how = End.COMPLETE
                    yield event
            how = End.COMPLETE
        except AdapterError as error:
            taking.received(made(AdapterError.__name__, {name: getattr(error, name) for name in _ERROR_FIELDS}))
            how = End.COMPLETE
            raise
        except Exception:
            how = End.BROKEN
            raise
        finally:
            taking.ended(how)

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
    blocks = Blocks()
    async with aclosing(passed(answer)) as pieces:
        async for piece in pieces:
            for block in blocks.feed(piece):
                event = Event.of(block)
                if event is None:
                    raise AdapterError(ErrorClass.CONTRACT_BROKEN, "the recording has an event that cannot be read")
                yield _read(event)
    if answer.how is End.CANCELLED:
        await asyncio.Event().wait()
    if answer.how is not End.COMPLETE:
        raise AdapterError(ErrorClass.INTERRUPTED, f"the recording ends here: {answer.how}")


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
