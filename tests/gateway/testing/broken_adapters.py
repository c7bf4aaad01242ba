"""An adapter that is right, and ones that are each wrong in one way. The backend is an object in the same process."""

import asyncio
import dataclasses
import json
import socket
from codecs import getincrementaldecoder
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from gateway.a2a.model import Json
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    CallCompleted,
    CallStarted,
    ErrorClass,
    ServiceRequest,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import AssistantItem, HandleKind, OutputItem, Ownership, UserItem
from gateway.ports.tools import ToolDeclaration

Events = AsyncGenerator[AdapterEvent, None]
SECRET = "sk-canary-0123456789"  # a made-up key


@dataclass(slots=True)
class Backend:
    """`pieces` None: it echoes. `ending`: its behaviour after the pieces. `status`: an HTTP status. With `rounds` of calls
    it sends no text before they are answered; `names`: the names of the calls so far. `question`: it ends each
    answer with it; `waiting`: the calls that wait for an answer."""

    pieces: tuple[str, ...] | None = ()
    ending: str = "complete"
    status: int = 200
    trickles: bool = False
    tool: tuple[str, str, str] | None = None
    received: list[list[tuple[str, str]]] = field(default_factory=list)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    rounds: tuple[Sequence[tuple[str, dict[str, Json]]], ...] = ()
    round: int = 0
    names: dict[str, str] = field(default_factory=dict)
    offered: list[list[ToolDeclaration]] = field(default_factory=list)
    outputs: list[list[tuple[str, str]]] = field(default_factory=list)
    question: str = ""
    waiting: set[str] = field(default_factory=set)


class Right:
    """Passes the suite with any owner of the conversation."""

    def __init__(self, backend: Backend, owner: Ownership) -> None:
        self.backend = backend
        self.owner = owner
        self.calls = 0

    @property
    def ownership(self) -> Ownership:
        return self.owner

    async def call(self, request: ServiceRequest) -> Events:
        self.calls += 1
        if self.backend.ending == "gone":
            raise AdapterError(ErrorClass.UNREACHABLE, "connection refused")
        if self.backend.status != 200:
            raise AdapterError(self.error_class(self.backend.status), f"HTTP {self.backend.status}")
        self.send(list(self.messages_of(request)))
        self.backend.round = 0 if isinstance(request.items[-1], UserItem) else self.backend.round + 1
        self.backend.offered.append(self.offers(request))
        self.backend.outputs.append(self.answers(request))
        static = self.owner.handle is HandleKind.STATIC
        handle = None if self.owner.handle is HandleKind.NONE else f"handle-{1 if static else self.calls}"
        yield CallStarted(handle)
        await asyncio.sleep(0)
        for event in (*self.tool_events(), *self.open_calls()):
            yield event
        try:
            for piece in self.pieces(request):
                await asyncio.sleep(0)
                for text in self.read(self.chunks(piece)):
                    yield TextDelta(text)
            await self.end()
        finally:
            self.release()
        yield CallCompleted(handle, usage={"tokens": 1}, state={"n": 1})

    def error_class(self, status: int) -> ErrorClass:
        known = {401: ErrorClass.UNAUTHORISED, 403: ErrorClass.UNAUTHORISED, 429: ErrorClass.RATE_LIMITED}
        return known.get(status, ErrorClass.BACKEND_FAILED if status >= 500 else ErrorClass.REJECTED)

    def messages_of(self, request: ServiceRequest) -> Iterable[tuple[str, str]]:
        for item in request.items:
            match item:
                case UserItem(message=message):
                    yield "user", message.parts[0].text or ""
                case AssistantItem(parts=parts):
                    yield "agent", parts[0].text or ""

    def send(self, messages: list[tuple[str, str]]) -> None:
        self.backend.received.append(messages)

    def chunks(self, piece: str) -> list[bytes]:
        data = piece.encode()
        return [bytes([byte]) for byte in data] if self.backend.trickles else [data]

    def read(self, chunks: list[bytes]) -> Iterable[str]:
        return map(getincrementaldecoder("utf-8")().decode, chunks)

    def pieces(self, request: ServiceRequest) -> tuple[str, ...]:
        if self.backend.rounds:
            return ("Done",) if self.backend.round >= len(self.backend.rounds) else ()
        return (request.message.parts[0].text or "",) if self.backend.pieces is None else self.backend.pieces

    def tool_events(self) -> tuple[AdapterEvent, ...]:
        if self.backend.tool is None:
            return ()
        name, arguments, output = self.backend.tool
        return (
            ToolCallAnnounced("call-1", name),
            ToolCallArguments("call-1", arguments),
            ToolCallReady("call-1", name, arguments, handled=True),
            ToolResultReady("call-1", output),
        )

    def offers(self, request: ServiceRequest) -> list[ToolDeclaration]:
        return list(request.tools)

    def answers(self, request: ServiceRequest) -> list[tuple[str, str]]:
        outputs = [item for item in request.items if isinstance(item, OutputItem)]
        return [(self.backend.names[item.call_id], self.output_text(item)) for item in outputs]

    def output_text(self, item: OutputItem) -> str:
        return item.output if isinstance(item.output, str) else json.dumps(item.output)

    def open_calls(self) -> Iterable[AdapterEvent]:
        due = self.backend.rounds[self.backend.round :][:1]
        for index, (name, arguments) in enumerate(due[0] if due else ()):
            call_id = self.call_id(index)
            self.backend.names[call_id] = name
            yield ToolCallAnnounced(call_id, name)
            yield ToolCallReady(call_id, name, json.dumps(arguments))

    def call_id(self, index: int) -> str:
        return f"call-{self.calls}-{index}"

    async def end(self) -> None:
        match self.backend.ending:
            case "stall":
                await asyncio.Event().wait()
            case "fail":
                raise self.failed()
            case "cut":
                raise self.cut()

    def failed(self) -> AdapterError:
        return AdapterError(ErrorClass.BACKEND_FAILED, "it says that it failed")

    def cut(self) -> AdapterError:
        return AdapterError(ErrorClass.INTERRUPTED, "the stream ended too early")

    def release(self) -> None:
        self.backend.released.set()

    async def aclose(self) -> None:
        pass


