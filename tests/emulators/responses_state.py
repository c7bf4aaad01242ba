"""A response that goes on when nobody listens, and can be listened to again from any of its events.

What a Responses server remembers, and which continuations of it OpenAI accepts; pure.

Source of the error texts: public threads that quote them (openai-agents-python#2020, bifrost#2441, ai#7543), and code
that looks for them (of questions without an answer). No source: an answer to no question.

Conversations of a Responses server: one mutable end each, to which a response adds its items when it has completed.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from secrets import token_hex
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tests.emulators.responses_dialects import ResponsesDialect
from tests.emulators.scripts import Cut, Json
from tests.emulators.server import Emulator, EventStream, Frame, Refused, refused

_NUMBER = re.compile(rb'"sequence_number":(\d+)')


class Generation:
    """What a response has told so far, and its end. A Cut is of who listens at that moment, and of nobody later."""

    def __init__(self) -> None:
        self.ended = False
        self._told: list[tuple[int, Frame]] = []
        self._task: asyncio.Task[None] | None = None
        self._grown = asyncio.Event()

    async def run(self, frames: AsyncGenerator[Frame]) -> None:
        """To its end, or until it is stopped."""
        try:
            async with asyncio.TaskGroup() as group:
                self._task = group.create_task(self._tell(frames))
        finally:
            self.ended = True
            self._wake()

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def listen(self, after: int, *, live: bool) -> AsyncGenerator[Frame]:
        """The events behind number `after`. `live`: from the moment that they happen, cuts included."""
        place = 0
        while True:
            while place < len(self._told):
                number, frame = self._told[place]
                place += 1
                if number > after and (live or not isinstance(frame, Cut)):
                    yield frame
            if self.ended:
                return
            grown = self._grown
            await grown.wait()

    async def _tell(self, frames: AsyncGenerator[Frame]) -> None:
        number = -1
        async with aclosing(frames):
            async for frame in frames:
                found = _NUMBER.search(frame) if isinstance(frame, bytes) else None
                number = int(found[1]) if found is not None else number
                self._told.append((number, frame))
                self._wake()

    def _wake(self) -> None:
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()


class FirstListener(Response):
    """The answer to the request that asked for the response: when its client leaves, the response goes on."""

    def __init__(self, generation: Generation, frames: AsyncGenerator[Frame], *, stream: bool, body: bytes) -> None:
        super().__init__(body, media_type="application/json")
        self._generation = generation
        self._frames = frames
        self._stream = stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Response = self
        if self._stream:
            answer = EventStream(self._generation.listen(-1, live=True))
            answer.raw_headers.extend(header for header in self.raw_headers if header[0] == b"x-request-id")
        async with asyncio.TaskGroup() as group:
            group.create_task(self._generation.run(self._frames))
            group.create_task(answer(scope, receive, send) if self._stream else super().__call__(scope, receive, send))


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response (`body`, which moves on while it is in progress), its own input, and everything before that."""

    body: Json
    input: tuple[Json, ...]
    earlier: tuple[Json, ...]

    @property
    def history(self) -> tuple[Json, ...]:
        return (*self.earlier, *self.input, *self.body["output"])


def check_shape(body: Mapping[str, Any]) -> None:
    """Raises: Refused for what OpenAI refuses before it looks at the state."""
    for name in ("model", "input"):
        if body.get(name) is None:
            raise refused(400, f"Missing required parameter: '{name}'.", param=name, code="missing_required_parameter")
    if body.get("previous_response_id") and body.get("conversation"):
        message = "Mutually exclusive parameters: 'previous_response_id' and 'conversation'."
        raise refused(400, message, code="mutually_exclusive_parameters")
    given = body["input"]
    if not isinstance(given, str) and not (isinstance(given, list) and all(isinstance(item, dict) for item in given)):
        message = f"Invalid type for 'input': expected one of an array of objects or string, but got {given!r} instead."
        raise refused(400, message, param="input", code="invalid_type")


