"""An emulator of OpenAI's Responses API: exact events and errors, rotating ids, scripted answers.

A background response can be streamed again for as long as the server runs.
"""

import json
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.emulators.responses_background import BackgroundAnswer, BackgroundRun
from tests.emulators.responses_chain import (
    StoredResponse,
    check_calls,
    check_shape,
    find_previous,
    input_items,
    resolve_ids,
)
from tests.emulators.responses_conversations import Conversations, page
from tests.emulators.responses_dialects import RESPONSES_DIALECTS, ResponsesDialect
from tests.emulators.responses_reply import ResponsesReply, new_response
from tests.emulators.scripts import Conversation, Json, Script, Step, greeting
from tests.emulators.server import Emulator, EventStream, Validator, play, refused


class ResponsesServer(Emulator):
    """`stored` holds the responses that can be fetched, by id, with those that never completed. `conversations` holds
    all conversations, by id."""

    def __init__(
        self,
        script: Script | None = None,
        *,
        dialect: ResponsesDialect = RESPONSES_DIALECTS["openai"],
        api_key: str | None = None,
        models: tuple[str, ...] = (),
        validator: Validator | None = None,
    ) -> None:
        """Without a script it plays `greeting`."""
        self._conversations = Conversations(dialect)
        self._lists = dialect.lists_responses
        super().__init__(script or greeting, api_key=api_key, models=models, validator=validator)
        self.stored: dict[str, StoredResponse] = {}
        self.conversations = self._conversations.kept
        self.unheard = False
        """The streams of background responses that begin from now on are cut before their first event."""
        self._dialect = dialect
        self._truncated: set[str] = set()
        self._background: dict[str, BackgroundRun] = {}

    def forget_everything(self) -> None:
        self.stored.clear()
        self.conversations.clear()

    def forget_streams(self) -> None:
        """From now on, background responses can only be fetched: OpenAI keeps their events for minutes."""
        self._background.clear()

    async def listener_left(self) -> None:
        """Returns when a listener of the newest background response has left."""
        await next(reversed(self._background.values())).left.wait()

    def routes(self) -> Iterable[Route]:
        one = "/v1/responses/{id}"
        return (
            self.route("POST", "/v1/responses", self._create),
            *((self.route("GET", "/v1/responses", self._list),) if self._lists else ()),
            self.route("GET", one, self._retrieve),
            self.route("DELETE", one, self._delete),
            self.route("POST", f"{one}/cancel", self._cancel),
            self.route("GET", f"{one}/input_items", self._list_input_items),
            *self._conversations.routes(self),
        )

    def more_of(self, body: Json) -> Json:
        """More fields of the response to this request."""
        return {}

    async def _create(self, request: Request) -> Response:
        body = await self.read(request, "CreateResponse")
        check_shape(body)
        if not self.knows_model(body["model"]):
            message = f"The requested model '{body['model']}' does not exist."
            raise refused(400, message, param="model", code="model_not_found")
        stores = body.get("store") is not False
        if body.get("background") and not stores:
            raise refused(400, "Background mode requires 'store' to be true.", param="background")
        previous = find_previous(self.stored, body.get("previous_response_id"), self._dialect)
        given = input_items(resolve_ids(body["input"], self._kept_items(body["input"]), self._truncated, stores=stores))
        response = new_response(body, self._dialect, previous.body["id"] if previous else None)
        within = self._conversations.take(body.get("conversation"), response["id"], stream=bool(body.get("stream")))
        response |= self._conversations.echo(within) | self.more_of(body)
        earlier = tuple(within.items) if within else previous.history if previous else ()
        running = True

        def ending() -> None:
            nonlocal running
            if within and running:
                within.add(given, response)
            running = False

        try:
            check_calls((*earlier, *given))
            conversation = Conversation((*earlier, *given), body)
            steps = await self.open(conversation)
        except BaseException:
            ending()
            raise
        if isinstance(steps, Response):
            ending()
            return steps
        if stores:
            self.stored[response["id"]] = StoredResponse(response, given, earlier)
        reply = ResponsesReply(response, body, self._dialect, conversation.items, self._truncated, ending)
        if response["background"]:
            run = self._background[response["id"]] = BackgroundRun(unheard=self.unheard)
            frames = play(reply, _until_closed(steps, ending), goes_on=True)
            streams = bool(body.get("stream"))
            return BackgroundAnswer(run, frames, stream=streams, body=json.dumps(response).encode())
        return await self.answer(reply, _until_closed(steps, ending), stream=bool(body.get("stream")))

    async def _retrieve(self, request: Request) -> Response:
        found = self._find(request)
        if request.query_params.get("stream") == "true":
            run = self._background.get(found.body["id"])
            if run is not None:
                after = int(request.query_params.get("starting_after", -1))
                return EventStream(run.listen(after, live=False))
            message = "This response cannot be streamed because it was not created with background=true."
            raise refused(400, message, param="stream", code="invalid_request_error")
        return JSONResponse(found.body)

    async def _list(self, request: Request) -> Response:
        wanted = request.query_params.get("conversation_id")
        bodies = [stored.body for stored in self.stored.values()]
        found = [body for body in bodies if wanted is None or (body.get("conversation") or {}).get("id") == wanted]
        return JSONResponse(page(request, found))

    async def _delete(self, request: Request) -> Response:
        name = self._find(request).body["id"]
        del self.stored[name]
        return JSONResponse({"id": name, "object": "response", "deleted": True})

    async def _cancel(self, request: Request) -> Response:
        body = self._find(request).body
        if not body["background"]:
            raise refused(400, "Cannot cancel a synchronous response.")
        if body["status"] == "in_progress":
            body["status"] = "cancelled"
            if run := self._background.get(body["id"]):
                run.stop()
        return JSONResponse(body)

    async def _list_input_items(self, request: Request) -> Response:
        return JSONResponse(page(request, self._find(request).input))

    def _find(self, request: Request) -> StoredResponse:
        name = request.path_params["id"]
        if name not in self.stored:
            raise refused(404, f"Response with id '{name}' not found.")
        return self.stored[name]

    def _kept_items(self, given: str | list[Json]) -> dict[str, Json]:
        """By their ids; none where the input names no id."""
        if isinstance(given, str) or not any(item.get("id") for item in given):
            return {}
        kept = [*(one.items for one in self.conversations.values())]
        kept += [[*stored.input, *stored.body["output"]] for stored in self.stored.values()]
        return {item["id"]: item for items in kept for item in items}


async def _until_closed(steps: AsyncGenerator[Step], closed: Callable[[], None]) -> AsyncGenerator[Step]:
    """The steps; `closed` is called when their reader stops before the end."""
    async with aclosing(steps):
        try:
            async for step in steps:
                yield step
        except BaseException:
            closed()
            raise
