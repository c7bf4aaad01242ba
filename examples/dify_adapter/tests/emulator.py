"""Dify's chat API on loopback, as its OpenAPI description and its guides (streaming, errors, human input) tell it.

`python tests/emulator.py 9400` serves it for a try by hand."""

import asyncio
import json
import re
import sys
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

USAGE = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18, "total_price": "0.001", "currency": "USD"}
Event = dict[str, Any]


@dataclass
class Task:
    user: str
    stopped: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Dify:
    """`script`: the events of each answer, instead of `pieces`. `last`: what follows the pieces."""

    key: str = "canary-key"
    mode: str = "chat"
    pieces: tuple[str, ...] | None = None
    script: list[Event] | None = None
    last: tuple[Event, ...] = ({"event": "message_end", "metadata": {"usage": USAGE}},)
    status: int = 200
    refusal: tuple[int, str, str] | None = None
    stalls: bool = False
    trickles: bool = False
    form: Event | None = None
    form_status: int = 200
    variables: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.requests: list[Event] = []
        self.conversations: dict[str, str] = {}
        self.tasks: dict[str, Task] = {}
        self.kept: dict[str, list[Event]] = {}
        self.flows: dict[str, Event] = {}
        self.stopped: list[str] = []
        self.submitted: list[Event] = []
        self.uploads: dict[str, tuple[str, bytes]] = {}
        self.runs: dict[str, tuple[str, str]] = {}
        self.released = asyncio.Event()
        self.app = Starlette(
            routes=[
                Route("/v1/chat-messages", self.chat, methods=["POST"]),
                Route("/v1/chat-messages/{task}/stop", self.stop, methods=["POST"]),
                Route("/v1/files/upload", self.upload, methods=["POST"]),
                Route("/v1/conversations/{conversation}", self.delete, methods=["DELETE"]),
                Route("/v1/messages", self.messages),
                Route("/v1/info", self.info),
                Route("/v1/parameters", self.parameters),
                Route("/v1/form/human_input/{token}", self.submit, methods=["POST"]),
                Route("/v1/workflow/{run}/events", self.resume),
                Route("/v1/workflows/run/{run}", self.run),
            ]
        )

    def refused(self, request: Request) -> Response | None:
        if request.headers.get("authorization") != f"Bearer {self.key}":
            return error(401, "unauthorized", "Access token is invalid")
        return None

    async def chat(self, request: Request) -> Response:
        if (no := self.refused(request)) is not None:
            return no
        body = await request.json()
        self.requests.append(body)
        print("chat:", body.get("conversation_id"), repr(body.get("query")), flush=True)
        if self.refusal is not None:
            return error(*self.refusal)
        if self.status != 200:
            code = {429: "too_many_requests", 500: "internal_server_error", 400: "invalid_param"}.get(self.status, "")
            return error(self.status, code, f"no: {self.key}")
        if not body.get("user") or not body.get("query") or "inputs" not in body:
            return error(400, "invalid_param", "user, query and inputs are required")
        if body.get("response_mode") != "streaming":
            return error(400, "bad_request", "blocking is not supported here")
        for file in body.get("files", []):
            if file["transfer_method"] == "local_file" and file["upload_file_id"] not in self.uploads:
                return error(400, "invalid_param", "Invalid upload file")
        conversation = body.get("conversation_id") or ""
        if conversation and self.conversations.get(conversation) != body["user"]:
            return error(404, "not_found", "Conversation Not Exists.")
        conversation = conversation or str(uuid.uuid4())
        self.conversations[conversation] = body["user"]
        task_id = str(uuid.uuid4())
        self.tasks[task_id] = Task(body["user"])
        events = self.events(body, conversation, task_id)
        said = "".join(event["answer"] for event in events if event["event"] in ("message", "agent_message"))
        kept = {"id": events[0]["message_id"] if events else "", "query": body["query"], "answer": said}
        self.kept.setdefault(conversation, []).insert(0, {**kept, "status": "normal", "error": None})
        return self.stream(events, task_id)

    def events(self, body: Event, conversation: str, task_id: str) -> list[Event]:
        names = {"task_id": task_id, "message_id": str(uuid.uuid4()), "conversation_id": conversation, "created_at": 1}
        if self.form is not None:
            return self.paused(names)
        if self.script is not None:
            return [{**names, **event} for event in self.script]
        kind = "agent_message" if self.mode.startswith("agent") else "message"
        pieces = (body["query"],) if self.pieces is None else self.pieces
        made = [{**names, "event": kind, "answer": piece} for piece in pieces]
        made += [{**names, **event} for event in (() if self.stalls else self.last)]
        if self.mode != "advanced-chat":
            return made
        flow: Event = {**names, "workflow_run_id": str(uuid.uuid4())}
        run = {"id": flow["workflow_run_id"], "status": "running" if self.stalls else "succeeded"}
        self.flows[flow["workflow_run_id"]] = {**run, "task": task_id, "outputs": {"answer": "".join(pieces)}}
        ends = not self.stalls and self.last and self.last[0]["event"] == "message_end"
        finished = {**flow, "event": "workflow_finished", "data": {"status": "succeeded"}}
        return [{**flow, "event": "workflow_started", "data": run}, *made, *([finished] if ends else [])]

    def goes_on(self, *pieces: str) -> None:
        """What has stalled is answered to its end, though nobody listens."""
        for flow in self.flows.values():
            if flow["status"] == "running":
                flow["outputs"]["answer"] += "".join(pieces)
                flow["status"] = "succeeded"

    def paused(self, names: Event) -> list[Event]:
        run = str(uuid.uuid4())
        self.runs[run] = (names["conversation_id"], names["message_id"])
        names = {**names, "workflow_run_id": run}
        paused = {"workflow_run_id": run, "paused_nodes": ["n"], "reasons": [], "status": "paused"}
        return [
            {**names, "event": "workflow_started", "data": {"id": run}},
            {**names, "event": "message", "answer": "I have a draft. "},
            {**names, "event": "human_input_required", "data": self.form},
            {**names, "event": "workflow_paused", "data": paused},
        ]

    def stream(self, events: list[Event], task_id: str | None = None) -> Response:
        async def body() -> AsyncIterator[bytes]:
            try:
                yield b"event: ping\n\n"
                for event in events:
                    line = f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
                    for chunk in (line[i : i + 1] for i in range(len(line))) if self.trickles else (line,):
                        yield chunk
                if self.stalls and task_id is not None:
                    await self.tasks[task_id].stopped.wait()
            finally:
                self.released.set()

        return StreamingResponse(body(), media_type="text/event-stream")

    async def stop(self, request: Request) -> Response:
        body, task_id = await request.json(), request.path_params["task"]
        if not body.get("user"):
            return error(400, "invalid_param", "Arg user must be provided.")
        task = self.tasks.get(task_id)
        if task is not None and task.user == body["user"]:
            self.stopped.append(task_id)
            task.stopped.set()
            for flow in self.flows.values():
                if flow["task"] == task_id and flow["status"] == "running":
                    flow["status"] = "stopped"
        return JSONResponse({"result": "success"})

    async def upload(self, request: Request) -> Response:
        if (no := self.refused(request)) is not None:
            return no
        data = await request.body()
        boundary = request.headers["content-type"].partition("boundary=")[2].encode()
        fields: dict[str, tuple[str, bytes]] = {}
        for piece in data.split(b"--" + boundary)[1:-1]:
            head, _, value = piece.partition(b"\r\n\r\n")
            name = re.search(rb'name="([^"]*)"', head)
            file = re.search(rb'filename="([^"]*)"', head)
            assert name is not None
            fields[name[1].decode()] = (file[1].decode() if file else "", value.removesuffix(b"\r\n"))
        if len(fields["file"][1]) > 1000:
            return error(413, "file_too_large", "")
        file_id = str(uuid.uuid4())
        self.uploads[file_id] = fields["file"]
        return JSONResponse({"id": file_id, "name": fields["file"][0]}, 201)

    async def delete(self, request: Request) -> Response:
        body = await request.json()
        if self.conversations.get(request.path_params["conversation"]) != body.get("user"):
            return error(404, "not_found", "Conversation Not Exists.")
        del self.conversations[request.path_params["conversation"]]
        return Response(status_code=204)

    async def messages(self, request: Request) -> Response:
        if request.query_params["conversation_id"] not in self.conversations:
            return error(404, "not_found", "Conversation Not Exists.")
        kept = self.kept.get(request.query_params["conversation_id"], [])[: int(request.query_params["limit"])]
        return JSONResponse({"limit": 20, "has_more": False, "data": kept})

    async def info(self, request: Request) -> Response:
        if (no := self.refused(request)) is not None:
            return no
        return JSONResponse({"name": "Trips", "description": "Plans trips.", "tags": [], "mode": self.mode})

    async def parameters(self, _: Request) -> Response:
        return JSONResponse({"opening_statement": "", "user_input_form": self.variables})

    async def submit(self, request: Request) -> Response:
        body = await request.json()
        if self.form is None or request.path_params["token"] != self.form.get("form_token"):
            return error(404, "not_found", "Form not found")
        if self.form_status == 412:
            return error(412, "human_input_form_expired", "This form has expired")
        if self.form_status != 200 or body["action"] not in [action["id"] for action in self.form["actions"]]:
            return error(400, "invalid_param", "no such action")
        self.submitted.append(body)
        self.form = None
        return JSONResponse({})

    async def resume(self, request: Request) -> Response:
        run = request.path_params["run"]
        if run not in self.runs or self.conversations[self.runs[run][0]] != request.query_params["user"]:
            return error(404, "not_found", "Workflow run not found")
        conversation, message = self.runs[run]
        names = {"task_id": str(uuid.uuid4()), "conversation_id": conversation, "message_id": message}
        flow: Event = {**names, "workflow_run_id": run}
        return self.stream(
            [
                {**flow, "event": "human_input_form_filled", "data": {"action_id": "approve"}},
                {**names, "event": "message", "answer": "It is sent."},
                {**names, **self.last[0]},
                {**flow, "event": "workflow_finished", "data": {"status": "succeeded", "total_tokens": 18}},
            ]
        )

    async def run(self, request: Request) -> Response:
        if (flow := self.flows.get(request.path_params["run"])) is not None:
            return JSONResponse(flow)
        return JSONResponse({"id": request.path_params["run"], "status": "paused" if self.form else "succeeded"})


