"""An emulator of Anthropic's Messages API, with scripted answers. It keeps nothing but what it has signed or run, which has to
come back unchanged.

Source: anthropic 2.14.0, types `RawMessageStreamEvent` and `Message`; captures of aimock, llmock and OGX.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from secrets import token_hex
from types import MappingProxyType
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.emulators.anthropic_rules import Given, blocks_of, check, error, is_deferred
from tests.emulators.scripts import (
    Call,
    Cite,
    Conversation,
    Delay,
    ErrorEvent,
    Fail,
    Incomplete,
    Item,
    Json,
    Pause,
    Refuse,
    Say,
    Script,
    ServerTool,
    Step,
    Stop,
    Think,
    greeting,
    pieces,
)
from tests.emulators.server import Emulator, Validator

EXPIRES = "2099-01-01T00:00:00Z"
_STOPS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


@dataclass(frozen=True, slots=True)
class MessagesDialect:
    """Differences of a compatible server from Anthropic's own wire."""

    late_stops: bool = False
    """A block begins before the one before it has ended; a ping follows each end."""
    bare: bool = False
    """No names of events, no pings, no signatures, and of tokens only those of the answer."""
    whole_inputs: bool = False
    """The arguments of a call come with its beginning."""


DIALECTS: Mapping[str, MessagesDialect] = MappingProxyType(
    {
        "anthropic": MessagesDialect(),
        "ogx": MessagesDialect(late_stops=True),
        "llmock": MessagesDialect(bare=True),
        "whole": MessagesDialect(whole_inputs=True),
    }
)


