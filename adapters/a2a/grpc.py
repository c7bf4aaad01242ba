"""The gRPC binding of A2A 1.0, without generated modules. Needs the extra `grpc`. Source: A2A 1.0, section 10."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NoReturn, TypeVar
from urllib.parse import urlsplit

import grpc
import msgspec
from grpc.aio import (
    AioRpcError,
    Channel,
    UnaryStreamMultiCallable,
    UnaryUnaryMultiCallable,
    insecure_channel,
    secure_channel,
)

from adapters.a2a.answer import ends
from adapters.a2a.binding import OPERATIONS, Events, OfTask, Streaming
from adapters.a2a.card import Endpoint
from adapters.a2a.failures import A2AFailures, told
from adapters.http.settings import Timeouts
from gateway.a2a import model, nesting
from gateway.a2a.errors import ParseError
from gateway.a2a.model import Json, StreamResponse, Task, Wire
from gateway.a2a.wire import answers, v1_0_proto
from gateway.a2a.wire.answers import UnknownKind, Unreadable
from gateway.a2a.wire.protobuf import Message
from gateway.grpc.status import details_of
from gateway.ports.adapter import AdapterError, ErrorClass

T = TypeVar("T")
Metadata = Callable[[str], Awaitable[Mapping[str, str]]]
"""The headers of a call of this address."""

_DEEPEST = nesting.DEEPEST + 20
_LARGEST = 32 * 1024 * 1024
_RECONNECT = 1000
"""Milliseconds between two attempts to connect."""
_STATUSES = {
    grpc.StatusCode.UNAUTHENTICATED: ErrorClass.UNAUTHORISED,
    grpc.StatusCode.PERMISSION_DENIED: ErrorClass.UNAUTHORISED,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorClass.RATE_LIMITED,
    grpc.StatusCode.INVALID_ARGUMENT: ErrorClass.REJECTED,
    grpc.StatusCode.OUT_OF_RANGE: ErrorClass.REJECTED,
    grpc.StatusCode.UNIMPLEMENTED: ErrorClass.NOT_SERVED,
    grpc.StatusCode.NOT_FOUND: ErrorClass.NOT_SERVED,
    grpc.StatusCode.FAILED_PRECONDITION: ErrorClass.NOT_SERVED,
    grpc.StatusCode.ABORTED: ErrorClass.LOCKED,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorClass.TIMED_OUT,
    grpc.StatusCode.CANCELLED: ErrorClass.INTERRUPTED,
}

_UNSENT = ("failed to connect", "DNS resolution failed", "Connection refused")


class GrpcBinding:
    """`metadata` makes the credentials of a call. The channel is opened with the first call, in its event loop."""

    def __init__(
        self, endpoint: Endpoint, failures: A2AFailures, extensions: tuple[str, ...], timeouts: Timeouts,
        metadata: Metadata, ca: Path | None,
    ) -> None:  # fmt: skip
        self._interface = endpoint.interface
        self._failures = failures
        self._timeouts = timeouts
        self._metadata = metadata
        self._ca = ca
        self._own = {
            "a2a-version": endpoint.version,
            **({"a2a-extensions": ", ".join(extensions)} if extensions else {}),
        }
        self._channel: Channel | None = None

    async def aclose(self) -> None:
        if self._channel is not None:
            await self._channel.close()

    async def stream(self, request: Streaming, *, handle: str | None = None) -> Events:
        name = OPERATIONS[type(request)]
        procedure = v1_0_proto.PROCEDURES[name]
        path = f"/{v1_0_proto.SERVICE}/{name}"
        method: UnaryStreamMultiCallable[bytes, bytes] = self._open().unary_stream(path)
        call = method(procedure.request.write(msgspec.to_builtins(request)), metadata=await self._headers(path))
        limit, begun = self._timeouts.first_byte, False
        try:
            while True:
                async with asyncio.timeout(limit):
                    payload = await call.read()
                if not isinstance(payload, bytes):
                    return
                limit, begun = self._timeouts.between_bytes, True
                found = self._event(payload)
                if found is None:
                    continue
                yield [found]
                if ends(found):
                    return
        except TimeoutError as error:
            raise self._failures.error(ErrorClass.TIMED_OUT, "the agent said nothing for too long") from error
        except AioRpcError as error:
            self._raise(error, handle, begun=begun)
        finally:
            call.cancel()

    async def send(self, request: model.SendMessageRequest, *, handle: str | None = None) -> StreamResponse:
        found = self._event(await self._unary("SendMessage", request, handle))
        if found is None:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "the answer is neither a task nor a message")
        return found

    async def task(self, request: OfTask, *, handle: str | None = None) -> Task:
        payload = await self._unary(OPERATIONS[type(request)], request, handle)
        return self._as(Task, self._decoded(v1_0_proto.TASK, payload))

    async def tasks(self, request: model.ListTasksRequest) -> tuple[Task, ...]:
        payload = await self._unary("ListTasks", request, None)
        found = self._decoded(v1_0_proto.LIST_TASKS_RESPONSE, payload)
        return self._as(tuple[Task, ...], found.get("tasks", []))

    async def _unary(self, name: str, request: Wire, handle: str | None) -> bytes:
        path = f"/{v1_0_proto.SERVICE}/{name}"
        method: UnaryUnaryMultiCallable[bytes, bytes] = self._open().unary_unary(path)
        message = v1_0_proto.PROCEDURES[name].request.write(msgspec.to_builtins(request))
        try:
            payload = await method(message, metadata=await self._headers(path), timeout=self._timeouts.first_byte)
        except AioRpcError as error:
            self._raise(error, handle, begun=False)
        return bytes(payload)

    async def _headers(self, path: str) -> tuple[tuple[str, str], ...]:
        made = await self._metadata(f"{self._interface.url}{path}")
        return tuple({**self._own, **{name.lower(): value for name, value in made.items()}}.items())

    def _open(self) -> Channel:
        if self._channel is None:
            parts = urlsplit(self._interface.url)
            secure = parts.scheme in {"https", "grpcs"}
            target = parts.netloc if parts.port else f"{parts.netloc}:{443 if secure else 80}"
            connect = int(self._timeouts.connect * 1000)
            options = [
                ("grpc.max_receive_message_length", _LARGEST),
                ("grpc.enable_retries", 0),
                # The first is the limit of an attempt, too. Between attempts calls fail at once.
                ("grpc.min_reconnect_backoff_ms", connect),
                ("grpc.initial_reconnect_backoff_ms", min(connect, _RECONNECT)),
                ("grpc.max_reconnect_backoff_ms", max(connect, _RECONNECT)),
            ]
            if secure:
                roots = None if self._ca is None else self._ca.read_bytes()
                self._channel = secure_channel(target, grpc.ssl_channel_credentials(roots), options)
            else:
                self._channel = insecure_channel(target, options)
        return self._channel

    def _event(self, payload: bytes) -> StreamResponse | None:
        """None for one of a kind that this version of A2A does not have."""
        found = self._as(StreamResponse, self._decoded(v1_0_proto.STREAM_RESPONSE, payload))
        try:
            return answers.checked(found)
        except UnknownKind:
            return None
        except Unreadable as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, str(error)) from error

    def _decoded(self, message: Message, payload: bytes) -> Json:
        try:
            return message.decode(payload, _DEEPEST)[0]
        except ParseError as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, error.message) from error

    def _as(self, kind: type[T], value: Json) -> T:
        try:
            return msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"a message does not fit: {error}") from error

    def _raise(self, error: AioRpcError, handle: str | None, *, begun: bool) -> NoReturn:
        code, text = error.code(), error.details() or ""
        reason, wait = told(details_of(error.trailing_metadata()))
        if reason:
            raise self._failures.refusal(reason, text, handle=handle, retry_after=wait) from error
        raise self._plain(code, text, begun=begun) from error

    def _plain(self, code: grpc.StatusCode, text: str, *, begun: bool) -> AdapterError:
        detail = f"gRPC {code.name}: {text}"
        if code is grpc.StatusCode.UNAVAILABLE:
            # The status does not say whether the agent had the message; that no connection was made does.
            unsent = not begun and any(words in text for words in _UNSENT)
            return self._failures.error(ErrorClass.UNREACHABLE if unsent else ErrorClass.INTERRUPTED, detail)
        return self._failures.error(_STATUSES.get(code, ErrorClass.BACKEND_FAILED), detail)
