"""An Agent Server of LangGraph with one graph: threads, runs, interrupts, on the wire of langgraph-api 0.16.7.

Law: a thread takes one run at a time, and a run goes on when its listener leaves.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing, closing
from typing import Any
from uuid import UUID, uuid4

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.testing.serving import DROP
from tests.emulators.langgraph_runs import Run, RunReply, ai_message, tool_message
from tests.emulators.scripts import Conversation, Json, Script, greeting
from tests.emulators.server import Emulator, EventStream, Frame, Refused, Validator, play

_ROLES = {"user": "human", "human": "human", "tool": "tool", "assistant": "ai", "ai": "ai"}
_SPEAKERS = {"human": "user", "tool": "tool", "ai": "assistant"}


class Thread:
    """`messages` are those of the state of the graph, `interrupts` its open questions. `history` has the messages at the end of
    each step, with the run and the step before."""

    def __init__(self, body: Json) -> None:
        self.id: str = body["thread_id"]
        self.body = body
        self.status = "idle"
        self.messages: list[Json] = []
        self.interrupts: list[Json] = []
        self.runs: dict[str, Run] = {}
        self.history: list[Json] = []

    def add(self, messages: Iterable[Json], run: str) -> None:
        """A message with a known id takes the place of that message."""
        for message in messages:
            places = {each["id"]: index for index, each in enumerate(self.messages)}
            if message["id"] in places:
                self.messages[places[message["id"]]] = message
            else:
                self.messages.append(message)
        self._step(run)

    def enter(self, run: str) -> None:
        """The point of the history before a run takes anything."""
        self._step(run)

    @property
    def whole(self) -> Json:
        asked = {str(uuid4()): [interrupt] for interrupt in self.interrupts}
        values = {"messages": self.messages}
        return {"thread_id": self.id, "status": self.status, "values": values, "interrupts": asked, "metadata": {}}

    def _step(self, run: str) -> None:
        before = self.history[-1]["checkpoint"] if self.history else None
        self.history.append(
            {
                "values": {"messages": list(self.messages)},
                "checkpoint": {"checkpoint_id": str(uuid4()), "thread_id": self.id},
                "parent_checkpoint": before,
                "metadata": {"run_id": run},
            }
        )


class Late:
    """A request is on its way from `sent` until `lands`."""

    def __init__(self) -> None:
        self.sent = asyncio.Event()
        self.lands = asyncio.Event()

    async def pass_by(self) -> None:
        self.sent.set()
        await self.lands.wait()


class LangGraphServer(Emulator):
    """`threads` by id. `graph` is the name of its graph."""

    def __init__(
        self,
        script: Script = greeting,
        *,
        api_key: str | None = None,
        validator: Validator | None = None,
        graph: str = "agent",
    ) -> None:
        self.threads: dict[str, Thread] = {}
        self.graph = graph
        self.left = asyncio.Event()
        """A listener has left a run that was at work."""
        self.faults: dict[str, int] = {}
        """Method and route -> the HTTP status of the next answer there; 0 for a connection that is cut instead."""
        self.late: dict[str, Late] = {}
        """Method and route -> what holds the next request there up, before the server has it."""
        self.named = asyncio.Event()
        """The answers to requests for runs begin: a run that has begun is told its name."""
        self.named.set()
        super().__init__(script, api_key=api_key, validator=validator)

    @property
    def runs(self) -> list[Run]:
        return [run for thread in self.threads.values() for run in thread.runs.values()]

    def forget_everything(self) -> None:
        self.threads.clear()

    def routes(self) -> Iterable[Route]:
        thread, run = "/threads/{thread}", "/threads/{thread}/runs/{run}"
        return (
            self.route("GET", "/info", self._info),
            self.route("POST", "/assistants/search", self._search_assistants),
            self.route("GET", "/assistants/{assistant}", self._get_assistant),
            self.route("POST", "/threads", self._make_thread),
            self.route("GET", thread, self._get_thread),
            self.route("DELETE", thread, self._delete_thread),
            self.route("POST", f"{thread}/history", self._list_history),
            self.route("GET", f"{thread}/state/{{checkpoint}}", self._get_state),
            self.route("POST", f"{thread}/state", self._update_state),
            self.route("POST", f"{thread}/runs/stream", self._begin_run),
            self.route("GET", f"{thread}/runs", self._list_runs),
            self.route("GET", run, self._get_run),
            self.route("GET", f"{run}/stream", self._join_run),
            self.route("POST", f"{run}/cancel", self._cancel_run),
        )

    def route(self, method: str, path: str, answer: Callable[[Request], Awaitable[Response]]) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                if self._api_key is not None and request.headers.get("x-api-key") != self._api_key:
                    raise _refused(403, f"Invalid API key: {request.headers.get('x-api-key')}")
                late = self.late.pop(f"{method} {path}", None)
                if late is not None:
                    await late.pass_by()
                fault = self.faults.pop(f"{method} {path}", None)
                if fault:
                    raise _refused(fault, "Not now.")
                if fault is not None:
                    return BrokenAnswer(media_type=request.headers["accept"])
                return await answer(request)
            except Refused as error:
                return error.response

        return Route(path, endpoint, methods=[method])

    # --- assistants

    async def _info(self, _: Request) -> Response:
        return JSONResponse({"version": "0.16.7", "langgraph_py_version": "1.2.24", "flags": {}})

    async def _search_assistants(self, request: Request) -> Response:
        asked = json.loads(await request.body())
        return JSONResponse([self._assistant] if asked.get("graph_id") == self.graph else [])

    async def _get_assistant(self, request: Request) -> Response:
        name = request.path_params["assistant"]
        _check_id(name, "assistant")
        if name != ASSISTANT:
            raise _refused(404, f"Assistant with ID {name} not found")
        return JSONResponse(self._assistant)

    @property
    def _assistant(self) -> Json:
        return {
            "assistant_id": ASSISTANT,
            "graph_id": self.graph,
            "name": "Helper",
            "description": "Helps.",
            "version": 3,
        }

    # --- threads

    async def _make_thread(self, request: Request) -> Response:
        body = await self.read(request, "ThreadCreate")
        name = body.setdefault("thread_id", str(uuid4()))
        _check_id(name, "thread")
        if name in self.threads and body.get("if_exists") != "do_nothing":
            raise _refused(409, f"Thread with ID {name} already exists")
        return JSONResponse(self.threads.setdefault(name, Thread(body)).whole)

    async def _get_thread(self, request: Request) -> Response:
        return JSONResponse(self._thread(request).whole)

    async def _delete_thread(self, request: Request) -> Response:
        thread = self._thread(request)
        for run in thread.runs.values():
            run.stop()
        del self.threads[thread.id]
        return Response(status_code=204)

    async def _list_history(self, request: Request) -> Response:
        thread, asked = self._thread(request), await self.read(request, "ThreadStateSearch")
        wanted = asked.get("metadata", {}).items()
        found = [state for state in reversed(thread.history) if wanted <= state["metadata"].items()]
        return JSONResponse(found[: asked.get("limit", 1)])

    async def _get_state(self, request: Request) -> Response:
        name = request.path_params["checkpoint"]
        for state in self._thread(request).history:
            if state["checkpoint"]["checkpoint_id"] == name:
                return JSONResponse(state)
        raise _refused(404, f"Checkpoint {name} not found")

    async def _update_state(self, request: Request) -> Response:
        """No values as the end of the graph: nothing waits any more."""
        thread, body = self._thread(request), await self.read(request, "ThreadStateUpdate")
        if thread.status == "busy":
            raise _refused(409, f"Thread {thread.id} has in-flight runs: []")
        assert (body["values"], body["as_node"]) == (None, "__end__")
        thread.interrupts, thread.status = [], "idle"
        thread.enter("")
        return JSONResponse({"checkpoint": thread.history[-1]["checkpoint"]})

    def _thread(self, request: Request) -> Thread:
        name = request.path_params["thread"]
        _check_id(name, "thread")
        if name not in self.threads:
            raise _refused(404, f"Thread with ID {name} not found")
        return self.threads[name]

    # --- runs

    async def _begin_run(self, request: Request) -> Response:
        body = await self.read(request, "RunCreateStreamingStateful")
        thread = self._thread_for_run(request, body)
        if thread.status == "busy":
            raise _refused(409, _BUSY)
        run, before = Run(thread.id, body.get("metadata", {})), thread.status
        thread.status, thread.runs[run.id] = "busy", run
        thread.enter(run.id)
        gated, decisions = self._take(thread, run, body)
        try:
            steps = await self.open(Conversation((*map(_said, thread.messages), *decisions), body))
        except BaseException:
            del thread.runs[run.id]
            thread.status = before
            raise
        if isinstance(steps, Response):
            del thread.runs[run.id]
            thread.status = before
            return steps

        def commit(messages: Iterable[Json]) -> None:
            thread.add(messages, run.id)

        reply = RunReply(run, gated, commit)
        frames = play(reply, steps, goes_on=True)
        return RunAnswer(run, reply, frames, lambda: self._settle(thread, reply), self.left, self.named)

    def _thread_for_run(self, request: Request, body: Json) -> Thread:
        name, assistant = request.path_params["thread"], body["assistant_id"]
        _check_id(name, "thread")
        if assistant not in (self.graph, ASSISTANT):
            if not _is_id(assistant):
                raise _refused(422, f"Invalid assistant: {assistant!r}. Must be either:\n{_KNOWN}{self.graph}")
            raise _refused(404, "Thread or assistant not found.")
        if name not in self.threads:
            raise _refused(404, "Thread or assistant not found.")
        return self.threads[name]

    def _take(self, thread: Thread, run: Run, body: Json) -> tuple[list[Json], list[Json]]:
        """The thread takes the messages or the answers; gives the results of the calls that were decided, and the decisions in
        the form that scripts read."""
        asked, thread.interrupts = thread.interrupts, []
        given = body.get("input") or {}
        if given.get("messages"):
            thread.add([_stored(message) for message in given["messages"]], run.id)
        answers = (body.get("command") or {}).get("resume") or {}
        thread.interrupts = [each for each in asked if answers and each["id"] not in answers]
        results: list[Json] = []
        decided: list[Json] = []
        for interrupt in asked:
            value, answer = interrupt["value"], answers.get(interrupt["id"])
            if isinstance(value, Mapping) and "action_requests" in value and answer is not None:
                results += _results(thread, value, answer["decisions"])
                decided += [_decision(place, each) for place, each in enumerate(answer["decisions"])]
        return results, decided

    def _settle(self, thread: Thread, reply: RunReply) -> None:
        """The end of a run."""
        thread.interrupts += reply.interrupts
        status = reply.run.status
        thread.status = {"success": "interrupted" if thread.interrupts else "idle"}.get(status, status)

    async def _get_run(self, request: Request) -> Response:
        run = self._run(request)
        if run is None:
            raise _refused(404, "Not Found")
        return JSONResponse(_described(run))

    async def _list_runs(self, request: Request) -> Response:
        """The newest first."""
        fields, limit = request.query_params.getlist("select"), int(request.query_params.get("limit", 10))
        listed = [_described(run) for run in reversed(self._thread(request).runs.values())]
        return JSONResponse([{name: run[name] for name in fields or run} for run in listed[:limit]])

    async def _join_run(self, request: Request) -> Response:
        run = self._run(request)
        if run is None:
            error = json.dumps({"error": "HTTPException", "message": "404: Run not found"})
            return Response(f"event: error\r\ndata: {error}\r\n\r\n", media_type="text/event-stream")
        after = 0 if request.headers.get("last-event-id") == "-1" else len(run)
        return EventStream(run.listen(after, live=False))

    async def _cancel_run(self, request: Request) -> Response:
        thread, run = self._thread(request), self._run(request)
        if run is None or run.status != "running":
            raise _refused(404, "No matching runs to cancel. Please verify the thread ID and run IDs are correct.")
        run.status = thread.status = "interrupted"
        run.stop()
        await run.ended.wait()
        return JSONResponse({})

    def _run(self, request: Request) -> Run | None:
        _check_id(request.path_params["thread"], "thread")
        thread = self.threads.get(request.path_params["thread"])
        return None if thread is None else thread.runs.get(request.path_params["run"])


class BrokenAnswer(Response):
    """An answer whose connection is closed after its first byte."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {"content-length": "100", "content-type": self.media_type or ""}
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        await send({"type": "http.response.body", "body": b"{", "more_body": True})
        scope["state"][DROP]()