class MessagesReply:
    """One message in the making."""

    def __init__(self, request: Json, dialect: MessagesDialect, given: Given) -> None:
        self._dialect = dialect
        self._given = given
        self._model = request["model"]
        self._head = {"id": f"msg_{token_hex(12)}", "type": "message", "role": "assistant", "model": self._model}
        self._input_tokens = len(json.dumps(request["messages"]).split())
        last = request["messages"][-1]
        self._before = last["content"] if last["role"] == "assistant" else []
        self._content: list[Json] = []
        self._open: list[int] = []
        self._stop: str | None = None
        self._container: Json | None = None
        self._failed: Json | None = None

    @property
    def ended(self) -> bool:
        return self._failed is not None

    def begin(self) -> Iterator[bytes]:
        usage = {"input_tokens": self._input_tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
        start = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None}
        yield self._event("message_start", message={**start, "usage": {**usage, "output_tokens": 1}})
        if not self._dialect.bare:
            yield self._event("ping")

    def take(self, step: Step) -> Iterator[bytes | Pause | Delay]:
        match step:
            case Say(text, chunks):
                yield from self._text(text, chunks)
            case Refuse(text, chunks):
                yield from self._text(text, chunks)
                self._stop = "refusal"
            case Cite(annotation):
                self._content[-1].setdefault("citations", []).append(dict(annotation))
                yield self._delta(len(self._content) - 1, type="citations_delta", citation=dict(annotation))
            case Think(text, signature, chunks):
                yield from self._think(text, signature, chunks)
            case Call():
                yield from self._call(step)
            case ServerTool():
                yield from self._service_call(step)
            case Item(body):
                yield from self._begin_block(dict(body), dict(body))
                self._given.blocks.append((self._model, self._content[-1]))
            case Incomplete(reason):
                self._stop = _STOPS[reason]
            case Stop(reason, container):
                self._stop = reason
                if container:
                    self._given.containers.add(container)
                    self._container = {"id": container, "expires_at": EXPIRES}
            case Fail(code, message) | ErrorEvent(code, message):
                kind = "api_error" if code in (None, "server_error") else code
                self._failed = {"type": "error", "error": {"type": kind, "message": message}}
                yield self._event("error", **{name: each for name, each in self._failed.items() if name != "type"})
            case _:
                raise ValueError(f"the Messages API has nothing for {type(step).__name__}")

    def finish(self) -> Iterator[bytes]:
        yield from self._end_blocks()
        container = {} if self._container is None else {"container": self._container}
        delta = {"stop_reason": self._stop_reason, "stop_sequence": None, **container}
        if self._stop_reason == "pause_turn":
            self._given.paused.append([*self._before, *self._content])
        elif is_deferred(self._content):
            self._given.deferred.append(self._content)
        yield self._event("message_delta", delta=delta, usage={"output_tokens": self._output_tokens})
        yield self._event("message_stop")

    def drained(self) -> tuple[int, Json]:
        if self._failed is not None:
            return 500, self._failed
        usage = {"input_tokens": self._input_tokens, "output_tokens": self._output_tokens}
        ending = {"stop_reason": self._stop_reason, "stop_sequence": None, "usage": usage}
        return 200, {**self._head, "content": self._content, **ending}

    @property
    def _stop_reason(self) -> str:
        calls = any(block["type"] == "tool_use" for block in self._content)
        return self._stop or ("tool_use" if calls else "end_turn")

    @property
    def _output_tokens(self) -> int:
        return len(json.dumps(self._content).split())

    def _text(self, text: str, chunks: int) -> Iterator[bytes]:
        """Texts that follow each other are one block, but what is cited is one of its own."""
        last = self._content[-1] if self._content and self._open else {}
        if last.get("type") != "text" or "citations" in last:
            yield from self._begin_block({"type": "text", "text": ""}, {"type": "text", "text": ""})
        for piece in pieces(text, chunks):
            self._content[-1]["text"] += piece
            yield self._delta(len(self._content) - 1, type="text_delta", text=piece)

    def _think(self, text: str, signature: str, chunks: int) -> Iterator[bytes]:
        signature = signature or ("" if self._dialect.bare else f"sig_{token_hex(8)}")
        block = {"type": "thinking", "thinking": "", "signature": ""}
        yield from self._begin_block(block, {**block, "thinking": text, "signature": signature})
        place = len(self._content) - 1
        for piece in pieces(text, chunks):
            yield self._delta(place, type="thinking_delta", thinking=piece)
        if signature:
            yield self._delta(place, type="signature_delta", signature=signature)
        self._given.blocks.append((self._model, self._content[place]))

    def _call(self, step: Call) -> Iterator[bytes]:
        named = {"type": "tool_use", "id": step.call_id or f"toolu_{token_hex(12)}", "name": step.name}
        arguments = step.arguments if isinstance(step.arguments, str) else json.dumps(dict(step.arguments))
        yield from self._with_input(named, arguments, step.chunks)

    def _service_call(self, step: ServerTool) -> Iterator[bytes | Pause | Delay]:
        call_id = f"srvtoolu_{token_hex(12)}"
        used: Json = {"id": call_id, "name": step.name}
        if step.kind == "mcp":
            used |= {"type": "mcp_tool_use", "server_name": "emulator"}
            content: Any = [{"type": "text", "text": step.error or step.output}]
            result: Json = {"type": "mcp_tool_result", "content": content, "is_error": step.error is not None}
        else:
            used |= {"type": "server_tool_use"}
            found = {"type": "web_search_result", "title": step.output, "url": "https://x.example", "page_age": None}
            failed = {"type": "web_search_tool_result_error", "error_code": step.error}
            content = failed if step.error else [{**found, "encrypted_content": token_hex(8)}]
            result = {"type": "web_search_tool_result", "content": content}
        yield from self._with_input(used, json.dumps(dict(step.arguments)), 2)
        self._given.blocks.append((self._model, self._content[-1]))
        if step.during is not None:
            yield from self._end_blocks()
            yield step.during
        result |= {"tool_use_id": call_id}
        yield from self._begin_block(result, result)
        self._given.blocks.append((self._model, result))

    def _with_input(self, named: Json, arguments: str, chunks: int) -> Iterator[bytes]:
        try:
            whole = json.loads(arguments)
        except ValueError:
            whole = {}
        at_once = self._dialect.whole_inputs
        yield from self._begin_block({**named, "input": whole if at_once else {}}, {**named, "input": whole})
        for piece in () if at_once else pieces(arguments, chunks):
            yield self._delta(len(self._content) - 1, type="input_json_delta", partial_json=piece)

    def _begin_block(self, start: Json, whole: Json) -> Iterator[bytes]:
        """`start` is what the stream shows at first, `whole` the block when it is complete."""
        if not self._dialect.late_stops:
            yield from self._end_blocks()
        index = len(self._content)
        self._content.append(whole)
        yield self._event("content_block_start", index=index, content_block=start)
        yield from self._end_blocks()
        self._open.append(index)

    def _end_blocks(self) -> Iterator[bytes]:
        for index in self._open:
            yield self._event("content_block_stop", index=index)
            if self._dialect.late_stops:
                yield self._event("ping")
        self._open.clear()

    def _delta(self, index: int, **delta: Any) -> bytes:
        return self._event("content_block_delta", index=index, delta=delta)

    def _event(self, kind: str, **fields: Any) -> bytes:
        name = "" if self._dialect.bare else f"event: {kind}\n"
        data = json.dumps({"type": kind, **fields}, ensure_ascii=False, separators=(",", ":"))
        return f"{name}data: {data}\n\n".encode()


