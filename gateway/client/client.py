"""A small client of A2A 1.0 over JSON-RPC and HTTP+JSON. Law: responses stay the JSON of the wire; a dropped stream continues
where it stopped, without gap or repeat."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

import httpx2

from gateway.client import transport
from gateway.client.discovery import Binding, Endpoint
from gateway.client.transport import (
    ClientError,
    Json,
    NotA2A,
    Refused,
    StreamLost,
    Unreachable,
    json_at,
    objects,
    text_at,
)
from gateway.foundation.retry import backoff

ENDED = frozenset(f"TASK_STATE_{state}" for state in ("COMPLETED", "FAILED", "CANCELED", "REJECTED"))
WAITING = frozenset({"TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"})

_SILENCE = 60.0
"""Seconds without a byte after which a stream counts as lost: servers send a comment about every 30 s."""
_SUBSCRIBE = "SubscribeToTask"
_EVENT_SIZE = 32 * 1024 * 1024
_LONGEST_RETRY_AFTER = 10.0
_PAGE = 100


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a dropped stream is resumed without a new numbered event, and the pauses before that, in seconds."""

    tries: int = 6
    first: float = 0.25
    longest: float = 5.0


@dataclass(slots=True)
class _StreamState:
    """The state of a stream so far. `follows` says that the stream watches a task whose state counts from the first
    event on.

    `since` is the timestamp of the first status that counts, if the stream repeats earlier statuses.
    """

    follows: bool
    task: str | None = None
    last_id: str | None = None
    ended: bool = False
    waiting: bool = False
    since: str = ""

    def is_repeat(self, number: str) -> bool:
        known = self.last_id or ""
        return number.isdecimal() and known.isdecimal() and int(number) <= int(known)

    def note(self, number: str, event: Json) -> None:
        self.last_id = number or self.last_id
        whole, update = json_at(event, "task"), json_at(event, "statusUpdate")
        task = text_at(whole, "id") or text_at(update, "taskId") or text_at(event, "artifactUpdate", "taskId")
        self.task = self.task or task
        state = text_at(whole, "status", "state") or text_at(update, "status", "state")
        if state is not None:
            moment = text_at(whole, "status", "timestamp") or text_at(update, "status", "timestamp") or self.since
            self.waiting = state in WAITING and moment >= self.since
        # The first task after a message may still have the state from before that message.
        final = state in ENDED or (self.waiting and (self.follows or update is not None))
        self.ended = self.ended or final or json_at(event, "message") is not None


@dataclass(frozen=True, slots=True)
class _Call:
    """One operation. `params` are for JSON-RPC; `rest` is the HTTP method and path of the other binding."""

    method: str
    params: dict[str, Json]
    rest: tuple[str, str]
    headers: dict[str, str] = field(default_factory=dict)