class RunAnswer(Response):
    """The answer to the request that has begun the run. The run continues when the client leaves."""

    def __init__(
        self,
        run: Run,
        reply: RunReply,
        frames: AsyncGenerator[Frame],
        settle: Callable[[], None],
        left: asyncio.Event,
        named: asyncio.Event,
    ) -> None:
        super().__init__()
        self._run = run
        self._reply = reply
        self._frames = frames
        self._settle = settle
        self._left = left
        self._named = named

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = EventStream(self._run.listen(0, live=True))
        place = f"/threads/{self._run.thread}/runs/{self._run.id}"
        answer.headers["Content-Location"] = place
        answer.headers["Location"] = f"{place}/stream"
        async with asyncio.TaskGroup() as group:
            group.create_task(self._run.play(self._settled()))
            group.create_task(self._answer(answer(scope, receive, send)))
            notice = group.create_task(self._notice())
            await self._run.ended.wait()
            notice.cancel()

    async def _settled(self) -> AsyncGenerator[Frame]:
        """The status of a thread is set before the stream ends."""
        async with aclosing(self._frames) as frames:
            async for frame in frames:
                yield frame
        if not self._reply.ended:
            await self._run.work_unheard()
        self._settle()

    async def _answer(self, answering: Coroutine[Any, Any, None]) -> None:
        with closing(answering):
            await self._named.wait()
            await answering

    async def _notice(self) -> None:
        await self._run.left.wait()
        self._left.set()


