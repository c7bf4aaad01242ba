"""Conversations of a Responses server: each has one mutable end, to which a response adds its items on completion."""

import json
import time
from collections.abc import Iterable, Mapping
from secrets import token_hex
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.emulators.responses_chain import input_items
from tests.emulators.responses_dialects import ResponsesDialect
from tests.emulators.scripts import Json
from tests.emulators.server import Emulator, Refused, refused


class KeptConversation:
    """`items` are those of completed responses; `running` is the response in progress."""

    def __init__(self, items: Iterable[Json] = ()) -> None:
        self.id = f"conv_{token_hex(24)}"
        self.items: list[Json] = list(items)
        self.running: str | None = None
        self._created_at = int(time.time())

    @property
    def body(self) -> Json:
        return {"id": self.id, "object": "conversation", "created_at": self._created_at, "metadata": {}}

    def add(self, given: Iterable[Json], response: Mapping[str, Any]) -> None:
        """At the first end of a response. A response that failed adds nothing."""
        if self.running == response["id"]:
            self.running = None
        if response["status"] in ("completed", "incomplete"):
            self.items += [*given, *response["output"]]


class Conversations:
    """The conversations of a server, by id."""

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
        """The conversation of this response. Raises: Refused."""
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
        """The fields of a response that name its conversation."""
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
        if stream:  # this server looks only after the stream has begun
            event = {"type": "error", "code": "404", "message": message, "param": None, "sequence_number": 1}
            error.response = Response(f"data: {json.dumps(event)}\n\n", media_type="text/event-stream")
        return error


def page(request: Request, items: Iterable[Json]) -> Json:
    """The page of a list that the query names."""
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