class Client:
    """A client of one agent."""

    def __init__(
        self,
        http: httpx2.AsyncClient,
        endpoint: Endpoint,
        retry: Retry | None = None,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self.endpoint = endpoint
        self._http = http
        self._retry = retry or Retry()
        self._sleep = sleep

    async def send(self, request: dict[str, Json], idempotency_key: str | None = None) -> Json:
        """SendMessage: `{"task": ...}` or `{"message": ...}`. Raises: Unreachable, NotA2A, Refused."""
        call = _Call("SendMessage", request, ("POST", "/message:send"), _idempotency(idempotency_key))
        return await self._ask(call)

    async def get_task(self, task: str) -> Json:
        """Raises: Unreachable, NotA2A, Refused."""
        return await self._ask(_Call("GetTask", {"id": task}, ("GET", f"/tasks/{quote(task, safe='')}")))

    async def list_tasks(self, where: dict[str, Json]) -> Json:
        """ListTasks: one page. Raises: Unreachable, NotA2A, Refused."""
        # A URL has parameters in ProtoJSON.
        query = urlencode({key: json.dumps(item) if isinstance(item, bool) else item for key, item in where.items()})
        return await self._ask(_Call("ListTasks", where, ("GET", f"/tasks?{query}")))

    async def tasks(self, where: dict[str, Json], limit: int | None = None) -> AsyncGenerator[Json, None]:
        """The tasks of all pages, the latest first; at most `limit`. Raises: as `list_tasks`."""
        left, token, before = limit, "", None
        while token != before and (left is None or left > 0):
            size = _PAGE if left is None else min(left, _PAGE)
            page = await self.list_tasks({**where, "pageSize": size, **({"pageToken": token} if token else {})})
            found = objects(page, "tasks")[:left]
            for task in found:
                yield task
            left = None if left is None else left - len(found)
            before, token = token, text_at(page, "nextPageToken") or ""
            if not token:
                return

    async def cancel_task(self, task: str) -> Json:
        """The Task after the cancellation. Raises: Unreachable, NotA2A, Refused where it has ended."""
        call = _Call("CancelTask", {"id": task}, ("POST", f"/tasks/{quote(task, safe='')}:cancel"))
        return await self._ask(call)

    def stream(self, request: dict[str, Json], idempotency_key: str | None = None) -> AsyncGenerator[Json, None]:
        """SendStreamingMessage: its events until the task ends or waits for the caller.

        Raises: Unreachable, NotA2A, Refused, StreamLost.
        """
        call = _Call("SendStreamingMessage", request, ("POST", "/message:stream"), _idempotency(idempotency_key))
        return self._resumed(call, _StreamState(follows=False))

    def follow(self, task: str, after: int | None = None, since: str = "") -> AsyncGenerator[Json, None]:
        """SubscribeToTask: the present Task, then its events, until it ends or waits for the caller.

        `after`: the stream begins at this number of the agent's log, if the agent keeps one. A waiting state from before
        `since`, the timestamp of a status, does not end the stream. Raises: as `stream`.
        """
        last_id = None if after is None else str(after)
        state = _StreamState(follows=True, task=task, last_id=last_id, since=since)
        return self._resumed(_subscribe(task, last_id), state)

    async def send_and_follow(self, message: Json) -> AsyncGenerator[Json, None]:
        """Does what `stream` does, also for an agent that does not stream."""
        if self.endpoint.streaming:
            async with aclosing(self.stream({"message": message})) as events:
                async for event in events:
                    yield event
            return
        result = await self.send({"message": message, "configuration": {"returnImmediately": True}})
        yield result
        task = text_at(result, "task", "id")
        if task and text_at(result, "task", "status", "state") not in ENDED | WAITING:
            yield {"task": await self.wait(task)}

    async def follow_any(self, task: str) -> AsyncGenerator[Json, None]:
        """Does what `follow` does, also for an agent that does not stream."""
        if not self.endpoint.streaming:
            yield {"task": await self.wait(task)}
            return
        async with aclosing(self.follow(task)) as events:
            async for event in events:
                yield event

    async def wait(self, task: str, poll: float = 1.0) -> Json:
        """The Task once it has ended or waits for the caller. Raises: as `stream`."""
        if self.endpoint.streaming:
            async with aclosing(self.follow(task)) as events:
                async for _ in events:
                    pass
            return await self.get_task(task)
        while True:
            found = await self.get_task(task)
            if text_at(found, "status", "state") in ENDED | WAITING:
                return found
            await self._sleep(poll)

    async def _resumed(self, call: _Call, state: _StreamState) -> AsyncGenerator[Json, None]:
        failures = 0
        while not state.ended:
            pause = None
            try:
                async with aclosing(self._events(call)) as events:
                    async for number, event in events:
                        if state.is_repeat(number):
                            continue
                        if number:
                            failures = 0
                        state.note(number, event)
                        yield event
                        if state.ended:
                            return
                problem: ClientError = StreamLost("the stream ended before the task did")
            except Unreachable as error:
                problem = error
            except Refused as error:
                if not error.temporary:
                    yield await self._settled(call, error)
                    return
                problem, pause = error, error.retry_after
            failures += 1
            if state.task is None or failures > self._retry.tries:
                raise problem
            pause = pause or backoff(self._retry.first, self._retry.longest, failures)
            await self._sleep(min(pause, _LONGEST_RETRY_AFTER))
            state.follows = True
            call = _subscribe(state.task, state.last_id)

    async def _settled(self, call: _Call, error: Refused) -> Json:
        """The task that the agent does not stream because it has ended or waits. Raises: `error` where that is not so."""
        if call.method != _SUBSCRIBE or error.status in {401, 403}:
            raise error
        task = await self.get_task(call.params["id"])
        if text_at(task, "status", "state") not in ENDED | WAITING:
            raise error
        return {"task": task}

    async def _events(self, call: _Call) -> AsyncGenerator[tuple[str, Json], None]:
        """(id or "", StreamResponse) of one connection."""
        request = self._request(call, stream=True)
        with transport.http_errors(str(request.url)):
            response = await self._http.send(request, stream=True)
            async with aclosing(response):
                if not response.headers.get("content-type", "").startswith("text/event-stream"):
                    await response.aread()
                    self._result(response)
                    raise NotA2A(f"{request.url} answered {call.method} with no stream")
                async for sse in httpx2.EventSource(response, _EVENT_SIZE).__aiter__():
                    fault = f"sent an event that is no A2A {transport.VERSION}: {sse.data[:80]!r}"
                    yield sse.id, self._payload(response, transport.decode(sse.data), fault)

    async def _ask(self, call: _Call) -> Json:
        request = self._request(call, stream=False)
        with transport.http_errors(str(request.url)):
            return self._result(await self._http.send(request))

    def _result(self, response: httpx2.Response) -> Json:
        """Raises: Refused, NotA2A."""
        body = transport.read_json(response)
        if response.status_code >= 300:
            raise transport.refused_from(response, body)
        kind = response.headers.get("content-type", "no content type")
        return self._payload(response, body, f"does not answer as A2A {transport.VERSION} does: {kind}")

    def _payload(self, response: httpx2.Response, body: Json, fault: str) -> Json:
        """The result or the event in a body. `fault` describes a server that sends anything else."""
        if isinstance(json_at(body, "error"), dict):
            raise transport.refused_from(response, body)
        found = json_at(body, "result") if self.endpoint.binding is Binding.JSONRPC else body
        if not isinstance(found, dict):
            raise NotA2A(f"{response.request.url} {fault}")
        return found

    def _request(self, call: _Call, *, stream: bool) -> httpx2.Request:
        tenant = self.endpoint.tenant
        headers = {"Accept": "text/event-stream" if stream else "application/json", **call.headers}
        url, method = self.endpoint.url, "POST"
        body: Json = None
        if self.endpoint.binding is Binding.JSONRPC:
            params = {"tenant": tenant, **call.params} if tenant else call.params
            body = {"jsonrpc": "2.0", "id": 1, "method": call.method, "params": params}
        else:
            method, path = call.rest
            url = url.rstrip("/") + (f"/{quote(tenant, safe='')}" if tenant else "") + path
            # The id is in the path already.
            body = {name: value for name, value in call.params.items() if name != "id"} if method == "POST" else None
        content = None if body is None else json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        if content is not None:
            headers["Content-Type"] = "application/json"
        timeout = httpx2.Timeout(transport.CONNECT, read=_SILENCE if stream else None)
        with transport.http_errors(url):
            return self._http.build_request(method, url, content=content, headers=headers, timeout=timeout)


def _subscribe(task: str, last_id: str | None) -> _Call:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    return _Call(_SUBSCRIBE, {"id": task}, ("GET", f"/tasks/{quote(task, safe='')}:subscribe"), headers)


def _idempotency(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}