def _described(run: Run) -> Json:
    described = {"run_id": run.id, "thread_id": run.thread, "assistant_id": ASSISTANT, "status": run.status}
    return described | {"metadata": run.metadata | {"assistant_id": ASSISTANT}}


def _results(thread: Thread, value: Mapping[str, Any], decisions: list[Json]) -> list[Json]:
    calls = [call for message in thread.messages if message["type"] == "ai" for call in message["tool_calls"]]
    results = []
    for request, decision in zip(value["action_requests"], decisions, strict=True):
        call = next(
            each for each in reversed(calls) if (each["name"], each["args"]) == (request["name"], request["args"])
        )
        approved = decision["type"] == "approve"
        reason = f"User rejected the tool call for `{call['name']}` with reason: {decision.get('message')}"
        text = f"{call['name']} is done" if approved else reason
        results.append(tool_message(call["id"], call["name"], text, failed=not approved))
    return results


def _decision(place: int, decision: Json) -> Json:
    approved = decision["type"] == "approve"
    return {"type": "mcp_approval_response", "approval_request_id": str(place), "approve": approved}


def _stored(message: Json) -> Json:
    kind = _ROLES[message["role"]]
    name = message.get("id") or str(uuid4())
    if kind == "ai":
        return ai_message(message["content"], name, message.get("tool_calls", ()))
    if kind == "tool":
        failed = message.get("status") == "error"
        return tool_message(message["tool_call_id"], message.get("name", ""), message["content"], failed=failed) | {
            "id": name
        }
    return {"content": message["content"], "type": "human", "id": name, "additional_kwargs": {}, "name": None}


def _said(message: Json) -> Json:
    """A message in the form that scripts read."""
    content = message["content"]
    return {"role": _SPEAKERS[message["type"]], "content": content, "tool_call_id": message.get("tool_call_id")}


def _check_id(name: str, what: str) -> None:
    if not _is_id(name):
        raise _refused(422, f"Invalid {what} ID: must be a UUID")


def _is_id(name: str) -> bool:
    try:
        UUID(name)
    except ValueError:
        return False
    return True


def _refused(status: int, detail: str) -> Refused:
    return Refused(status, {"detail": detail})


ASSISTANT = "fe096781-5601-53d2-b2f6-0d3403f7e9ca"
_BUSY = "Thread is already running a task. Wait for it to finish or choose a different multitask strategy."
_KNOWN = "- A valid assistant UUID, or\n- One of the registered graphs: "