def find_previous(
    stored: Mapping[str, StoredResponse], name: str | None, dialect: ResponsesDialect
) -> StoredResponse | None:
    """The response to go on from, or None to start afresh. Raises: Refused when it cannot be continued."""
    previous = stored.get(name) if name else None
    if name is None or (previous is None and dialect.unknown_previous == "ignored"):
        return None
    if previous is None and dialect.unknown_previous == "detail":
        raise Refused(404, {"detail": f"Response '{name}' not found."})
    if previous is None:
        message = f"Previous response with id '{name}' not found."
        raise refused(400, message, param="previous_response_id", code="previous_response_not_found")
    status = previous.body["status"]
    if status not in ("completed", "incomplete"):
        message = f"Previous response with id '{name}' cannot be continued: its status is '{status}'."
        raise refused(400, message, param="previous_response_id")
    return previous


def input_items(given: str | list[Json]) -> tuple[Json, ...]:
    """The input as the server keeps it: items of a known type, each with an id."""
    if isinstance(given, str):
        given = [{"role": "user", "content": [{"type": "input_text", "text": given}]}]
    return tuple(_with_id({"type": "message", **item} if "role" in item else item) for item in given)


def _with_id(item: Json) -> Json:
    return item if item.get("id") else item | {"id": f"{_PREFIXES.get(item.get('type', ''), 'item')}_{token_hex(24)}"}


_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "mcp_approval_response": "mcpa",
    "reasoning": "rs",
}


def resolve_ids(
    given: str | list[Json], kept: Mapping[str, Json], truncated: Iterable[str], *, stores: bool
) -> str | list[Json]:
    """The input with item references replaced by the items `kept`.

    Raises: Refused for an id that the server did not keep; reasoning may bring its own content, encrypted.
    """
    if isinstance(given, str):
        return given
    resolved = []
    for item in given:
        name = item.get("id")
        encrypted = item.get("encrypted_content") if item.get("type") == "reasoning" else None
        if encrypted is not None and encrypted in truncated:
            message = f"The encrypted content {encrypted[:8]}... could not be verified."
            raise refused(400, message, param="input", code="invalid_encrypted_content")
        # A question is answered by its id, so it is told again with it.
        asked = item.get("type") == "mcp_approval_request"
        if name is not None and name not in kept and encrypted is None and not asked:
            advice = "" if stores else _NOT_PERSISTED
            raise refused(404, f"Item with id '{name}' not found.{advice}", param="input")
        reference = item.get("type", "item_reference") == "item_reference" and "role" not in item
        resolved.append(kept[name] if reference and name is not None else item)
    return resolved


_NOT_PERSISTED = (
    " Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item "
    "from your input."
)


def check_calls(items: Iterable[Mapping[str, Any]]) -> None:
    """Raises: Refused unless every function call has an output and every output a call; so with questions."""
    pending: dict[str, bool] = {}
    asked: dict[str, bool] = {}
    for item in items:
        call_id = str(item.get("call_id"))
        if item.get("type") == "function_call":
            pending[call_id] = True
        elif item.get("type") == "function_call_output":
            if call_id not in pending:
                message = f"No tool call found for function call output with call_id {call_id}."
                raise refused(400, message, param="input")
            pending[call_id] = False
        elif item.get("type") == "mcp_approval_request":
            asked[str(item.get("id"))] = True
        elif item.get("type") == "mcp_approval_response":
            question = str(item.get("approval_request_id"))
            if question not in asked:
                raise refused(400, f"Approval request with id '{question}' not found.", param="input")
            asked[question] = False
    undecided = ", ".join(question for question, open_ in asked.items() if open_)
    if undecided:
        message = f"The following MCP approval requests do not have an approval: {undecided}"
        raise refused(400, message, param="input")
    unanswered = next((call_id for call_id, open_ in pending.items() if open_), None)
    if unanswered is not None:
        raise refused(400, f"No tool output found for function call {unanswered}.", param="input")


