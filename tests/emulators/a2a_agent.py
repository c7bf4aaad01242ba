"""A scripted A2A agent: 1.0 by JSON-RPC and HTTP+JSON, 0.3 by JSON-RPC. Tasks go on without a listener, as at a2a-sdk's server.

Law: a body is checked by a2a-sdk's own types before it is read.
"""

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable
from itertools import count
from typing import Any

from a2a.compat.v0_3 import types as v0_3_types
from a2a.types import SendMessageRequest
from google.protobuf.json_format import Parse  # type: ignore[import-untyped]
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from gateway.a2a.wire.v0_3 import results
from tests.emulators import a2a_events
from tests.emulators.a2a_events import ENDED, WAITING
from tests.emulators.scripts import (
    Ask,
    Conversation,
    Cut,
    Fail,
    Html,
    Item,
    Json,
    NoTerminal,
    Pause,
    Raw,
    Say,
    Script,
    ServerTool,
    Status,
    Step,
    pieces,
    steps_of,
)
from tests.emulators.server import Emulator, EventStream, Frame

_REASONS = {
    -32001: ("TASK_NOT_FOUND", 404),
    -32002: ("TASK_NOT_CANCELABLE", 400),
    -32004: ("UNSUPPORTED_OPERATION", 400),
    -32601: ("METHOD_NOT_FOUND", 404),
    -32602: ("INVALID_PARAMS", 400),
}
_METHODS = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
}


