"""A small A2A 1.0 client that shows what the official one hides: event numbers, raw bytes, and streams that break."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2

from gateway.core.failures import safe_text

Json = dict[str, Any]

_CORRELATION = " (correlation id "
_BOUND_SECONDS = 60
"""Keep-alive comments would let an unfinished stream last for ever."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One event of a stream and its number, if it has one."""

    number: int | None
    event: Json


class Refused(Exception):
    """A JSON-RPC error."""

    def __init__(self, error: Json) -> None:
        super().__init__(error)
        self.error = error


@dataclass(slots=True)
class Stream:
    """An open stream. `frames` are those that were read so far; `cut`: it broke instead of ending; `error` is the JSON-RPC
    error that it ended with."""

    chunks: AsyncIterator[bytes]
    frames: list[Frame] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)
    cut: bool = False
    error: Json | None = None
    _rest: bytes = b""

    async def read(self, count: int) -> list[Frame]:
        """Until at least `count` frames were read in all, or the stream has ended."""
        return await self.read_until(lambda frames: len(frames) >= count)

    async def read_until(self, enough: Callable[[list[Frame]], bool]) -> list[Frame]:
        async with asyncio.timeout(_BOUND_SECONDS):
            while not enough(self.frames) and await self._more():
                pass
        return self.frames

    async def rest(self) -> list[Frame]:
        """Until it ends or breaks."""
        return await self.read_until(lambda _: False)

    async def _more(self) -> bool:
        try:
            chunk = await anext(self.chunks, b"")
        except httpx2.TransportError:
            self.cut = True
            return False
        *blocks, self._rest = (self._rest + chunk).split(b"\n\n")
        for block in blocks:
            self._take(block)
        return bool(chunk)

    def _take(self, block: bytes) -> None:
        number = None
        for line in block.decode().split("\n"):
            key, _, value = line.partition(": ")
            match key:
                case "id":
                    number = int(value)
                case "data":
                    body = json.loads(value)
                    if "jsonrpc" in body and "error" in body:
                        self.error = body["error"]
                        continue
                    self.frames.append(Frame(number, body["result"] if "jsonrpc" in body else body))
                case _:
                    self.comments.append(line)


@dataclass(slots=True)
class A2A:
    """Calls one agent over JSON-RPC. `seen` is every byte of every answer."""

    http: httpx2.AsyncClient
    agent: str
    seen: bytearray = field(default_factory=bytearray)

    async def call(self, method: str, **params: Any) -> Json:
        """Raises: Refused."""
        response = await self.http.post(f"/a2a/{self.agent}", json=_envelope(method, params))
        self.seen += response.content
        body = response.json()
        if "error" in body:
            raise Refused(body["error"])
        result: Json = body["result"]
        return result

    async def send(self, text: str, context: str | None = None, **message: Any) -> Json:
        """The task that a blocking message has led to."""
        result = await self.call("SendMessage", message=user_message(text, context, **message))
        task: Json = result["task"]
        return task

    @asynccontextmanager
    async def stream(
        self, text: str, context: str | None = None, configuration: Json | None = None, **message: Any
    ) -> AsyncIterator[Stream]:
        params = {"message": user_message(text, context, **message)}
        if configuration:
            params["configuration"] = configuration
        async with self._open("SendStreamingMessage", params, {}) as stream:
            yield stream

    @asynccontextmanager
    async def subscribe(self, task: str, after: int | None = None) -> AsyncIterator[Stream]:
        headers = {} if after is None else {"Last-Event-ID": str(after)}
        async with self._open("SubscribeToTask", {"id": task}, headers) as stream:
            yield stream

    async def get(self, task: str) -> Json:
        return await self.call("GetTask", id=task)

    async def tasks(self, context: str) -> list[Json]:
        """All tasks of the context with their artifacts, latest first."""
        found: list[Json] = []
        token = ""
        while True:
            page = await self.call("ListTasks", contextId=context, includeArtifacts=True, pageSize=100, pageToken=token)
            found += page["tasks"]
            token = page["nextPageToken"]
            if not token:
                return found

    @asynccontextmanager
    async def _open(self, method: str, params: Json, headers: dict[str, str]) -> AsyncIterator[Stream]:
        async with self.http.stream(
            "POST", f"/a2a/{self.agent}", json=_envelope(method, params), headers=headers
        ) as response:
            if response.headers["content-type"] != "text/event-stream":
                raise Refused(json.loads(await response.aread())["error"])
            stream = Stream(response.aiter_raw())
            yield stream
            self.seen += json.dumps([frame.event for frame in stream.frames]).encode()


@asynccontextmanager
async def a2a_http(url: str, patience: float = _BOUND_SECONDS) -> AsyncIterator[httpx2.AsyncClient]:
    """`patience`: the seconds of silence after which a request counts as broken off."""
    async with httpx2.AsyncClient(
        base_url=url,
        headers={"A2A-Version": "1.0"},
        timeout=patience,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=20),
        trust_env=False,
    ) as client:
        yield client


def user_message(text: str, context: str | None = None, **more: Any) -> Json:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}], **more}
    return message if context is None else message | {"contextId": context}


def _envelope(method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


# --- reading what came ------------------------------------------------------------------------------------------------


def text_of(task: Json) -> str:
    """The text of all artifacts of a task."""
    return "".join(part.get("text", "") for artifact in task.get("artifacts", ()) for part in artifact["parts"])


def streamed_text(frames: list[Frame]) -> str:
    """The text that the artifact updates among the frames bring."""
    return "".join(
        part.get("text", "")
        for frame in frames
        for part in frame.event.get("artifactUpdate", {}).get("artifact", {}).get("parts", ())
    )


def why(task: Json) -> tuple[str, str]:
    """State and status text of a task, the text without its correlation id."""
    status = task["status"]
    text = status.get("message", {"parts": [{"text": ""}]})["parts"][0]["text"]
    return status["state"], text.partition(_CORRELATION)[0]


def failed(failure: str, asked: int | None = None) -> tuple[str, str]:
    """What `why` says of a task that failed for this reason, and whose backend has asked for so many seconds."""
    return "TASK_STATE_FAILED", safe_text(failure, "", asked).partition(_CORRELATION)[0]


COMPLETED = ("TASK_STATE_COMPLETED", "")