class KeptConversation:
    """`items` are those that landed; `running` is the response that is being made on it."""

    def __init__(self, items: Iterable[Json] = ()) -> None:
        self.id = f"conv_{token_hex(24)}"
        self.items: list[Json] = list(items)
        self.running: str | None = None
        self._created_at = int(time.time())

    @property
    def body(self) -> Json:
        return {"id": self.id, "object": "conversation", "created_at": self._created_at, "metadata": {}}

    def land(self, given: Iterable[Json], response: Mapping[str, Any]) -> None:
        """The response has ended, for the first time; only a good end leaves anything."""
        if self.running == response["id"]:
            self.running = None
        if response["status"] in ("completed", "incomplete"):
            self.items += [*given, *response["output"]]


class Conversations:
    """All that a server keeps, by id."""

    def __init__(self, dialect: ResponsesDialect) -> None:
        self.kept: dict[str, KeptConversation] = {}
        self._dialect = dialect

    def routes(self, server: Emulator) -> Iterable[Route]:
        async def create(request: Request) -> Response:
            body = await server.read(request, "CreateConversationBody")
            made = KeptConversation(input_items(body.get("items") or []))
            self.kept[made.id] = made
            return JSONResponse(made.body)

        one = "/v1/conversations/{id}"
        return (
            server.route("POST", "/v1/conversations", create),
            server.route("GET", one, self._retrieve),
            server.route("DELETE", one, self._delete),
            server.route("GET", f"{one}/items", self._list_items),
            server.route("DELETE", f"{one}/items/{{item}}", self._delete_item),
        )

    def take(self, named: str | Json | None, response: str, *, stream: bool) -> KeptConversation | None:
        """The conversation that this response goes on in. Raises: Refused."""
        if not named or self._dialect.conversations == "ignored":
            return None
        name = named if isinstance(named, str) else named["id"]
        if name not in self.kept:
            raise self._unknown(name, stream=stream)
        found = self.kept[name]
        if self._dialect.conversations == "locked":
            if found.running is not None:
                raise refused(400, _LOCKED, param="conversation", code="conversation_locked")
            found.running = response
        return found

    def echo(self, found: KeptConversation | None) -> Json:
        """What a response says of its conversation."""
        if self._dialect.conversations == "unlocked":
            return {}
        return {"conversation": {"id": found.id} if found else None}

    async def _retrieve(self, request: Request) -> Response:
        return JSONResponse(self._find(request).body)

    async def _delete(self, request: Request) -> Response:
        name = self._find(request).id
        del self.kept[name]
        return JSONResponse({"id": name, "object": "conversation.deleted", "deleted": True})

    async def _delete_item(self, request: Request) -> Response:
        found, name = self._find(request), request.path_params["item"]
        if all(item["id"] != name for item in found.items):
            raise refused(404, f"Item with id '{name}' not found.")
        found.items = [item for item in found.items if item["id"] != name]
        return JSONResponse(found.body)

    async def _list_items(self, request: Request) -> Response:
        return JSONResponse(page(request, self._find(request).items))

    def _find(self, request: Request) -> KeptConversation:
        name = request.path_params["id"]
        if name not in self.kept:
            raise self._unknown(name, stream=False)
        return self.kept[name]

    def _unknown(self, name: str, *, stream: bool) -> Refused:
        if self._dialect.conversations != "unlocked":
            return refused(404, f"Conversation with id '{name}' not found.")
        message = f"Conversation '{name}' not found."
        error = Refused(404, {"detail": message})
        if stream:  # it finds out when the stream has begun
            event = {"type": "error", "code": "404", "message": message, "param": None, "sequence_number": 1}
            error.response = Response(f"data: {json.dumps(event)}\n\n", media_type="text/event-stream")
        return error


def page(request: Request, items: Iterable[Json]) -> Json:
    """The part of a list that the query asks for."""
    listed = list(items)
    if request.query_params.get("order", "desc") == "desc":
        listed.reverse()
    after = request.query_params.get("after")
    names = [item["id"] for item in listed]
    if after in names:
        listed = listed[names.index(after) + 1 :]
    shown = listed[: int(request.query_params.get("limit", "20"))]
    ends = {"first_id": shown[0]["id"] if shown else None, "last_id": shown[-1]["id"] if shown else None}
    return {"object": "list", "data": shown, "has_more": len(listed) > len(shown), **ends}


_LOCKED = "Another process is currently operating on this conversation. Please retry in a few seconds."
