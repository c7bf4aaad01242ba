"""An emulator of the Assistants API of Azure OpenAI and Azure AI Agents: threads, runs that go on when nobody listens, files,
exact errors.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.testing.serving import DROP
from tests.emulators.assistants_run import ACTIVE, DONE, WORKING, RunLeg, ThreadRun, awaited, new_message, new_run
from tests.emulators.responses_conversations import page
from tests.emulators.scripts import Conversation, Json, Say, Script, Step, greeting
from tests.emulators.server import (
    Dropped,
    Emulator,
    EventStream,
    Frame,
    Validator,
    disconnected,
    play,
    refused,
)

ASSISTANT = "asst_1"


@dataclass
class Thread:
    """`items` are what the model sees, in the form of `Conversation`."""

    id: str = field(default_factory=lambda: f"thread_{token_hex(12)}")
    messages: list[Json] = field(default_factory=list)
    runs: list[ThreadRun] = field(default_factory=list)
    items: list[Json] = field(default_factory=list)
    metadata: Json = field(default_factory=dict)

    @property
    def body(self) -> Json:
        made = {"id": self.id, "object": "thread", "created_at": 1, "metadata": self.metadata}
        return made | {"tool_resources": {}}

    @property
    def active(self) -> ThreadRun | None:
        return next((run for run in self.runs if run.body["status"] in ACTIVE), None)


class AssistantsServer(Emulator):
    """`threads` and `files` are by id; `asked` are the requests that begin a run or go on with one, with `tools` of the run."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        api_key: str | None = None,
        validator: Validator | None = None,
        version: str | None = None,
        cancels: Literal["at once", "later"] = "at once",
        tools: tuple[Json, ...] = (),
    ) -> None:
        """`version`: every request needs it as `api-version`. `tools` are those of the assistant."""
        super().__init__(script or greeting, api_key=api_key, validator=validator)
        self.threads: dict[str, Thread] = {}
        self.files: dict[str, tuple[str, bytes]] = {}
        self.asked: list[Json] = []
        self.left = asyncio.Event()
        """A client has left a stream before its end."""
        self.assistant: Json = {
            "id": ASSISTANT,
            "object": "assistant",
            "created_at": 1,
            "name": "Ada",
            "description": "Answers.",
            "model": "m",
            "instructions": "Be brief.",
            "tools": list(tools),
            "metadata": {},
        }
        self._version = version
        self.cancels = cancels
        self.lost_replies = 0
        """So many of the next runs begin, or go on, without an answer: the connection ends instead."""
        self.silent_replies = 0
        """So many of the next runs begin, or go on, without a byte of an answer for as long as the client listens."""
        self.failing_look_ups: dict[str, int | None] = {}
        """The next look-ups of a `run`, its `steps` or its `messages` get this status, or None: the connection ends."""
        self.working: dict[str, asyncio.Task[None]] = {}
        """What lets a run work, by the id of the run."""

    def routes(self) -> Iterable[Route]:
        thread, run = "/v1/threads/{thread}", "/v1/threads/{thread}/runs/{run}"
        return (
            self.route("GET", "/v1/assistants/{assistant}", self._get_assistant),
            self.route("POST", "/v1/threads", self._make_thread),
            self.route("GET", thread, self._get_thread),
            self.route("DELETE", thread, self._delete_thread),
            self.route("POST", f"{thread}/messages", self._add_message),
            self.route("GET", f"{thread}/messages", self._list_messages),
            self.route("POST", f"{thread}/runs", self._make_run),
            self.route("GET", f"{thread}/runs", self._list_runs),
            self.route("GET", run, self._get_run),
            self.route("POST", f"{run}/cancel", self._cancel),
            self.route("POST", f"{run}/submit_tool_outputs", self._submit),
            self.route("GET", f"{run}/steps", self._list_steps),
            self.route("POST", "/v1/files", self._upload),
            self.route("GET", "/v1/files/{file}", self._get_file),
            self.route("GET", "/v1/files/{file}/content", self._get_content),
            self.route("DELETE", "/v1/files/{file}", self._delete_file),
        )

    def key_of(self, request: Request) -> str:
        if self._version is not None and request.query_params.get("api-version") != self._version:
            raise refused(400, "The api-version query parameter (?api-version=) is required for all requests.")
        return request.headers.get("api-key") or super().key_of(request)

    # --- what tests do to the service

    def forget_everything(self) -> None:
        self.threads.clear()
        self.files.clear()

    @property
    def runs(self) -> list[ThreadRun]:
        return [run for thread in self.threads.values() for run in thread.runs]

    def expire(self) -> None:
        """The runs that wait have waited for too long."""
        for run in self.runs:
            if run.body["status"] == "requires_action":
                run.end("expired")

    def end_cancelled(self) -> None:
        """The runs that were cancelled end now."""
        for run in self.runs:
            if run.body["status"] == "cancelling":
                run.end("cancelled")

    # --- threads and messages

    async def _get_assistant(self, request: Request) -> Response:
        return JSONResponse(self._find_assistant(request.path_params["assistant"]))

    async def _make_thread(self, request: Request) -> Response:
        body = await self.read(request, "CreateThreadRequest")
        made = Thread(metadata=body.get("metadata") or {})
        self.threads[made.id] = made
        for message in body.get("messages") or ():
            self._add(made, message)
        return JSONResponse(made.body)

    async def _get_thread(self, request: Request) -> Response:
        return JSONResponse(self._find_thread(request).body)

    async def _delete_thread(self, request: Request) -> Response:
        name = self._find_thread(request).id
        del self.threads[name]
        return JSONResponse({"id": name, "object": "thread.deleted", "deleted": True})

    async def _add_message(self, request: Request) -> Response:
        thread = self._find_thread(request)
        body = await self.read(request, "CreateMessageRequest")
        if active := thread.active:
            raise refused(400, f"Can't add messages to {thread.id} while a run {active.body['id']} is active.")
        return JSONResponse(self._add(thread, body))

    async def _list_messages(self, request: Request) -> Response:
        if failure := self._failure_of("messages"):
            return failure
        run = request.query_params.get("run_id")
        messages = self._find_thread(request).messages
        return JSONResponse(page(request, [m for m in messages if run is None or m["run_id"] == run]))

    def _add(self, thread: Thread, given: Json) -> Json:
        content = given["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        thread.items.append({"role": given["role"], "content": parts})
        kept = [
            {"type": "text", "text": {"value": part["text"], "annotations": []}} if part["type"] == "text" else part
            for part in parts
        ]
        more = {"attachments": given.get("attachments") or [], "metadata": given.get("metadata") or {}}
        message = new_message(thread.id, given["role"], kept, **more)
        thread.messages.append(message)
        return message

    # --- runs

    async def _make_run(self, request: Request) -> Response:
        thread = self._find_thread(request)
        body = await self.read(request, "CreateRunRequest")
        assistant = self._find_assistant(body["assistant_id"])
        if active := thread.active:
            raise refused(400, f"Thread {thread.id} already has an active run {active.body['id']}.")
        given = body.get("additional_messages") or []
        new = [{"role": m["role"], "content": _parts(m["content"])} for m in given]
        self.asked.append(body | {"tools": body.get("tools")})
        steps = await self.open(Conversation((*thread.items, *new), body))
        if isinstance(steps, Response):
            return steps
        for message in given:
            self._add(thread, message)

        def said(message: Json) -> None:
            thread.messages.append(message)
            text = [part["text"]["value"] for part in message["content"] if part["type"] == "text"]
            thread.items.append({"role": "assistant", "content": [{"type": "text", "text": "".join(text)}]})

        run = ThreadRun(new_run(thread.id, body, assistant), said, self._store)
        thread.runs.append(run)
        return _RunAnswer(self, run.leg(), steps, stream=body.get("stream") is True)

    async def _submit(self, request: Request) -> Response:
        thread, run = self._find_run(request)
        body = await self.read(request, "SubmitToolOutputsRunRequest")
        status = run.body["status"]
        if status != "requires_action":
            raise refused(400, f'Runs in status "{status}" do not accept tool outputs.')
        answers = {one["tool_call_id"]: one["output"] for one in body["tool_outputs"]}
        answers |= {one["tool_call_id"]: one["approve"] for one in body.get("tool_approvals") or ()}
        wanted = [call["id"] for call in awaited(run.body)]
        if sorted(wanted) != sorted(answers):
            raise refused(400, f"Expected tool outputs for call_ids {wanted}, got {list(answers)}")
        self.asked.append(body | {"tools": run.body["tools"]})
        thread.items += [{"type": "function_call", "call_id": name} for name in wanted]
        thread.items += [_answer_item(name, answers[name]) for name in wanted]
        steps = await self.open(Conversation(tuple(thread.items), body))
        if isinstance(steps, Response):
            return steps
        return _RunAnswer(self, run.leg(answers), steps, stream=body.get("stream") is True)

    async def _list_runs(self, request: Request) -> Response:
        return JSONResponse(page(request, [run.body for run in self._find_thread(request).runs]))

    async def _get_run(self, request: Request) -> Response:
        if failure := self._failure_of("run"):
            return failure
        return JSONResponse(self._find_run(request)[1].body)

    async def _list_steps(self, request: Request) -> Response:
        if failure := self._failure_of("steps"):
            return failure
        return JSONResponse(page(request, self._find_run(request)[1].steps))

    def _failure_of(self, look_up: str) -> Response | None:
        if look_up not in self.failing_look_ups:
            return None
        status = self.failing_look_ups.pop(look_up)
        return Dropped() if status is None else JSONResponse({"error": {"message": "Try again."}}, status)

    async def _cancel(self, request: Request) -> Response:
        run = self._find_run(request)[1]
        status = run.body["status"]
        if status not in ACTIVE:
            raise refused(400, f"Cannot cancel run with status '{status}'.")
        leg = self.working.get(run.body["id"])
        if leg is not None:
            leg.cancel()
        run.body["status"] = "cancelling"
        answer = JSONResponse(run.body)
        if self.cancels == "at once":
            run.end("cancelled")
        return answer

    # --- files

    async def _upload(self, request: Request) -> Response:
        async with request.form() as form:
            file: Any = form["file"]
            if form["purpose"] not in ("assistants", "vision"):
                raise refused(400, f"'{form['purpose']}' is not one of ['assistants', 'vision'] - 'purpose'")
            return JSONResponse(self._file(self._store(await file.read(), file.filename)))

    async def _get_file(self, request: Request) -> Response:
        return JSONResponse(self._file(self._find_file(request)))

    async def _get_content(self, request: Request) -> Response:
        return Response(self.files[self._find_file(request)][1], media_type="application/octet-stream")

    async def _delete_file(self, request: Request) -> Response:
        name = self._find_file(request)
        del self.files[name]
        return JSONResponse({"id": name, "object": "file", "deleted": True})

    def _store(self, data: bytes, name: str) -> str:
        made = f"assistant-{token_hex(12)}"
        self.files[made] = (name, data)
        return made

    def _file(self, name: str) -> Json:
        filename, data = self.files[name]
        known = {"id": name, "object": "file", "bytes": len(data), "created_at": 1, "filename": filename}
        return known | {"purpose": "assistants"}

    # --- what is there

    def _find_assistant(self, name: str) -> Json:
        if name != ASSISTANT:
            raise refused(404, f"No assistant found with id '{name}'.")
        return self.assistant

    def _find_thread(self, request: Request) -> Thread:
        name = request.path_params["thread"]
        if name not in self.threads:
            raise refused(404, f"No thread found with id '{name}'.")
        return self.threads[name]

    def _find_run(self, request: Request) -> tuple[Thread, ThreadRun]:
        thread, name = self._find_thread(request), request.path_params["run"]
        for run in thread.runs:
            if run.body["id"] == name:
                return thread, run
        raise refused(404, f"No run found with id '{name}'.")

    def _find_file(self, request: Request) -> str:
        name: str = request.path_params["file"]
        if name not in self.files:
            raise refused(404, f"No such File object: {name}")
        return name


class _RunAnswer(Response):
    """The answer to a request that lets a run work. The run goes on when the client leaves."""

    def __init__(self, server: AssistantsServer, leg: RunLeg, steps: AsyncGenerator[Step], *, stream: bool) -> None:
        self._server = server
        self._leg = leg
        self._run = leg.drained()[1]
        self._steps = steps
        self._stream = stream
        super().__init__(json.dumps(self._run).encode(), media_type="application/json")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        heard: asyncio.Queue[Frame | None] = asyncio.Queue()
        async with asyncio.TaskGroup() as group:
            self._server.working[self._run["id"]] = group.create_task(self._work(heard))
            if self._server.lost_replies:
                self._server.lost_replies -= 1
                scope["state"][DROP]()
                return
            if self._server.silent_replies:
                self._server.silent_replies -= 1
                await disconnected(receive)
                self._server.left.set()
                return
            if not self._stream:
                await super().__call__(scope, receive, send)
                return
            answer = EventStream(self._listen(heard))
            answer.raw_headers.extend(header for header in self.raw_headers if header[0] == b"x-request-id")
            await answer(scope, receive, send)

    async def _work(self, heard: asyncio.Queue[Frame | None]) -> None:
        async with aclosing(play(self._leg, self._steps, goes_on=True)) as frames:
            async for frame in frames:
                heard.put_nowait(frame)
        if self._run["status"] not in WORKING:
            heard.put_nowait(DONE)
        heard.put_nowait(None)

    async def _listen(self, heard: asyncio.Queue[Frame | None]) -> AsyncGenerator[Frame]:
        over = False
        try:
            while (frame := await heard.get()) is not None:
                yield frame
            over = True
        finally:
            if not over:
                self._server.left.set()


def _parts(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _answer_item(name: str, answer: Any) -> Json:
    if isinstance(answer, bool):
        return {"type": "mcp_approval_response", "approval_request_id": name, "approve": answer}
    return {"type": "function_call_output", "call_id": name, "output": answer}


def app() -> Starlette:
    """A service that says what it was told, for a try by hand."""
    return AssistantsServer(lambda conversation: [Say(f"You said: {conversation.text}", chunks=3)]).app