class OwnershipAsksTheNetwork(Right):
    @property
    def ownership(self) -> Ownership:
        with socket.socket() as connection:
            connection.connect_ex(("127.0.0.1", 1))
        return self.owner


class OwnershipChanges(Right):
    @property
    def ownership(self) -> Ownership:
        return dataclasses.replace(self.owner, opaque_replay=self.calls > 0)


class _Rewrites(Right):
    """Gives other events than the right ones."""

    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        raise NotImplementedError

    async def call(self, request: ServiceRequest) -> Events:
        async with aclosing(super().call(request)) as events:
            async for event in events:
                for other in self.rewrite(event, request):
                    yield other


class IsNotWhatItsFactoryDeclares(Right):
    pass


class CompletesTwice(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return (event, event) if isinstance(event, CallCompleted) else (event,)


class GoesOnAfterTheEnd(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return (event, TextDelta("P.S.")) if isinstance(event, CallCompleted) else (event,)


class NeverCompletes(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return () if isinstance(event, CallCompleted) else (event,)


class NeverStarts(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return () if isinstance(event, CallStarted) else (event,)


class RepeatsText(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return (event, event) if isinstance(event, TextDelta) else (event,)


class FillsEmptyAnswers(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        silent = isinstance(event, CallCompleted) and not self.backend.pieces
        return (TextDelta("(nothing)"), event) if silent else (event,)


class GivesForeignEvents(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return ({"type": "ping"}, event)


class CountsToNaN(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return (replace(event, usage={"tokens": float("nan")}) if isinstance(event, CallCompleted) else event,)


class SplitsLines(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return tuple(map(TextDelta, event.text.splitlines())) if isinstance(event, TextDelta) else (event,)


class DecodesEachChunk(Right):
    def read(self, chunks: list[bytes]) -> Iterable[str]:
        return (chunk.decode(errors="replace") for chunk in chunks)


class ChangesItsRequest(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        if request.state is not None:
            request.state["n"] += 1
        return (event,)


class ForgetsTheHandle(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return (replace(event, handle=None) if isinstance(event, CallCompleted) else event,)


class TakesAnyIdForAHandle(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return (replace(event, handle=f"id-{self.calls}") if isinstance(event, CallCompleted) else event,)


class KeepsItsHandleToItself(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return (CallStarted() if isinstance(event, CallStarted) else event,)


class ChangesItsPendingHandle(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return (event, CallStarted("another")) if isinstance(event, CallStarted) else (event,)


class SendsTheLastMessageOnly(Right):
    def send(self, messages: list[tuple[str, str]]) -> None:
        super().send(messages[-1:])


class ForgetsItsAnswers(Right):
    def send(self, messages: list[tuple[str, str]]) -> None:
        super().send([(who, text) for who, text in messages if who == "user"])


class TakesAllForTheUsersWords(Right):
    def send(self, messages: list[tuple[str, str]]) -> None:
        super().send([("user", text) for _, text in messages])


class SendsEverythingAgain(Right):
    def send(self, messages: list[tuple[str, str]]) -> None:
        super().send([each for before in self.backend.received for each in before] + messages)


class KeepsTheConnection(Right):
    def release(self) -> None:
        pass


class SwallowsCancelling(Right):
    async def end(self) -> None:
        try:
            await super().end()
        except asyncio.CancelledError:
            return


class StaysBusy(Right):
    async def call(self, request: ServiceRequest) -> Events:
        if self.calls:
            raise AdapterError(ErrorClass.LOCKED, "busy")
        async with aclosing(super().call(request)) as events:
            async for event in events:
                yield event


class MixesCalls(Right):
    last: ServiceRequest

    async def call(self, request: ServiceRequest) -> Events:
        self.last = request
        async with aclosing(super().call(request)) as events:
            async for event in events:
                yield event

    def pieces(self, request: ServiceRequest) -> tuple[str, ...]:
        return super().pieces(self.last)


class ClosesOnce(Right):
    closed = False

    async def aclose(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class LetsForeignErrorsOut(Right):
    async def end(self) -> None:
        if self.backend.ending == "fail":
            raise ConnectionError("HTTP 500")
        await super().end()


class FailsWithoutAWord(Right):
    def failed(self) -> AdapterError:
        return AdapterError(ErrorClass.BACKEND_FAILED, "")


class TakesAFailureForARefusal(Right):
    def failed(self) -> AdapterError:
        return AdapterError(ErrorClass.REJECTED, "it says that it failed")


class TakesACutForARefusal(Right):
    def cut(self) -> AdapterError:
        return AdapterError(ErrorClass.REJECTED, "the stream ended too early")


class TakesEveryStatusForAFailure(Right):
    def error_class(self, status: int) -> ErrorClass:
        return ErrorClass.BACKEND_FAILED


class TakesEveryStatusForARefusal(Right):
    def error_class(self, status: int) -> ErrorClass:
        return ErrorClass.REJECTED


class TellsTheKey(Right):
    async def end(self) -> None:
        if self.backend.ending == "fail":
            try:
                raise ConnectionError(f"500 for Authorization: Bearer {SECRET}")
            except ConnectionError as error:
                raise self.failed() from error
        await super().end()


class TellsTheKeyOfACutAnswer(Right):
    def cut(self) -> AdapterError:
        return AdapterError(ErrorClass.INTERRUPTED, f"the answer to Bearer {SECRET} ended too early")


class DoesNotKnowWhy(Right):
    async def call(self, request: ServiceRequest) -> Events:
        try:
            async with aclosing(super().call(request)) as events:
                async for event in events:
                    yield event
        except AdapterError as error:
            raise AdapterError(ErrorClass.UNKNOWN, error.detail) from error


class TakesACutForTheEnd(Right):
    async def end(self) -> None:
        if self.backend.ending != "cut":
            await super().end()


class AnswersBeforeTheCall(Right):
    def tool_events(self) -> tuple[AdapterEvent, ...]:
        return super().tool_events()[::-1]


class LeavesToolsToTheGateway(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return (replace(event, handled=False) if isinstance(event, ToolCallReady) else event,)


class RenamesToolCalls(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return (replace(event, call_id="call-2") if isinstance(event, ToolResultReady) else event,)


class LosesArguments(_Rewrites):
    def rewrite(self, event: AdapterEvent, request: ServiceRequest) -> tuple[Any, ...]:
        return (replace(event, delta="{") if isinstance(event, ToolCallArguments) else event,)