class Refused(Exception):
    """An error of A2A."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message


class Run:
    """A task at work: its events so far, and who waits for more. `closed`: no listener gets any more."""

    def __init__(self, task: Json) -> None:
        self.task = task
        self.frames: list[Json | Raw | Cut] = []
        self.grown = asyncio.Condition()
        self.closed = False
        self.speaks = False
        self.work: asyncio.Task[None] | None = None

    @property
    def state(self) -> str:
        return str(self.task["status"]["state"])

    async def add(self, *frames: Json | Raw | Cut, closed: bool = False) -> None:
        for frame in frames:
            if isinstance(frame, dict):
                a2a_events.apply(self.task, frame)
        async with self.grown:
            self.frames.extend(frames)
            self.closed = self.closed or closed
            self.grown.notify_all()

    async def listen(self, since: int) -> AsyncGenerator[Json | Raw | Cut]:
        place = since
        while True:
            async with self.grown:
                while len(self.frames) == place and not self.closed:
                    await self.grown.wait()
            if place == len(self.frames):
                return
            yield self.frames[place]
            place += 1

    async def settle(self) -> None:
        async with self.grown:
            await self.grown.wait_for(lambda: self.closed)


async def _cut() -> AsyncGenerator[Frame]:
    yield Cut()


async def _silence() -> AsyncGenerator[Frame]:
    yield b": working\n\n"
    await asyncio.Event().wait()


class A2AAgent(Emulator):
    """`sent` are the parameters of the messages in the words of 1.0, `cards` how often the card was read, `left` is set when a
    listener has gone. `subscribes` says that tasks can be listened to again, `rpc` is the path of JSON-RPC on its card. With
    `documents` the answer to a message is no stream but the whole task, as soon as it has nothing more to say.
    `faults` are answers to the next requests of an operation in the place of its own, None for its own; the answers to the next
    `unheard` messages are cut before their first byte, and if `silent`, they are streams without an event."""

    def __init__(
        self, script: Script, *, api_key: str | None = None, version: str = "1.0", streaming: bool = True, **card: Any
    ) -> None:
        self.version, self.streaming, self.card = version, streaming, card
        self.runs: dict[str, Run] = {}
        self.contexts: dict[str, list[Json]] = defaultdict(list)
        self.sent: list[Json] = []
        self.called: list[str] = []
        self.cards = 0
        self.left = asyncio.Event()
        self.subscribes = True
        self.documents = False
        self.rpc = "rpc"
        self.faults: dict[str, list[Response | None]] = defaultdict(list)
        self.unheard = 0
        self.silent = False
        self._ids = count(1)
        super().__init__(script, api_key=api_key)

    def routes(self) -> Iterable[Route]:
        yield Route("/.well-known/agent-card.json", self._card)
        for path in ("/rpc", "/v1/rpc"):
            yield self.route("POST", path, self._rpc)
        yield self.route("POST", "/rest/message:send", self._rest("SendMessage"))
        yield self.route("POST", "/rest/message:stream", self._rest("SendStreamingMessage"))
        for method in ("GET", "POST"):
            yield self.route(method, "/rest/tasks/{id}:subscribe", self._rest("SubscribeToTask"))
        yield self.route("POST", "/rest/tasks/{id}:cancel", self._rest("CancelTask"))
        yield self.route("GET", "/rest/tasks/{id}", self._rest("GetTask"))
        yield self.route("GET", "/rest/tasks", self._rest("ListTasks"))

    def forget_everything(self) -> None:
        self.runs.clear()
        self.contexts.clear()

    # --- bindings

    async def _card(self, request: Request) -> Response:
        self.cards += 1
        if self.faults["card"]:
            return self.faults["card"].pop() or Response()
        origin = str(request.base_url).rstrip("/")
        found: Json = {
            "name": "emulator",
            "description": "Plays a script.",
            "version": "1",
            "capabilities": {"streaming": self.streaming},
            "defaultInputModes": ["text/plain"],
            "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "play", "name": "Play", "description": "Plays.", "tags": ["test"]}],
        }
        if self.version == "1.0":
            found["supportedInterfaces"] = [
                {"url": f"{origin}/{path}", "protocolBinding": binding, "protocolVersion": "1.0"}
                for path, binding in ((self.rpc, "JSONRPC"), ("rest", "HTTP+JSON"))
            ]
        else:
            found |= {"url": f"{origin}/rpc", "preferredTransport": "JSONRPC", "protocolVersion": "0.3.0"}
        return JSONResponse({**found, **self.card})

    async def _rpc(self, request: Request) -> Response:
        body = json.loads(await request.body())
        self.headers.append(dict(request.headers))
        method, below = body["method"], self.version != "1.0"

        def wrapped(result: bytes) -> bytes:
            return b'{"jsonrpc":"2.0","id":"1","result":%b}' % result

        def event(found: Json) -> bytes:
            line = json.dumps(found).encode()
            return b"data: %b\n\n" % wrapped(results.event(None, line) if below else line)

        try:
            if (method in _METHODS) is not below:
                raise Refused(-32601, f"Method not found: {method}")
            return await self._operate(_METHODS.get(method, method), body["params"], event, wrapped)
        except Refused as error:
            name, _ = _REASONS[error.code]
            info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": name, "domain": "a2a-protocol.org"}
            data = {} if below else {"data": [info]}
            return JSONResponse(
                {"jsonrpc": "2.0", "id": "1", "error": {"code": error.code, "message": error.message, **data}}
            )

    def _rest(self, operation: str) -> Callable[[Request], Any]:
        def event(found: Json) -> bytes:
            return b"data: %b\n\n" % json.dumps(found).encode()

        async def answer(request: Request) -> Response:
            body = await request.body()
            self.headers.append(dict(request.headers))
            params = {**(json.loads(body) if body else {}), **request.query_params, **request.path_params}
            try:
                return await self._operate(operation, params, event, lambda result: result)
            except Refused as error:
                name, status = _REASONS[error.code]
                info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": name}
                return JSONResponse({"error": {"code": status, "message": error.message, "details": [info]}}, status)

        return answer

    # --- operations

    async def _operate(
        self, operation: str, params: Json, event: Callable[[Json], bytes], wrapped: Callable[[bytes], bytes]
    ) -> Response:
        self.called.append(operation)
        faults = self.faults[operation]
        if faults and (fault := faults.pop(0)) is not None:
            return fault
        if operation in {"SendMessage", "SendStreamingMessage"}:
            stream = operation == "SendStreamingMessage" and not self.documents
            return await self._message(params, event, wrapped, stream=stream)
        if operation == "ListTasks":
            where = params.get("contextId")
            latest = [run.task for run in reversed(self.runs.values()) if where in (None, run.task["contextId"])]
            page = {"tasks": latest, "nextPageToken": "", "pageSize": len(latest), "totalSize": len(latest)}
            return Response(wrapped(json.dumps(page).encode()), media_type="application/json")
        run = self.runs.get(params["id"])
        if run is None:
            raise Refused(-32001, f"Task {params['id']} not found")
        if operation == "SubscribeToTask":
            if not self.subscribes or run.state in ENDED:
                raise Refused(-32004, "The task cannot be listened to")
            first: list[Json] = [{"task": json.loads(json.dumps(run.task))}] if self.version == "1.0" else []
            return EventStream(self._frames(run, len(run.frames), event, first))
        if operation == "CancelTask":
            if run.state in ENDED:
                raise Refused(-32002, "The task has ended")
            if run.work is not None:
                run.work.cancel()
            await run.add(a2a_events.status("TASK_STATE_CANCELED"), closed=True)
        return Response(wrapped(self._result(run.task)), media_type="application/json")

    def _result(self, task: Json) -> bytes:
        if self.version == "1.0":
            return json.dumps(task).encode()
        return results.event(None, json.dumps({"task": task}).encode())

    async def _message(
        self, params: Json, event: Callable[[Json], bytes], wrapped: Callable[[bytes], bytes], *, stream: bool
    ) -> Response:
        self._check(params)
        self.requests.append(params)
        message = params["message"]
        known = self.runs.get(message.get("taskId", ""))
        if "taskId" in message and known is None:
            raise Refused(-32001, f"Task {message['taskId']} not found")
        if known is not None and known.state not in WAITING:
            raise Refused(-32004, "The task has ended")
        context = message.get("contextId") or f"context-{next(self._ids)}"
        said = self.contexts[context]
        # Messages that did not arrive come as parts of the next one.
        said += [{"role": "user", "content": part["text"]} for part in message["parts"] if "text" in part]
        said += [a2a_events.decision(each) for part in message["parts"] for each in a2a_events.answers(part)]
        self.sent.append(params)
        produced = steps_of(self.script, Conversation(tuple(said), params))
        first = await anext(produced, None)
        if isinstance(first, Status):
            said.pop()
            await produced.aclose()
            plain = isinstance(first.body, str)
            answer = Response if plain else JSONResponse
            return answer(first.body, first.status, headers=dict(first.headers))
        if isinstance(first, Html):
            said.pop()
            return HTMLResponse(first.page, first.status)
        if isinstance(first, Item) and "message" in first.body:
            reply = {"messageId": "reply", "role": "ROLE_AGENT", "contextId": context, **first.body["message"]}
            return self._replied({"message": reply}, event, wrapped, stream=stream)
        run = known or Run(self._task(context, message))
        if known is not None:
            known.task["history"].append(self._stored(message, known.task["id"], context))
        self.runs[run.task["id"]] = run
        since, run.closed, run.speaks = len(run.frames), False, False
        begun: Json = {"task": json.loads(json.dumps(run.task))}
        run.work = asyncio.create_task(self._play(run, first, produced))  # noqa: TID251  # ends with the test's loop
        if self.unheard:
            self.unheard -= 1
            return EventStream(_cut())
        if self.silent:
            return EventStream(_silence())
        if stream:
            return EventStream(self._frames(run, since, event, [begun]))
        if not (self.documents or self._waits(params)):
            found = begun
        else:
            await run.settle()
            found = {"task": run.task}
        return Response(wrapped(self._whole(found)), media_type="application/json")

    def _waits(self, params: Json) -> bool:
        configuration = params.get("configuration", {})
        return bool(
            configuration.get("blocking") if self.version != "1.0" else not configuration.get("returnImmediately")
        )

    def _whole(self, found: Json) -> bytes:
        return json.dumps(found).encode() if self.version == "1.0" else results.event(None, json.dumps(found).encode())

    def _replied(
        self, found: Json, event: Callable[[Json], bytes], wrapped: Callable[[bytes], bytes], *, stream: bool
    ) -> Response:
        body = event(found) if stream else wrapped(self._whole(found))
        return Response(body, media_type="text/event-stream" if stream else "application/json")

    def _check(self, params: Json) -> None:
        if self.version == "1.0":
            Parse(json.dumps(params), SendMessageRequest())
        else:
            v0_3_types.MessageSendParams.model_validate(params)

    def _task(self, context: str, message: Json) -> Json:
        name = f"task-{next(self._ids)}"
        said = self._stored(message, name, context)
        return {"id": name, "contextId": context, "status": {"state": "TASK_STATE_SUBMITTED"}, "history": [said]}

    def _stored(self, message: Json, task: str, context: str) -> Json:
        """The message as a task of 1.0 has it."""
        if self.version != "1.0":
            return {"messageId": message["messageId"], "role": "ROLE_USER", "parts": [{"text": ""}]}
        return {**message, "taskId": task, "contextId": context}

    # --- the work of a task

    async def _play(self, run: Run, first: Step | None, produced: AsyncGenerator[Step]) -> None:
        await run.add(a2a_events.status("TASK_STATE_WORKING"))
        asked: list[Ask] = []
        step = first
        while step is not None:
            match step:
                case Pause(until):
                    await until.wait()
                case NoTerminal():
                    await run.add(closed=True)
                    return
                case Ask():
                    asked.append(step)
                case _:
                    found = list(self._played(run, step))
                    ended = any(isinstance(each, dict) and a2a_events.ends(each) for each in found)
                    await run.add(*found, closed=ended)
                    if ended:
                        return
            step = await anext(produced, None)
        last = a2a_events.question(asked) if asked else a2a_events.status("TASK_STATE_COMPLETED")
        await run.add(last, closed=True)

    def _played(self, run: Run, step: Step) -> Iterable[Json | Raw | Cut]:
        match step:
            case Raw() | Cut():
                yield step
            case Fail(message=words):
                yield a2a_events.status("TASK_STATE_FAILED", words)
            case Say(text, chunks):
                for piece in pieces(text, chunks):
                    yield a2a_events.artifact("answer", [{"text": piece}], append=run.speaks)
                    run.speaks = True
            case ServerTool(name=name, arguments=arguments, output=output):
                yield from a2a_events.tool(name, dict(arguments), output)
            case Item(body):
                yield json.loads(json.dumps(body))

    async def _frames(
        self, run: Run, since: int, event: Callable[[Json], bytes], first: list[Json]
    ) -> AsyncGenerator[Frame]:
        owner = {"taskId": run.task["id"], "contextId": run.task["contextId"]}
        try:
            for found in first:
                yield event(found)
            async for frame in run.listen(since):
                if isinstance(frame, dict):
                    yield event({name: {**owner, **member} for name, member in frame.items()})
                else:
                    yield frame
        finally:
            self.left.set()
