"""The steps that all bindings take with a request: caller, agent, body, version, parameters, operation, response.

Law: `Pipeline.perform` is the only caller of the operations.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import msgspec
import structlog
from msgspec.structs import replace
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.a2a import errors
from gateway.a2a import limits as checks
from gateway.a2a.errors import A2AError
from gateway.a2a.model import Json
from gateway.a2a.weight import weight
from gateway.a2a.wire import dialects, strict_json
from gateway.a2a.wire.dialect import Dialect, Method
from gateway.config.gateway import LimitsConfig
from gateway.core.agents import Agent, Agents
from gateway.foundation.clock import Clock
from gateway.foundation.off_loop import off_loop
from gateway.foundation.shutdown import Drain
from gateway.foundation.sizes import LARGE
from gateway.http.arrival import Arrival
from gateway.http.audited import AuditLine, action_of, actor_of, audited, outcome_of, target_of
from gateway.http.auth import Authenticator, Identity
from gateway.http.headers import ServiceParameters, refuse_media_type
from gateway.http.held import ClientGone, while_connected
from gateway.http.reply import Reply, reason
from gateway.http.request_log import line_of
from gateway.http.sse import Envelope, EventResponse, OnRevocation, StreamSettings
from gateway.ledger.errors import LedgerUnavailable
from gateway.operations.call import EventStream, OperationCall
from gateway.operations.quotas import CountedStream, Quotas
from gateway.operations.service import Operations
from gateway.ports.observer import SILENT, AuditEntry, Observer, RequestLine, Target

_BODY_TIMEOUT = 30.0

log = structlog.get_logger("gateway.http.pipeline")


class AdmittedRequest(msgspec.Struct, frozen=True):
    """A request of a known caller, without its body. `agent` is the agent that the path names, or None."""

    agent: str | None
    parameters: ServiceParameters
    identity: Identity
    arrival: Arrival


class Document(msgspec.Struct, frozen=True):
    """A body and the JSON in it."""

    body: bytes
    value: Json


Read = Callable[[Dialect], tuple[Method, Any]]
Perform = Callable[[OperationCall, Any], Awaitable[Any]]
Hold = Callable[[Awaitable[Any]], Awaitable[Any]]
Refuse = Callable[[A2AError], ASGIApp]


class Outcome(msgspec.Struct, frozen=True):
    """What an operation has returned: its result, None where it has none, or its stream. `extensions` are the active ones."""

    extensions: tuple[str, ...]
    result: Any = None
    stream: EventStream | None = None
    on_revocation: OnRevocation = lambda _: nullcontext()


def operation_table(operations: Operations) -> Mapping[str, Perform]:
    """The operation of every method, by its name on the wire."""
    return {
        "SendMessage": operations.send_message,
        "SendStreamingMessage": operations.send_streaming_message,
        "GetTask": operations.get_task,
        "ListTasks": operations.list_tasks,
        "CancelTask": operations.cancel_task,
        "SubscribeToTask": operations.subscribe_to_task,
        "CreateTaskPushNotificationConfig": operations.create_push_config,
        "GetTaskPushNotificationConfig": operations.get_push_config,
        "ListTaskPushNotificationConfigs": operations.list_push_configs,
        "DeleteTaskPushNotificationConfig": operations.delete_push_config,
        "GetExtendedAgentCard": operations.get_extended_card,
    }


class Pipeline:
    """The gateway as the bindings see it."""

    def __init__(
        self,
        operations: Operations,
        agents: Agents,
        auth: Authenticator,
        limits: LimitsConfig,
        clock: Clock,
        drain: Drain,
        quotas: Quotas,
        *,
        draft_1_1: bool = False,
        observer: Observer = SILENT,
        continues_traces: bool = False,
    ) -> None:
        """`drain`, once set, ends every stream. With `draft_1_1`, the draft of A2A 1.1 is spoken as well. With
        `continues_traces`, the traces of trusted callers go on here."""
        self.agents = agents
        self.limits = msgspec.convert(limits, checks.Limits, from_attributes=True)
        self._body = limits.request_body
        self.depth = limits.json_depth
        self.streams = StreamSettings(drain, self.told, limits.stream_keepalive, limits.stream_blocked)
        self._auth = auth
        self._clock = clock
        self._operations = operation_table(operations)
        self._quotas = quotas
        self._draft_1_1 = draft_1_1
        self._observer = observer
        self._continues_traces = continues_traces

    def spoken(self, binding: Mapping[str, Dialect]) -> Mapping[str, Dialect]:
        """The dialects that the gateway speaks of those of a binding."""
        return dialects.with_drafts(binding) if self._draft_1_1 else binding

    async def admit(self, arrival: Arrival, agent: str | None, *, for_admins: str | None = None) -> AdmittedRequest:
        """Identifies and admits the caller. `for_admins` is what only callers with an admin key may use, in words;
        None for what everybody may.

        Raises: Unauthenticated, PermissionDenied, TooManyRequests, NotFound.
        """
        identity = await self._identify(arrival)
        if for_admins is not None:
            check_admin(identity, for_admins)
        self._quotas.request(identity.caller)
        if agent is not None:
            self.agents.resolve(agent, None)
        arrival.line.principal = identity.caller.principal
        parameters = ServiceParameters.of(arrival.headers, arrival.query)
        return AdmittedRequest(agent, parameters, identity, arrival)

    async def identify(self, arrival: Arrival) -> Identity:
        """Identifies a caller whom nothing is allowed yet; the request counts. Raises: Unauthenticated, TooManyRequests."""
        identity = await self._identify(arrival)
        self._quotas.request(identity.caller)
        arrival.line.principal = identity.caller.principal
        return identity

    # Not a coroutine of its own.
    def _identify(self, arrival: Arrival) -> Awaitable[Identity]:
        """Raises: Unauthenticated, TooManyRequests."""
        return self._auth.authenticate(arrival.headers, arrival.peer)

    async def read_json(
        self, scope: Scope, receive: Receive, *, empty: Json = ..., depth: int | None = None
    ) -> Document:
        """The body as JSON. `empty` is the value of a body without bytes. `depth` is its deepest nesting, of any number of
        values; None stands for the limits of requests.

        Raises: UnsupportedMediaType, PayloadTooLarge, ParseError, InvalidRequest when the body does not arrive.
        """
        refuse_media_type(scope)
        body = await self.read_body(scope, receive)
        if not body and empty is not ...:
            return Document(body, empty)
        limits = (self.depth, strict_json.VALUES) if depth is None else (depth,)
        return Document(body, await off_loop(len(body), strict_json.decode, body, *limits))

    async def read_body(self, scope: Scope, receive: Receive) -> bytes:
        """Raises: PayloadTooLarge, InvalidRequest when the body does not arrive."""
        if "gateway.arrived" in scope.get("extensions", ()):
            return await self._collect(receive)
        for name, value in scope["headers"]:
            if name == b"content-length" and value.isdigit() and len(value) < 20 and int(value) > self._body:
                raise self._too_large()
        try:
            async with asyncio.timeout(_BODY_TIMEOUT):
                return await self._collect(receive)
        except TimeoutError:
            raise errors.InvalidRequest(f"the body did not arrive within {_BODY_TIMEOUT:g} s") from None

    async def _collect(self, receive: Receive) -> bytes:
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > self._body:
                raise self._too_large()
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    def _too_large(self) -> A2AError:
        return errors.PayloadTooLarge(f"the body is larger than {self._body} bytes")

    async def invoke(
        self,
        admitted: AdmittedRequest,
        dialect: Dialect,
        read: Read,
        envelope: Envelope,
        receive: Receive,
        *,
        size: int = 0,
    ) -> ASGIApp:
        """The response of one operation, as `perform` gives it. Raises: A2AError; ClientGone where the client of a held answer
        disconnects."""
        outcome = await self.perform(admitted, dialect, read, partial(while_connected, receive=receive), size=size)
        headers = ((dialect.extensions, ", ".join(outcome.extensions).encode()),) if outcome.extensions else ()
        if outcome.stream is not None:
            event = dialect.translation(outcome.stream.may_end_at)
            return EventResponse(outcome.stream, envelope, self.streams, headers, outcome.on_revocation, event)
        result = outcome.result
        if result is None:
            body = envelope.empty
        elif weight(result) <= LARGE:
            body = dialect.encode(result)
        else:
            body = await asyncio.to_thread(dialect.encode, result)
        return Reply(b"%b%b%b" % (envelope.head, body, envelope.tail), media_type=envelope.media_type, headers=headers)

    async def perform(
        self, admitted: AdmittedRequest, dialect: Dialect, read: Read, hold: Hold = lambda work: work, *, size: int
    ) -> Outcome:
        """Performs one operation. `read` finds method and request in the dialect; `size` is that of the body. `hold` waits for
        an answer that is held.

        Raises: A2AError, and as `hold`.
        """
        method, request = read(dialect) if size <= LARGE else await asyncio.to_thread(read, dialect)
        checks.check(request, self.limits)
        agent = self.agents.resolve(admitted.agent, request.tenant)
        line = admitted.arrival.line
        line.agent, line.operation = agent.name, method.operation
        requested = admitted.parameters.extensions(self.limits)
        active = _activate(agent, requested, method)
        perform, traced, trace = self._operations[method.operation], admitted.arrival.traced, None
        if traced is not None:
            headers, peer = admitted.arrival.headers, admitted.arrival.peer
            trace = traced.admit(method, headers, admitted.identity, peer, line, continues=self._continues_traces)
            perform = traced.performing(perform)
        call = OperationCall(
            agent=agent,
            caller=admitted.identity.caller,
            extensions=frozenset(active),
            named=frozenset(requested),
            idempotency_key=admitted.parameters.idempotency_key(self.limits),
            last_event_id=admitted.parameters.last_event_id(),
            version=dialect.version,
            in_list=dialect.in_list,
            trace=trace,
            on_turn=None if traced is None else traced.brought,
        )
        if self._observer.audits and (action := action_of(method, request)) is not None:
            perform = self._audited(perform, action, admitted)
        if method.streaming:
            on_revocation = partial(self._auth.on_revocation, admitted.identity)
            stream = await self._open_stream(perform, call, request)
            return Outcome(active, stream=stream, on_revocation=on_revocation)
        if not method.held:
            return Outcome(active, result=await perform(call, request))
        result = await hold(perform(call, request))
        await self._identify(admitted.arrival)  # the credential may have been revoked during the wait
        return Outcome(active, result=result)

    def _audited(self, perform: Perform, action: str, admitted: AdmittedRequest) -> Perform:
        """The operation, with a line in the audit log before its answer; that of a message as soon as it is taken."""
        actor = actor_of(admitted.identity, admitted.arrival.peer)

        async def performed(call: OperationCall, request: Any) -> Any:
            told = False

            def tell(target: Target, outcome: str = "done") -> None:
                nonlocal told
                if not told:
                    told = True
                    self._observer.audited(AuditEntry(action, actor, target, outcome))

            asked = target_of(call.agent.name, request)
            taken = replace(
                call,
                on_task=lambda task, context: tell(replace(asked, task=task, context=context)),
                on_push=lambda push, task, context: self._observer.audited(
                    AuditEntry("push.created", actor, Target(call.agent.name, context, task, push=push))
                ),
                on_absent=lambda: tell(asked, "not_found"),
            )
            try:
                result = await perform(taken, request)
            except Exception as error:
                tell(asked, outcome_of(error))
                raise
            tell(target_of(call.agent.name, request, result))
            return result

        return performed

    def audited(self, action: str, identity: Identity, arrival: Arrival) -> AbstractContextManager[AuditLine]:
        """An action of the admin API."""
        return audited(self._observer, action, actor_of(identity, arrival.peer))

    async def _open_stream(self, perform: Perform, call: OperationCall, request: Any) -> EventStream:
        """A stream that counts against the caller's quota until it is closed."""
        slot = self._quotas.streams.take(call.caller)
        try:
            return CountedStream(await perform(call, request), slot)
        except BaseException:
            slot.release()
            raise

    async def respond(
        self, work: Awaitable[ASGIApp], refuse: Refuse, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Sends the response that `work` returns, or the response that `refuse` makes of its error."""
        try:
            response = await work
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001  # the caller gets a response to any error, and none of its text
            response = refuse(self.refusal(error, line_of(scope)))
        await response(scope, receive, send)

    def refusal(self, error: Exception, line: RequestLine) -> A2AError:
        """The error for the caller, noted in the line of the access log."""
        told = self.told(error)
        line.error = reason(told)
        return told

    def told(self, error: Exception) -> A2AError:
        """The error for the caller."""
        if isinstance(error, LedgerUnavailable):
            log.warning("storage unavailable", error=str(error))
            return _storage_error(error)
        return error if isinstance(error, A2AError) else self.unexpected(error)

    def unexpected(self, error: Exception) -> errors.InternalError:
        """The error for the caller after a fault of the gateway; the log has the rest under the same correlation id."""
        correlation_id = self._clock.correlation_id()
        log.error("request.failed", correlation_id=correlation_id, exc_info=error)
        return errors.InternalError(
            f"Internal error (correlation id {correlation_id})", metadata={"correlationId": correlation_id}
        )


_STORAGE = {
    "full": "The gateway's storage is full: nothing new is taken.",
    "read-only": "The gateway's storage can only be read: nothing new is taken.",
    "removed": "The gateway's storage was taken away: nothing new is taken.",
    "locked": "The gateway's storage is in use by another program; try again.",
    "unconfirmed": "The gateway's storage waits for its standby; try again.",
    "behind": "The gateway's storage lacks what it has confirmed: nothing is taken until an operator has looked.",
}


def _storage_error(error: LedgerUnavailable) -> A2AError:
    text = _STORAGE.get(error.trouble, "The gateway's storage is not available; try again.")
    return errors.Busy(text, metadata={"storage": error.trouble}, retry_after=5)


def check_admin(identity: Identity, what: str) -> None:
    """Raises: PermissionDenied."""
    if not identity.admin:
        raise errors.PermissionDenied(f"{what} needs an admin key")


def _activate(agent: Agent, requested: tuple[str, ...], method: Method) -> tuple[str, ...]:
    """The extensions that both sides name, in the order of the request. Raises: ExtensionSupportRequired."""
    declared = agent.card.capabilities.extensions or ()
    missing = [extension.uri for extension in declared if extension.required and extension.uri not in requested]
    if missing and method.needs_extensions:
        raise errors.ExtensionSupportRequired(
            f"this agent requires the extension {missing[0]}; name it in A2A-Extensions",
            metadata={"extensions": ", ".join(missing)},
        )
    if not requested:
        return ()
    names = {extension.uri for extension in declared}
    return tuple(uri for uri in requested if uri in names)
