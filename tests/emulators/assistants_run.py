"""Steps -> the events of a run, its steps and its messages; no network.

Source: OpenAI API description 2.3.0, schema `AssistantStreamEvent` and the streams of its examples; azure-ai-agents 1.2.0b5 for
approvals.
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from secrets import token_hex
from typing import Any, TypeAlias

from tests.emulators.scripts import (
    Ask,
    Call,
    Cite,
    Delay,
    ErrorEvent,
    Fail,
    ImageOut,
    Incomplete,
    Item,
    Json,
    Pause,
    Refuse,
    Say,
    ServerTool,
    Step,
    pieces,
)

WORKING = frozenset({"queued", "in_progress", "cancelling"})
ACTIVE = WORKING | {"requires_action"}
_EXPIRY_SECONDS = 600

Produced: TypeAlias = bytes | Pause | Delay
Store: TypeAlias = Callable[[bytes, str], str]
"""Keeps a file that a run has made, under a name, and gives its id."""


def new_run(thread: str, request: Mapping[str, Any], assistant: Mapping[str, Any]) -> Json:
    now = int(time.time())
    return {
        "id": f"run_{token_hex(12)}",
        "object": "thread.run",
        "created_at": now,
        "thread_id": thread,
        "assistant_id": assistant["id"],
        "status": "queued",
        "required_action": None,
        "last_error": None,
        "expires_at": now + _EXPIRY_SECONDS,
        "started_at": None,
        "cancelled_at": None,
        "failed_at": None,
        "completed_at": None,
        "incomplete_details": None,
        "model": request.get("model") or assistant["model"],
        "instructions": request.get("instructions") or assistant["instructions"],
        "tools": request["tools"] if request.get("tools") is not None else assistant["tools"],
        "tool_resources": {},
        "metadata": request.get("metadata") or {},
        "usage": None,
        "temperature": 1.0,
        "top_p": 1.0,
        "max_prompt_tokens": None,
        "max_completion_tokens": None,
        "truncation_strategy": {"type": "auto", "last_messages": None},
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "response_format": "auto",
    }


def new_message(thread: str, role: str, content: list[Json], **fields: Any) -> Json:
    """`content` in the form of a message of the thread."""
    now = int(time.time())
    message = {
        "id": f"msg_{token_hex(12)}",
        "object": "thread.message",
        "created_at": now,
        "thread_id": thread,
        "status": "completed",
        "incomplete_details": None,
        "completed_at": now,
        "incomplete_at": None,
        "role": role,
        "content": content,
        "assistant_id": None,
        "run_id": None,
        "attachments": [],
        "metadata": {},
    }
    return message | fields


class ThreadRun:
    """A run with its steps and messages. `said` takes each message when it has ended, `store` the files that the run makes."""

    def __init__(self, body: Json, said: Callable[[Json], None], store: Store) -> None:
        self.body = body
        self.steps: list[Json] = []
        self.messages: list[Json] = []
        self.words = 0
        self._said = said
        self._store = store

    def leg(self, answers: Mapping[str, Any] | None = None) -> "RunLeg":
        """The events from here to the end, or to the next wait. `answers` are the outcomes and decisions, by call."""
        return RunLeg(self, answers)

    def end(self, status: str, **fields: Any) -> bytes:
        self.body |= {"status": status, "required_action": None, **fields}
        if status in ("completed", "failed", "cancelled"):
            self.body[f"{status}_at"] = int(time.time())
        self.body["usage"] = {"prompt_tokens": 20, "completion_tokens": self.words, "total_tokens": 20 + self.words}
        for step in self.steps:
            if step["status"] == "in_progress":
                step["status"] = status if status in ("cancelled", "failed", "expired") else "completed"
        return event(f"thread.run.{status}", self.body)

    def message(self, content: list[Json], **fields: Any) -> Json:
        ids = {"assistant_id": self.body["assistant_id"], "run_id": self.body["id"]}
        made = new_message(self.body["thread_id"], "assistant", content, **ids, **fields)
        self.messages.append(made)
        return made

    def ended(self, message: Json) -> None:
        message |= {"status": "completed", "completed_at": int(time.time())}
        self._said(message)

    def store(self, data: bytes, name: str) -> str:
        return self._store(data, name)

    def step(self, kind: str, details: Json) -> Json:
        made = {
            "id": f"step_{token_hex(12)}",
            "object": "thread.run.step",
            "created_at": int(time.time()),
            "run_id": self.body["id"],
            "assistant_id": self.body["assistant_id"],
            "thread_id": self.body["thread_id"],
            "type": kind,
            "status": "in_progress",
            "cancelled_at": None,
            "completed_at": None,
            "expired_at": None,
            "failed_at": None,
            "last_error": None,
            "metadata": {},
            "step_details": {"type": kind, kind: details},
            "usage": None,
        }
        self.steps.append(made)
        return made


class RunLeg:
    """A Reply: the part of a run that one stream tells."""

    def __init__(self, run: ThreadRun, answers: Mapping[str, Any] | None) -> None:
        self._run = run
        self._answers = answers
        self._message: Json | None = None
        self._waiting: Json | None = None
        self._approval: Json | None = None
        self._broken = False

    @property
    def ended(self) -> bool:
        return self._broken or self._run.body["status"] not in WORKING

    def begin(self) -> Iterator[bytes]:
        run = self._run.body
        if self._answers is None:
            yield event("thread.run.created", run)
        else:
            yield from self._answered(self._answers)
        run |= {"status": "queued", "required_action": None}
        yield event("thread.run.queued", run)
        run |= {"status": "in_progress", "started_at": int(time.time())}
        yield event("thread.run.in_progress", run)

    def take(self, step: Step) -> Iterator[Produced]:
        match step:
            case Say() | Refuse() | Cite() | ImageOut():
                yield from self._end_approved()
                yield from self._speak(step)
                return
            case Fail(code, message):
                yield self._run.end("failed", last_error={"code": code, "message": message})
                return
            case ErrorEvent(code, message):
                self._broken = True
                self._run.end("failed", last_error={"code": code, "message": message})
                yield event("error", {"error": {"code": code, "message": message, "type": "server_error"}})
                return
            case Incomplete(reason):
                yield from self._end_message("incomplete")
                known = {"max_output_tokens": "max_completion_tokens"}
                yield self._run.end("incomplete", incomplete_details={"reason": known.get(reason, reason)})
                return
        yield from self._end_message()
        match step:
            case Call():
                yield from self._call(step)
            case Ask(name, arguments, question):
                call = {"id": question or f"call_{token_hex(12)}", "type": "mcp", "name": name}
                yield from self._wait(call | {"arguments": json.dumps(arguments), "server_label": "wx"})
            case ServerTool(kind="mcp", question=str(question)):
                yield from self._run_approved(step, question)
            case ServerTool(kind="mcp"):
                call = {"type": "mcp", "name": step.name, "arguments": json.dumps(step.arguments), "server_label": "wx"}
                yield from self._run_tool(call | {"output": step.output}, step.during)
            case Item(body):
                yield from self._run_tool(dict(body))
            case _:
                raise ValueError(f"{type(step).__name__} cannot come here")

    def finish(self) -> Iterator[bytes]:
        yield from self._end_message()
        yield from self._end_approved()
        if self._waiting is None:
            yield self._run.end("completed")
            return
        asked: list[Json] = self._waiting["step_details"]["tool_calls"]
        kind = "submit_tool_approval" if asked[0]["type"] == "mcp" else "submit_tool_outputs"
        calls = [{k: v for k, v in call.items() if k != "output"} for call in asked]
        for call in calls:
            if "function" in call:
                call["function"] = {k: v for k, v in call["function"].items() if k != "output"}
        self._run.body |= {"status": "requires_action", "required_action": {"type": kind, kind: {"tool_calls": calls}}}
        yield event("thread.run.requires_action", self._run.body)

    def drained(self) -> tuple[int, Json]:
        return 200, self._run.body

    # Messages

    def _speak(self, step: Say | Refuse | Cite | ImageOut) -> Iterator[bytes]:
        if self._message is None:
            self._message = self._run.message([], status="in_progress", completed_at=None)
            yield from self._add_step("message_creation", {"message_id": self._message["id"]})
            yield event("thread.message.created", self._message)
            yield event("thread.message.in_progress", self._message)
        content: list[Json] = self._message["content"]
        match step:
            case Say(text, chunks) | Refuse(text, chunks):
                kind = "text" if isinstance(step, Say) else "refusal"
                if not content or content[-1]["type"] != kind:
                    content.append({"type": kind, kind: {"value": "", "annotations": []} if kind == "text" else ""})
                for piece in pieces(text, chunks):
                    self._run.words += 1
                    if kind == "text":
                        content[-1]["text"]["value"] += piece
                        yield self._delta({"type": "text", "text": {"value": piece}})
                    else:
                        content[-1]["refusal"] += piece
                        yield self._delta({"type": "refusal", "refusal": piece})
            case Cite(annotation):
                content[-1]["text"]["annotations"].append(dict(annotation))
                marked = {"annotations": [{"index": 0, **annotation}]}
                yield self._delta({"type": "text", "text": marked})
            case ImageOut(data):
                name = self._run.store(data, "/mnt/data/plot.png")
                content.append({"type": "image_file", "image_file": {"file_id": name}})
                yield self._delta({"type": "image_file", "image_file": {"file_id": name}})

    def _delta(self, content: Json) -> bytes:
        message = self._message or {}
        delta = {"content": [{"index": len(message["content"]) - 1, **content}]}
        return event("thread.message.delta", {"id": message["id"], "object": "thread.message.delta", "delta": delta})

    def _end_message(self, status: str = "completed") -> Iterator[bytes]:
        if self._message is None:
            return
        message, self._message = self._message, None
        self._run.ended(message)
        message["status"] = status
        yield event(f"thread.message.{status}", message)
        yield self._end_step(self._run.steps[-1])

    # Tools

    def _call(self, step: Call) -> Iterator[bytes]:
        arguments = step.arguments if isinstance(step.arguments, str) else json.dumps(step.arguments)
        name = step.call_id or f"call_{token_hex(12)}"
        function: Json = {"name": step.name, "arguments": arguments, "output": None}
        begun = {"id": name, "type": "function", "function": function | {"arguments": ""}}
        yield from self._wait({"id": name, "type": "function", "function": function}, begun)
        for piece in pieces(arguments, step.chunks):
            yield self._call_delta({"type": "function", "function": {"arguments": piece}})

    def _wait(self, call: Json, begun: Json | None = None) -> Iterator[bytes]:
        """A call of the step that the run will wait for."""
        if self._waiting is None:
            yield from self._add_step("tool_calls", [])
            self._waiting = self._run.steps[-1]
        self._waiting["step_details"]["tool_calls"].append(call)
        yield self._call_delta(begun or {key: call[key] for key in ("id", "type", "arguments")})

    def _call_delta(self, call: Json) -> bytes:
        step = self._run.steps[-1]
        index = len(step["step_details"]["tool_calls"]) - 1
        details = {"type": "tool_calls", "tool_calls": [{"index": index, **call}]}
        delta = {"id": step["id"], "object": "thread.run.step.delta", "delta": {"step_details": details}}
        return event("thread.run.step.delta", delta)

    def _run_tool(self, call: Json, during: Pause | Delay | None = None) -> Iterator[Produced]:
        whole = {"id": f"call_{token_hex(12)}"} | call
        yield from self._add_step("tool_calls", [])
        self._run.steps[-1]["step_details"]["tool_calls"].append(whole)
        begun = {"id": whole["id"], "type": whole["type"]}
        yield self._call_delta(begun | ({"arguments": whole["arguments"]} if "arguments" in whole else {}))
        if during is not None:
            yield during
        yield self._end_step(self._run.steps[-1])

    def _run_approved(self, step: ServerTool, question: str) -> Iterator[Produced]:
        if self._approval is None:
            raise ValueError("no call was approved")
        if step.during is not None:
            yield step.during
        for call in self._approval["step_details"]["tool_calls"]:
            if call["id"] == question:
                call["output"] = step.output

    def _end_approved(self) -> Iterator[bytes]:
        if self._approval is not None:
            step, self._approval = self._approval, None
            yield self._end_step(step)

    def _answered(self, answers: Mapping[str, Any]) -> Iterator[bytes]:
        step = next(step for step in reversed(self._run.steps) if step["type"] == "tool_calls")
        for call in step["step_details"]["tool_calls"]:
            if call["type"] == "function":
                call["function"]["output"] = answers[call["id"]]
            else:
                call["output"] = None
        if any(answer is True for answer in answers.values()):
            self._approval = step
        else:
            yield self._end_step(step)

    def _add_step(self, kind: str, details: Any) -> Iterator[bytes]:
        step = self._run.step(kind, details)
        yield event("thread.run.step.created", step)
        yield event("thread.run.step.in_progress", step)

    def _end_step(self, step: Json) -> bytes:
        step |= {"status": "completed", "completed_at": int(time.time())}
        return event("thread.run.step.completed", step)


def event(name: str, data: Mapping[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


DONE = b"event: done\ndata: [DONE]\n\n"


def awaited(run: Mapping[str, Any]) -> Iterable[Json]:
    """The calls that a run waits for."""
    action = run["required_action"] or {}
    calls: list[Json] = action.get(action.get("type", ""), {}).get("tool_calls", [])
    return calls
