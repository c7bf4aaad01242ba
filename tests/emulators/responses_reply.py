"""Steps -> the events of the Responses wire, and the response object of these events; no network.

Source: OpenAI API description 2.3.0, schema `ResponseStreamEvent`. Numbers and indexes follow the dialect.
"""

import base64
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from secrets import token_hex
from typing import Any, TypeAlias, assert_never

from tests.emulators.responses_dialects import ResponsesDialect
from tests.emulators.scripts import (
    Ask,
    Call,
    Cite,
    Cut,
    Delay,
    ErrorEvent,
    Fail,
    Html,
    ImageOut,
    Incomplete,
    Item,
    Json,
    NoTerminal,
    Pause,
    Raw,
    Refuse,
    Restarted,
    Say,
    ServerTool,
    Status,
    Step,
    Stop,
    Think,
    pieces,
)

Produced: TypeAlias = bytes | Pause | Delay


def new_response(request: Mapping[str, Any], dialect: ResponsesDialect, previous: str | None) -> Json:
    """The response object at its start, echoing the request."""
    return {
        "id": f"{dialect.id_prefix}{token_hex(dialect.id_length // 2)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": bool(request.get("background")),
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": request.get("instructions"),
        "max_output_tokens": request.get("max_output_tokens"),
        "max_tool_calls": request.get("max_tool_calls"),
        "model": request["model"],
        "output": [],
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "previous_response_id": previous,
        "prompt_cache_key": request.get("prompt_cache_key"),
        "reasoning": {"effort": None, "summary": None} | (request.get("reasoning") or {}),
        "safety_identifier": request.get("safety_identifier"),
        "service_tier": "default",
        "store": request.get("store") is not False,
        "temperature": request.get("temperature", 1.0),
        "text": {"format": {"type": "text"}, "verbosity": "medium"} | (request.get("text") or {}),
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools") or [],
        "top_logprobs": 0,
        "top_p": request.get("top_p", 1.0),
        "truncation": request.get("truncation", "disabled"),
        "usage": None,
        "user": None,
        "metadata": request.get("metadata") or {},
    }


