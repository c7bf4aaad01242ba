"""A backend whose answers are written down beforehand: it comes through the port and keeps the requests that it got."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence

from msgspec.structs import replace

from gateway.a2a.model import Part
from gateway.ports.adapter import AdapterEvent, CallCompleted, CallStarted, ServiceRequest, TextDelta
from gateway.ports.capabilities import Ongoing
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    HandleKind,
    Item,
    OutputItem,
    Ownership,
    StorageOwner,
    UserItem,
)

G = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)
BR = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)
BS = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)


class Pause:
    """The backend is silent from `reached` until `go`."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def pass_by(self) -> None:
        self.reached.set()
        await self.go.wait()


Step = AdapterEvent | BaseException | Pause | None
"""None: others come first."""
Script = Sequence[Step]


def says(text: str, handle: str = "r") -> list[Step]:
    """A whole answer. The handle is left out for an adapter whose backend keeps nothing."""
    return [TextDelta(text), CallCompleted(handle)]


class ScriptedAdapter:
    """One script per service call, in order; those behind the last one are answered by `otherwise`.

    `requests` are those that arrived, `broken_off` how many of them were not listened to until their end; `paused`
    is set when a pause was reached.
    """

    def __init__(
        self, ownership: Ownership, *calls: Script, otherwise: Callable[[ServiceRequest], Script] | None = None
    ) -> None:
        self._ownership = ownership
        self._calls = list(calls)
        self._otherwise = otherwise
        self.requests: list[ServiceRequest] = []
        self.broken_off = 0
        self.paused = asyncio.Event()
        self.closed = False

    @property
    def ownership(self) -> Ownership:
        return self._ownership

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        self.requests.append(request)
        script = self._calls.pop(0) if self._calls else None
        if script is None:
            assert self._otherwise is not None, f"the script has no call {len(self.requests)}"
            script = self._otherwise(request)
        left = len(script)
        step: Step = None
        try:
            for step in script:
                left -= 1
                match step:
                    case None:
                        await asyncio.sleep(0)
                    case Pause():
                        self.paused.set()
                        await step.pass_by()
                    case BaseException():
                        raise step
                    case _:
                        yield self._told(step)
        except (GeneratorExit, asyncio.CancelledError):
            self.broken_off += left > 0 or isinstance(step, Pause)
            raise

    def _told(self, event: AdapterEvent) -> AdapterEvent:
        if self._ownership.owner is StorageOwner.GATEWAY and isinstance(event, CallCompleted | CallStarted):
            return replace(event, handle=None)
        return event

    async def aclose(self) -> None:
        self.closed = True

    @property
    def sent(self) -> list[tuple[str | None, list[str]]]:
        """What went upstream: the handle and the items, in words."""
        return [(request.handle, [in_words(item) for item in request.items]) for request in self.requests]


def name_of(call: Ongoing) -> str:
    """The names of a call in one text: `handle`, or `handle/run`."""
    return call.handle or "" if call.run is None else f"{call.handle}/{call.run}"


def in_words(item: Item) -> str:
    match item:
        case UserItem(message=message):
            return f"U {_texts(message.parts)}"
        case AssistantItem(parts=parts):
            return f"A {_texts(parts)}"
        case CallItem(call_id=call_id, name=name):
            return f"C {call_id} {name}"
        case OutputItem(call_id=call_id, output=output):
            return f"O {call_id} {output}"
        case _:
            return f"R {item}"


def _texts(parts: Sequence[Part]) -> str:
    return " ".join(part.text or "?" for part in parts)
