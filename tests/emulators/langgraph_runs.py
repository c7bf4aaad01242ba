"""A run of a graph on the wire of a LangGraph Agent Server: it continues without a listener, and can be streamed again.

Source: langgraph-api 0.16.7 with langchain 1.5.2: CRLF, the field order event, data, id, and events that share an id.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from secrets import token_hex
from typing import Any
from uuid import uuid4

from tests.emulators import scripts
from tests.emulators.scripts import Cut, Delay, Json, Pause, Step, pieces
from tests.emulators.server import Frame


class Run:
    """A run and its events so far. A Cut ends the streams of that moment, and no later one."""

    def __init__(self, thread: str, metadata: Json) -> None:
        self.id = str(uuid4())
        self.thread = thread
        self.metadata = metadata
        self.status = "running"
        self.ended = asyncio.Event()
        self.left = asyncio.Event()
        """A listener has gone before the end of the run."""
        self._unheard = False
        self._sent: list[Frame] = []
        self._task: asyncio.Task[None] | None = None
        self._grown = asyncio.Event()

    def __len__(self) -> int:
        return len(self._sent)

    async def play(self, frames: AsyncGenerator[Frame]) -> None:
        """Returns at the end of the run, or after `stop`."""
        try:
            async with asyncio.TaskGroup() as group:
                self._task = group.create_task(self._record(frames))
        finally:
            self.ended.set()
            self._notify()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def work_unheard(self) -> None:
        """Something between the server and its listeners ends their streams, and the run goes on until it is stopped."""
        self._unheard = True
        self._notify()
        await asyncio.Event().wait()

    def forget_events(self, count: int | None = None) -> None:
        """The events, or so many from the first on, are not kept any more."""
        del self._sent[:count]

    async def listen(self, after: int, *, live: bool) -> AsyncGenerator[Frame]:
        """The events behind so many. `live`: as they happen, cuts included."""
        place, whole = after, False
        try:
            while True:
                while place < len(self._sent):
                    frame = self._sent[place]
                    place += 1
                    if live or not isinstance(frame, Cut):
                        yield frame
                if self.ended.is_set() or (live and self._unheard):
                    whole = True
                    return
                await self._grown.wait()
        finally:
            if not whole:
                self.left.set()

    async def _record(self, frames: AsyncGenerator[Frame]) -> None:
        async with aclosing(frames):
            async for frame in frames:
                self._sent.append(frame)
                self._notify()

    def _notify(self) -> None:
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()


class RunReply:
    """The events of a run in the making; it implements Reply."""

    def __init__(self, run: Run, gated: Iterable[Json], commit: Callable[[Iterable[Json]], None]) -> None:
        """`gated` are the results of calls that were asked about, as messages; `commit` adds messages to the thread."""
        self.run = run
        self.interrupts: list[Json] = []
        self.ended = False
        self._gated = gated
        self._commit = commit
        self._number = 1795170706170
        self._open: Json | None = None
        """The message that the model is writing."""
        self._asks: list[Json] = []

    # --- Reply

    def begin(self) -> Iterable[bytes]:
        yield self._event("metadata", {"run_id": self.run.id, "attempt": 1})
        for message in self._gated:
            yield self._told(message, "tools")
            yield from self._update("tools", message)

    def take(self, step: Step) -> Iterable[bytes | Pause | Delay]:
        match step:
            case scripts.Say(text, chunks) | scripts.Refuse(text, chunks):
                for piece in pieces(text, chunks) if text else ("",):
                    yield self._piece(piece)
            case scripts.Think(summary, _, chunks):
                for piece in pieces(summary, chunks):
                    yield self._piece([{"type": "reasoning", "reasoning": piece, "index": 0}])
            case scripts.ImageOut(data):
                image = {"type": "image", "base64": data.decode(), "mime_type": "image/png"}
                yield self._piece([image])
            case scripts.ServerTool():
                yield from self._tool(step)
            case scripts.Ask(name, arguments, question):
                yield from self._call(question or f"call_{token_hex(8)}", name, arguments)
                self._asks.append({"name": name, "args": dict(arguments), "description": f"May I run {name}?"})
            case scripts.Incomplete():
                yield self._piece("", response_metadata={"finish_reason": "length"})
            case scripts.Restarted():
                self._open = None
                yield self._event("metadata", {"run_id": self.run.id, "attempt": 2})
            case scripts.Fail(code, message) | scripts.ErrorEvent(code, message):
                self._end("error")
                yield self._event("error", {"error": code or "ValueError", "message": message})
            case scripts.Item(body):
                yield from self._raw(body)
            case _:
                raise NotImplementedError(f"{step!r} is no step of a graph")

    def finish(self) -> Iterable[bytes]:
        yield from self._close()
        if self._asks:
            configs = [
                {"action_name": ask["name"], "allowed_decisions": ["approve", "edit", "reject"]} for ask in self._asks
            ]
            self._interrupt({"action_requests": self._asks, "review_configs": configs})
        for interrupt in self.interrupts:
            yield self._event("updates", {"__interrupt__": [interrupt]}, shared=True)
        self._end("success")

    def drained(self) -> tuple[int, Json]:
        raise NotImplementedError("runs are streamed")

    # --- messages

    def _piece(self, content: Any, **fields: Any) -> bytes:
        if self._open is None:
            self._open = {"id": f"lc_run--{uuid4()}", "content": [], "tool_calls": [], "usage": None, "finish": {}}
        self._open["content"].append(content)
        self._open["finish"] |= fields.get("response_metadata", {})
        return self._chunk(content=content, **fields)

    def _chunk(self, **fields: Any) -> bytes:
        assert self._open is not None
        whole = {
            "content": "",
            "additional_kwargs": {},
            "response_metadata": {},
            "type": "AIMessageChunk",
            "name": None,
            "id": self._open["id"],
            "tool_calls": [],
            "invalid_tool_calls": [],
            "usage_metadata": None,
            "tool_call_chunks": [],
            "chunk_position": None,
        }
        return self._event("messages", [whole | fields, self._where("model")])

    def _close(self) -> Iterable[bytes]:
        """The message is whole, and the node adds it to the thread."""
        message, usage = self._open, {"input_tokens": 5, "output_tokens": 2, "total_tokens": 7}
        if message is None:
            return
        yield self._chunk(usage_metadata=usage)
        yield self._chunk(chunk_position="last")
        self._open = None
        parts = message["content"]
        texts = all(isinstance(part, str) for part in parts)
        whole = ai_message("".join(parts) if texts else _blocks(parts), message["id"], message["tool_calls"])
        whole |= {"usage_metadata": usage, "response_metadata": {"finish_reason": "stop"} | message["finish"]}
        yield from self._update("model", whole)

    def _call(self, call_id: str, name: str, arguments: Any) -> Iterable[bytes]:
        if self._open is None:
            yield self._piece("")
        assert self._open is not None
        index, text = len(self._open["tool_calls"]), json.dumps(dict(arguments))
        self._open["tool_calls"].append({"name": name, "args": dict(arguments), "id": call_id, "type": "tool_call"})
        for given, args in ((True, ""), (False, text[:3]), (False, text[3:])):
            chunk = {"name": name if given else None, "args": args, "id": call_id if given else None, "index": index}
            yield self._chunk(tool_call_chunks=[chunk | {"type": "tool_call_chunk"}])

    def _tool(self, step: scripts.ServerTool) -> Iterable[bytes | Pause | Delay]:
        call_id = f"call_{token_hex(8)}"
        yield from self._call(call_id, step.name, step.arguments)
        yield from self._close()
        if step.during is not None:
            yield step.during
        message = tool_message(call_id, step.name, step.error or step.output, failed=step.error is not None)
        yield self._told(message, "tools")
        yield from self._update("tools", message)

    def _told(self, message: Json, node: str) -> bytes:
        """A message that no model has streamed."""
        return self._event("messages", [message, self._where(node)])

    def _update(self, node: str, message: Json) -> Iterable[bytes]:
        self._commit([message])
        yield self._event("updates", {node: {"messages": [message]}}, shared=True)

    def _raw(self, body: Any) -> Iterable[bytes]:
        """Any event; a question of any form; or a message of a node, which no model has streamed."""
        match body:
            case {"interrupt": value, **rest}:
                self._interrupt(value, rest.get("response_schema"))
            case {"event": name, "data": data}:
                yield self._event(name, data)
            case {"message": message, **rest}:
                node = str(rest.get("node", "node"))
                yield self._told(message, node)
                yield from self._update(node, message)

    def _interrupt(self, value: Any, schema: Any = None) -> None:
        self.interrupts.append({"value": value, "id": token_hex(16), "response_schema": schema})

    def _end(self, status: str) -> None:
        self.ended = True
        self.run.status = status

    def _where(self, node: str) -> Json:
        return {"run_id": self.run.id, "langgraph_node": node, "langgraph_checkpoint_ns": f"{node}:{self.run.id}"}

    def _event(self, name: str, data: Any, *, shared: bool = False) -> bytes:
        """`shared`: the event has the id of the one before."""
        self._number += 0 if shared else 1
        text = json.dumps(data, ensure_ascii=False)
        return f"event: {name}\r\ndata: {text}\r\nid: {self._number}-0\r\n\r\n".encode()


def ai_message(content: Any, name: str, calls: Iterable[Json] = ()) -> Json:
    return {
        "content": content,
        "additional_kwargs": {},
        "response_metadata": {},
        "type": "ai",
        "name": None,
        "id": name,
        "tool_calls": list(calls),
        "invalid_tool_calls": [],
        "usage_metadata": None,
    }


def tool_message(call_id: str, name: str, content: str, *, failed: bool = False) -> Json:
    return {
        "content": content,
        "additional_kwargs": {},
        "response_metadata": {},
        "type": "tool",
        "name": name,
        "id": str(uuid4()),
        "tool_call_id": call_id,
        "artifact": None,
        "status": "error" if failed else "success",
    }


def _blocks(parts: Iterable[Any]) -> list[Json]:
    blocks: list[Json] = []
    for part in parts:
        blocks += [{"type": "text", "text": part}] if isinstance(part, str) and part else []
        blocks += part if isinstance(part, list) else []
    return blocks
