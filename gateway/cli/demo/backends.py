"""The services behind the demo: a Responses API and a Chat Completions API that quote the conversation.

Law: an answer depends on the conversation alone, and what is kept lives as long as the process.
"""

import asyncio
import itertools
import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from gateway.testing.serving import serve

Json = dict[str, Any]
Events = AsyncGenerator[Json]

_PACE = 0.05
"""Seconds between two words, so that a person sees them arrive."""
_REPORT = "Oslo: 3 degrees, light rain"


@asynccontextmanager
async def backends() -> AsyncIterator[str]:
    """Serves both APIs on a free loopback port while the block runs; gives their base URL, version included."""
    responses = _Responses()
    app = Starlette(
        routes=[
            Route("/v1/responses", responses.create, methods=["POST"]),
            Route("/v1/responses/{id}", responses.delete, methods=["DELETE"]),
            Route("/v1/chat/completions", _complete, methods=["POST"]),
        ]
    )
    async with serve(app) as url:
        yield f"{url}/v1"


def _user_texts(items: Iterable[Json]) -> list[str]:
    return [_text(item["content"]) for item in items if item.get("role") == "user"]


def _text(content: str | list[Json]) -> str:
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _asks_for_weather(texts: list[str]) -> bool:
    return "weather" in texts[-1].lower()


def _words(texts: list[str]) -> list[str]:
    """The words of the answer to the last message of the user."""
    sentences = [f"The weather station says: {_REPORT}."] if _asks_for_weather(texts) else []
    if len(texts) == 1:
        sentences.append(f'You said: "{texts[0]}".')
    else:
        sentences.append(f'This is message {len(texts)} of our conversation. You first said: "{texts[0]}".')
    return re.findall(r"\S+\s*", " ".join(sentences))


class _Responses:
    """Keeps the user's messages of each conversation by the id of its last response."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._texts: dict[str, list[str]] = {}

    async def create(self, request: Request) -> Response:
        body = await request.json()
        previous = body.get("previous_response_id")
        if previous is not None and previous not in self._texts:
            message = f"Previous response with id '{previous}' not found."
            return _refusal(400, message, "previous_response_id", "previous_response_not_found")
        given = body["input"]
        texts = [*self._texts.get(previous, ()), *([given] if isinstance(given, str) else _user_texts(given))]
        response = self._new(body)
        if response["store"]:
            self._texts[response["id"]] = texts
        events = _response_events(response, texts)
        if body.get("stream"):
            return EventSourceResponse(_numbered(events))
        async for _ in events:
            pass
        return JSONResponse(response)

    async def delete(self, request: Request) -> Response:
        name = request.path_params["id"]
        if self._texts.pop(name, None) is None:
            return _refusal(404, f"Response with id '{name}' not found.", None, None)
        return JSONResponse({"id": name, "object": "response", "deleted": True})

    def _new(self, body: Json) -> Json:
        return {
            "id": f"resp_{next(self._numbers):08}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": body.get("instructions"),
            "metadata": body.get("metadata") or {},
            "model": body["model"],
            "output": [],
            "parallel_tool_calls": True,
            "previous_response_id": body.get("previous_response_id"),
            "store": body.get("store") is not False,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": body.get("tools") or [],
            "top_p": 1.0,
        }


def _refusal(status: int, message: str, param: str | None, code: str | None) -> Response:
    error = {"message": message, "type": "invalid_request_error", "param": param, "code": code}
    return JSONResponse({"error": error}, status)


async def _numbered(events: Events) -> AsyncIterator[Json]:
    """The events as server-sent events."""
    numbers = itertools.count()
    async for event in events:
        data = json.dumps({**event, "sequence_number": next(numbers)})
        yield {"event": event["type"], "data": data}


async def _response_events(response: Json, texts: list[str]) -> Events:
    """The events of one response, which they complete."""
    yield {"type": "response.created", "response": response}
    yield {"type": "response.in_progress", "response": response}
    for index, output in enumerate(
        (_weather_events, _message_events) if _asks_for_weather(texts) else (_message_events,)
    ):
        async for event in output(f"{response['id']}_{index}", index, texts):
            yield event
            if event["type"] == "response.output_item.done":
                response["output"].append(event["item"])
    response |= {"status": "completed", "completed_at": int(time.time())}
    yield {"type": "response.completed", "response": response}


async def _weather_events(response: str, index: int, _: list[str]) -> Events:
    """A call of an MCP tool that the service runs itself."""
    item: Json = {"id": f"mcp_{response}", "type": "mcp_call", "server_label": "demo", "name": "get_weather"}
    item |= {"approval_request_id": None, "error": None}
    arguments = json.dumps({"city": "Oslo"})
    at = {"item_id": item["id"], "output_index": index}
    begun = {**item, "status": "in_progress", "arguments": "", "output": None}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    yield {"type": "response.mcp_call.in_progress", **at}
    yield {"type": "response.mcp_call_arguments.delta", **at, "delta": arguments}
    yield {"type": "response.mcp_call_arguments.done", **at, "arguments": arguments}
    await asyncio.sleep(_PACE * 8)
    yield {"type": "response.mcp_call.completed", **at}
    done = {**item, "status": "completed", "arguments": arguments, "output": _REPORT}
    yield {"type": "response.output_item.done", "output_index": index, "item": done}


async def _message_events(response: str, index: int, texts: list[str]) -> Events:
    item: Json = {"id": f"msg_{response}", "type": "message", "role": "assistant"}
    words = _words(texts)
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": ""}
    whole = {**part, "text": "".join(words)}
    at = {"item_id": item["id"], "output_index": index, "content_index": 0}
    begun = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": index, "item": begun}
    yield {"type": "response.content_part.added", **at, "part": part}
    for word in words:
        yield {"type": "response.output_text.delta", **at, "delta": word, "logprobs": []}
        await asyncio.sleep(_PACE)
    yield {"type": "response.output_text.done", **at, "text": whole["text"], "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": whole}
    done = {**item, "status": "completed", "content": [whole]}
    yield {"type": "response.output_item.done", "output_index": index, "item": done}


async def _complete(request: Request) -> Response:
    body = await request.json()
    words = _words(_user_texts(body["messages"]))
    head = {"id": "chatcmpl-demo", "created": int(time.time()), "model": body["model"]}
    if body.get("stream"):
        return EventSourceResponse(_chunks({**head, "object": "chat.completion.chunk"}, words))
    message = {"role": "assistant", "content": "".join(words), "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return JSONResponse({**head, "object": "chat.completion", "choices": [choice]})


async def _chunks(head: Json, words: list[str]) -> AsyncIterator[Json]:
    def chunk(delta: Json, finish_reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {"data": json.dumps({**head, "choices": [choice]})}

    yield chunk({"role": "assistant", "content": ""})
    for word in words:
        yield chunk({"content": word})
        await asyncio.sleep(_PACE)
    yield chunk({}, "stop")
    yield {"data": "[DONE]"}