def error(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"status": status, "code": code, "message": message}, status)


FORM: Event = {
    "form_token": "tok_secret",
    "form_content": "Please review the draft.",
    "inputs": [{"type": "paragraph", "output_variable_name": "comment", "default": None}],
    "actions": [{"id": "approve", "title": "Approve"}, {"id": "reject", "title": "Request changes"}],
    "resolved_default_values": {"comment": ""},
}
THOUGHT = {"event": "agent_thought", "id": "t1", "position": 1}


def by_hand(dify: Dify) -> None:
    """The word `tool`, `form`, `replace`, `file`, `slow` or `fail` in a message chooses what happens."""
    plain = dify.events
    end = dify.last

    def events(body: Event, conversation: str, task_id: str) -> list[Event]:
        query = body["query"]
        waits = dify.form
        dify.script, dify.form, dify.stalls = None, FORM if "form" in query else None, query.endswith("slow")
        if "tool" in query:
            call = {**THOUGHT, "tool": "weather", "tool_input": '{"weather": {"city": "Oslo"}}'}
            dify.script = [
                {"event": "agent_message", "answer": "Let me look. "},
                call,
                {**call, "observation": "rain"},
                {"event": "agent_message", "answer": "It rains."},
                *dify.last,
            ]
            if "again" in query:
                dify.script.insert(-1, {"event": "message", "answer": "Let me look. It rains."})
        if "replace" in query:
            said = {"event": "message", "answer": "something bad"}
            dify.script = [said, {"event": "message_replace", "answer": "I cannot say that."}, *dify.last]
        if "tool" in query and "replace" in query:
            call = {**THOUGHT, "tool": "weather", "tool_input": '{"weather": {}}', "observation": "rain"}
            one, two = ({"event": "agent_message", "answer": text} for text in ("bad one. ", "bad two."))
            dify.script = [one, call, two, {"event": "message_replace", "answer": "Good."}, *dify.last]
            if "early" in query:
                dify.script.remove(two)
        if "file" in query:
            file = {"event": "message_file", "type": "image", "belongs_to": "assistant", "url": "/files/cat.png"}
            dify.script = [{"event": "message", "answer": "Here: "}, file, *dify.last]
        dify.pieces, dify.last = (("cut ", "off"), ()) if query.endswith("cut") else (None, end)
        if "fail" in query:
            dify.script = [{"event": "error", "status": 400, "code": "provider_quota_exceeded", "message": "no money"}]
        made = plain(body, conversation, task_id)
        if query.endswith("cut"):
            for flow in dify.flows.values():
                flow["status"] = "running" if flow["task"] == task_id else flow["status"]
        if dify.stalls or query.endswith("cut"):
            asyncio.get_running_loop().call_later(5, dify.goes_on, " and done")
        dify.form = dify.form or waits
        return made

    dify.events = events  # type: ignore[method-assign]


if __name__ == "__main__":
    import uvicorn

    service = Dify(mode=sys.argv[2] if len(sys.argv) > 2 else "chat")
    by_hand(service)
    uvicorn.run(service.app, host="127.0.0.1", port=int(sys.argv[1]))