class ResponsesReply:
    """One response in the making; `body` is the response object as it stands.

    `truncated` collects the beginnings of encrypted reasoning in `output_item.added`: useless copies.
    `ending` is called at the end of the response, before the client gets its last event.
    """

    def __init__(
        self,
        body: Json,
        request: Json,
        dialect: ResponsesDialect,
        history: Iterable[Json],
        truncated: set[str],
        ending: Callable[[], None] = lambda: None,
    ) -> None:
        self.body = body
        self._ending = ending
        self._truncated = truncated
        self._dialect = dialect
        self._number = 0
        self._message: Json | None = None
        self._failed: Json | None = None
        self._encrypts = "reasoning.encrypted_content" in (request.get("include") or ())
        self._obfuscates = (request.get("stream_options") or {}).get("include_obfuscation") is not False
        known = tuple(history)
        self._listed = {item["server_label"] for item in known if item.get("type") == "mcp_list_tools"}
        self._input_tokens = sum(len(json.dumps(item).split()) for item in known)

    @property
    def ended(self) -> bool:
        return self._failed is not None or self.body["status"] != "in_progress"

    def begin(self) -> Iterator[bytes]:
        yield self._event("response.created", response=self.body)
        yield self._event("response.in_progress", response=self.body)

    def take(self, step: Step) -> Iterator[Produced]:
        match step:
            case Say() | Refuse() | Cite():
                yield from self._speak(step)
                return
            case Fail(code, message):
                self.body |= {"status": "failed", "error": {"code": code, "message": message}}
                self._ending()
                yield self._event("response.failed", response=self.body)
                return
            case ErrorEvent(code, message, param):
                self._failed = {"code": code, "message": message, "param": param}
                self._ending()
                yield self._event("error", **self._failed)
                return
            case Incomplete(reason):
                yield from self._end_message("incomplete")
                self.body |= {"status": "incomplete", "incomplete_details": {"reason": reason}, "usage": self._usage()}
                self._ending()
                yield self._event("response.incomplete", response=self.body)
                return
        yield from self._end_message("completed")
        yield from self._add(step)

    def finish(self) -> Iterator[bytes]:
        yield from self._end_message("completed")
        self.body |= {"status": "completed", "completed_at": int(time.time()), "usage": self._usage()}
        self._ending()
        yield self._event("response.completed", response=self.body)
        if self._dialect.done_line:
            yield b"data: [DONE]\n\n"

    def drained(self) -> tuple[int, Json]:
        if self._failed is not None:
            return 500, {"error": {"message": "", "type": "server_error", "param": None, "code": None} | self._failed}
        return 200, self.body

    # Messages: text, refusals and annotations

    def _speak(self, step: Say | Refuse | Cite) -> Iterator[bytes]:
        if isinstance(step, Cite):
            yield from self._part({"type": "output_text", "annotations": [], "logprobs": [], "text": ""})
            annotations = self._open["content"][-1]["annotations"]
            annotations.append(dict(step.annotation))
            yield self._content_event(
                "response.output_text.annotation.added",
                annotation_index=len(annotations) - 1,
                annotation=annotations[-1],
            )
            return
        if isinstance(step, Say):
            yield from self._part({"type": "output_text", "annotations": [], "logprobs": [], "text": ""})
            key, event = "text", "response.output_text.delta"
            more: Json = {"logprobs": []}
        else:
            yield from self._part({"type": "refusal", "refusal": ""})
            key, event, more = "refusal", "response.refusal.delta", {}
        for delta in pieces(step.text, step.chunks):
            self._open["content"][-1][key] += delta
            yield self._content_event(event, delta=delta, **more, **self._padding())

    @property
    def _open(self) -> Json:
        if self._message is None:
            raise RuntimeError("no message is open")
        return self._message

    def _part(self, part: Json) -> Iterator[bytes]:
        """Opens a part of this kind, unless the open part is one."""
        if self._message is None:
            self._message = {"id": f"msg_{token_hex(24)}", "type": "message", "status": "in_progress"}
            self._message |= {"role": "assistant", "content": []}
            yield self._item_event("response.output_item.added", self._message)
        content = self._open["content"]
        if content and content[-1]["type"] == part["type"]:
            return
        if content:
            yield from self._end_part()
        content.append(part)
        yield self._content_event("response.content_part.added", part=part)

    def _end_part(self) -> Iterator[bytes]:
        part = self._open["content"][-1]
        if part["type"] == "refusal":
            yield self._content_event("response.refusal.done", refusal=part["refusal"])
        elif self._dialect.text_done:
            yield self._content_event("response.output_text.done", text=part["text"], logprobs=[])
        yield self._content_event("response.content_part.done", part=part)

    def _end_message(self, status: str) -> Iterator[bytes]:
        if self._message is None:
            return
        yield from self._end_part()
        message, self._message = self._message, None
        yield self._done(message | {"status": status})

    def _content_event(self, kind: str, **fields: Any) -> bytes:
        index = len(self._open["content"]) - 1
        return self._event(kind, item_id=self._open["id"], output_index=self._index, content_index=index, **fields)

    # Other items

    def _add(self, step: Step) -> Iterator[Produced]:
        match step:
            case Think():
                yield from self._reason(step)
            case Call():
                yield from self._call(step)
            case ServerTool(kind="mcp"):
                yield from self._mcp_call(step)
            case ServerTool():
                yield from self._web_search(step)
            case Ask():
                yield from self._ask(step)
            case ImageOut(data):
                yield from self._image(data)
            case Item(body):
                item = {"id": f"item_{token_hex(24)}"} | dict(body)
                yield self._item_event("response.output_item.added", item)
                yield self._done(item)
            case Restarted():
                self.body["output"].clear()
                yield self._event("response.in_progress", response=self.body)
            case (
                Say() | Refuse() | Cite() | Fail() | ErrorEvent() | Incomplete() | Stop()
                | Status() | Html() | Raw() | Cut() | NoTerminal() | Pause() | Delay()
            ):  # fmt: skip
                raise ValueError(f"{type(step).__name__} cannot come here")
            case _:
                assert_never(step)

    def _reason(self, step: Think) -> Iterator[bytes]:
        item: Json = {"id": f"rs_{token_hex(24)}", "type": "reasoning", "summary": []}
        announced, complete = item, item | {"summary": [{"type": "summary_text", "text": step.summary}]}
        if self._encrypts:
            encrypted = step.encrypted or f"gAAAA{token_hex(48)}"
            beginning = encrypted[: len(encrypted) // 2]
            self._truncated.add(beginning)
            announced = announced | {"encrypted_content": beginning}
            complete |= {"encrypted_content": encrypted}
        yield self._item_event("response.output_item.added", announced)
        at = {"item_id": item["id"], "output_index": self._index, "summary_index": 0}
        part = {"type": "summary_text", "text": ""}
        yield self._event("response.reasoning_summary_part.added", **at, part=part)
        for delta in pieces(step.summary, step.chunks):
            yield self._event("response.reasoning_summary_text.delta", **at, delta=delta, **self._padding())
        yield self._event("response.reasoning_summary_text.done", **at, text=step.summary)
        yield self._event("response.reasoning_summary_part.done", **at, part=part | {"text": step.summary})
        yield self._done(complete)

    def _call(self, step: Call) -> Iterator[bytes]:
        item = {
            "id": f"fc_{token_hex(24)}",
            "type": "function_call",
            "status": "in_progress",
            "arguments": "",
            "call_id": step.call_id or f"call_{token_hex(12)}",
            "name": step.name,
        }
        arguments = step.arguments if isinstance(step.arguments, str) else json.dumps(dict(step.arguments))
        yield self._item_event("response.output_item.added", item)
        at = {"item_id": item["id"], "output_index": self._index}
        for delta in pieces(arguments, step.chunks):
            yield self._event("response.function_call_arguments.delta", **at, delta=delta, **self._padding())
        yield self._event("response.function_call_arguments.done", **at, name=step.name, arguments=arguments)
        yield self._done(item | {"status": "completed", "arguments": arguments})

    def _mcp_call(self, step: ServerTool) -> Iterator[Produced]:
        arguments = json.dumps(dict(step.arguments))
        yield from self._list_tools(step)
        item: Json = {
            "id": f"mcp_{token_hex(24)}",
            "type": "mcp_call",
            "status": "in_progress",
            "approval_request_id": step.question,
            "arguments": "",
            "error": None,
            "name": step.name,
            "output": None,
            "server_label": _MCP_LABEL,
        }
        at = {"item_id": item["id"], "output_index": self._index}
        if self._dialect.mcp_as_function:
            yield self._event("response.function_call_arguments.delta", **at, delta=arguments)
            yield self._event("response.mcp_call.arguments.done", **at, arguments=arguments)
        yield self._item_event("response.output_item.added", item)
        yield self._event("response.mcp_call.in_progress", **at)
        if not self._dialect.mcp_as_function:
            yield self._event("response.mcp_call_arguments.delta", **at, delta=arguments, **self._padding())
            yield self._event("response.mcp_call_arguments.done", **at, arguments=arguments)
        if step.during:
            yield step.during
        if step.error is None:
            yield self._event("response.mcp_call.completed", **at)
            yield self._done(item | {"status": "completed", "arguments": arguments, "output": step.output})
        else:
            error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": step.error}]}
            yield self._event("response.mcp_call.failed", **at)
            yield self._done(item | {"status": "failed", "arguments": arguments, "error": error})

    def _ask(self, step: Ask) -> Iterator[bytes]:
        yield from self._list_tools(step)
        item = {
            "id": step.question or f"mcpr_{token_hex(24)}",
            "type": "mcp_approval_request",
            "arguments": json.dumps(dict(step.arguments)),
            "name": step.name,
            "server_label": _MCP_LABEL,
        }
        yield self._item_event("response.output_item.added", item)
        yield self._done(item)

    def _list_tools(self, step: ServerTool | Ask) -> Iterator[bytes]:
        if _MCP_LABEL in self._listed:
            return
        self._listed.add(_MCP_LABEL)
        item: Json = {"id": f"mcpl_{token_hex(24)}", "type": "mcp_list_tools", "server_label": _MCP_LABEL, "tools": []}
        at = {"item_id": item["id"], "output_index": self._index}
        schema = {"type": "object", "properties": {name: {} for name in step.arguments}}
        tool = {"name": step.name, "description": None, "input_schema": schema, "annotations": None}
        yield self._item_event("response.output_item.added", item)
        yield self._event("response.mcp_list_tools.in_progress", **at)
        yield self._event("response.mcp_list_tools.completed", **at)
        yield self._done(item | {"tools": [tool]})

    def _web_search(self, step: ServerTool) -> Iterator[Produced]:
        action = {"type": "search", "query": step.arguments.get("query", "")}
        item: Json = {"id": f"ws_{token_hex(24)}", "type": "web_search_call", "status": "in_progress", "action": action}
        at = {"item_id": item["id"], "output_index": self._index}
        yield self._item_event("response.output_item.added", item)
        yield self._event("response.web_search_call.in_progress", **at)
        yield self._event("response.web_search_call.searching", **at)
        if step.during:
            yield step.during
        yield self._event("response.web_search_call.completed", **at)
        yield self._done(item | {"status": "completed" if step.error is None else "failed"})

    def _image(self, data: bytes) -> Iterator[bytes]:
        item: Json = {"id": f"ig_{token_hex(24)}", "type": "image_generation_call", "status": "in_progress"}
        at = {"item_id": item["id"], "output_index": self._index}
        yield self._item_event("response.output_item.added", item | {"result": None})
        yield self._event("response.image_generation_call.in_progress", **at)
        yield self._event("response.image_generation_call.generating", **at)
        yield self._event("response.image_generation_call.completed", **at)
        yield self._done(item | {"status": "completed", "result": base64.b64encode(data).decode()})

    # Frames

    @property
    def _index(self) -> int:
        return 0 if self._dialect.one_output_index else len(self.body["output"])

    def _item_event(self, kind: str, item: Mapping[str, Any]) -> bytes:
        return self._event(kind, output_index=self._index, item=item)

    def _done(self, item: Json) -> bytes:
        frame = self._item_event("response.output_item.done", item)
        self.body["output"].append(item)
        return frame

    def _event(self, kind: str, **fields: Any) -> bytes:
        event: Json = {"type": kind}
        if self._dialect.number_step:
            event |= {"sequence_number": self._number}
            self._number += self._dialect.number_step
        data = f"data: {json.dumps(event | fields, ensure_ascii=False, separators=(',', ':'))}\n\n"
        return (f"event: {kind}\n{data}" if self._dialect.event_lines else data).encode()

    def _padding(self) -> Json:
        """OpenAI hides the length of deltas unless the request forbids that."""
        return {"obfuscation": token_hex(4)} if self._obfuscates else {}

    def _usage(self) -> Json:
        output_tokens = sum(len(json.dumps(item).split()) for item in self.body["output"])
        return {
            "input_tokens": self._input_tokens,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": self._input_tokens + output_tokens,
        }


_MCP_LABEL = "emulator"