class MessagesServer(Emulator):
    """`POST /v1/messages` in one of the dialects, the list of models, and files. `given` is what it has signed, encrypted or
    run; `files` are the contents of files by their ids."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        dialect: MessagesDialect = DIALECTS["anthropic"],
        api_key: str | None = None,
        models: tuple[str, ...] = (),
        validator: Validator | None = None,
    ) -> None:
        """Without a script it plays `greeting`."""
        super().__init__(script or greeting, api_key=api_key, models=models, validator=validator)
        self.given = Given()
        self.files: dict[str, bytes] = {}
        self._dialect = dialect

    def routes(self) -> Iterable[Route]:
        return (
            self.route("POST", "/v1/messages", self._create),
            self.route("GET", "/v1/models/{model:path}", self._model),
            self.route("GET", "/v1/files/{name}", self._about_file),
            self.route("GET", "/v1/files/{name}/content", self._file),
        )

    def key_of(self, request: Request) -> str:
        return request.headers.get("x-api-key") or super().key_of(request)

    def _authorise(self, key: str) -> None:
        if self._api_key is not None and key != self._api_key:
            raise error(401, "authentication_error", "invalid x-api-key" if key else "x-api-key header is required")

    async def _create(self, request: Request) -> Response:
        body = await self.read(request, "MessageCreateParams")
        if "anthropic-version" not in request.headers:
            raise error(400, "invalid_request_error", "anthropic-version: header is required")
        if not self.knows_model(body.get("model", "")):
            raise error(404, "not_found_error", f"model: {body.get('model')}")
        check(body, self.given)
        steps = await self.open(Conversation(tuple(_items(body["messages"])), body))
        if isinstance(steps, Response):
            return steps
        return await self.answer(MessagesReply(body, self._dialect, self.given), steps, stream=bool(body.get("stream")))

    async def _model(self, request: Request) -> Response:
        name = request.path_params["model"]
        if name not in self._models:
            raise error(404, "not_found_error", f"model: {name}")
        return JSONResponse(_described(name))

    async def _about_file(self, request: Request) -> Response:
        name, content = self._found_file(request)
        about = {"id": name, "type": "file", "filename": f"{name}.csv", "mime_type": "text/csv"}
        return JSONResponse(about | {"size_bytes": len(content), "created_at": EXPIRES, "downloadable": True})

    async def _file(self, request: Request) -> Response:
        return Response(self._found_file(request)[1], media_type="text/csv")

    def _found_file(self, request: Request) -> tuple[str, bytes]:
        name = request.path_params["name"]
        if name not in self.files:
            raise error(404, "not_found_error", f"File not found: {name}")
        return name, self.files[name]

    async def _list_models(self, _: Request) -> Response:
        entries = [_described(name) for name in self._models]
        ends = {"first_id": None, "last_id": None} if not entries else {}
        return JSONResponse({"data": entries, "has_more": False, **ends})


def _described(name: str) -> Json:
    return {"type": "model", "id": name, "display_name": name, "created_at": "2026-01-01T00:00:00Z"}


def _items(messages: Iterable[Json]) -> Iterator[Json]:
    """The conversation as scripts read it, whatever the wire. Messages of the caller that follow each other come as blocks of
    one message."""
    for message in messages:
        for block in blocks_of(message):
            match block["type"]:
                case "text":
                    yield {"role": message["role"], "content": block["text"]}
                case "tool_result":
                    # Other wires have no mark for a tool that failed.
                    told = f"Error: {block['content']}" if block.get("is_error") else block.get("content")
                    yield {"role": "tool", "tool_call_id": block["tool_use_id"], "content": told}
                case kind:
                    yield {"type": kind, "block": block}
