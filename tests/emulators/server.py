"""The common part of the emulators: reading a request, refusing it in OpenAI's form, and playing a script.

Law: every body is recorded before it is checked.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from secrets import token_hex
from typing import Any, Protocol, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from gateway.testing.serving import DROP, serve
from tests.emulators.scripts import (
    Conversation,
    Cut,
    Delay,
    Html,
    Json,
    NoTerminal,
    Pause,
    Raw,
    Script,
    Status,
    Step,
    steps_of,
)

Validator: TypeAlias = Callable[[str, object], list[str]]
"""Name of a schema of the vendor's API description, body -> the violations."""

Frame: TypeAlias = bytes | Raw | Cut


class Refused(Exception):
    """The request is answered with an HTTP error."""

    def __init__(self, status: int, body: Mapping[str, Any]) -> None:
        super().__init__(status, body)
        self.response: Response = JSONResponse(body, status)


def refused(
    status: int, message: str, *, param: str | None = None, code: str | None = None, kind: str = "invalid_request_error"
) -> Refused:
    """An error in OpenAI's form."""
    return Refused(status, {"error": {"message": message, "type": kind, "param": param, "code": code}})


class Reply(Protocol):
    """One answer in the making, on one wire."""

    @property
    def ended(self) -> bool: ...

    def begin(self) -> Iterable[bytes]: ...

    def take(self, step: Step) -> Iterable[bytes | Pause | Delay]: ...

    def finish(self) -> Iterable[bytes]: ...

    def drained(self) -> tuple[int, Json]:
        """HTTP status and body for a client that did not ask for a stream."""
        ...


class Emulator:
    """A scripted service. Subclasses bring routes.

    `requests` holds the parsed bodies in order of arrival, `headers` the headers of each (names in lower case),
    `violations` the findings of the validator.
    """

    def __init__(
        self,
        script: Script,
        *,
        api_key: str | None = None,
        models: tuple[str, ...] = (),
        validator: Validator | None = None,
    ) -> None:
        """With `api_key`, every request needs it; with `models`, any other model is refused."""
        self.script = script
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.violations: list[str] = []
        self._api_key = api_key
        self._models = models
        self._validator = validator
        self.app = Starlette(
            routes=[self.route("GET", "/v1/models", self._list_models), *self.routes()],
            exception_handlers={404: _unknown_url},
        )

    def routes(self) -> Iterable[Route]:
        raise NotImplementedError

    def serve(self, port: int = 0) -> AbstractAsyncContextManager[str]:
        """Serves it while the block runs; gives its address. Port 0: a free one."""
        return serve(self.app, port)

    def forget_everything(self) -> None:
        """The service has lost all that it kept. One that keeps nothing loses nothing."""

    def route(self, method: str, path: str, answer: Callable[[Request], Awaitable[Response]]) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                self._authorise(self.key_of(request))
                response = await answer(request)
            except Refused as error:
                response = error.response
            response.headers["x-request-id"] = f"req_{token_hex(16)}"
            return response

        return Route(path, endpoint, methods=[method])

    def key_of(self, request: Request) -> str:
        """The key of a request; "" for none. Raises: Refused for a request without what every request needs."""
        return request.headers.get("authorization", "").removeprefix("Bearer ")

    async def read(self, request: Request, schema: str) -> Json:
        """Raises: Refused when the body is not a JSON object or violates the schema."""
        try:
            body = json.loads(await request.body())
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise refused(400, _NOT_JSON)
        self.requests.append(body)
        self.headers.append(dict(request.headers))
        wrong = self._validator(schema, body) if self._validator else []
        if wrong:
            self.violations.extend(f"{schema}: {each}" for each in wrong)
            raise refused(400, f"The body violates {schema}: {wrong[0]}", code="invalid_request")
        return body

    def knows_model(self, name: str) -> bool:
        return not self._models or name in self._models

    async def open(self, conversation: Conversation) -> Response | AsyncGenerator[Step]:
        """The script's steps, or the HTTP answer that its first step is."""
        steps = steps_of(self.script, conversation)
        first = await anext(steps, None)
        match first:
            case Status(status, str() as text, headers):
                answer: Response = Response(text, status, dict(headers))
            case Status(status, body, headers):
                answer = JSONResponse(body, status, dict(headers))
            case Html(status, page):
                answer = HTMLResponse(page, status)
            case _:
                return _put_back(first, steps)
        await steps.aclose()
        return answer

    async def answer(self, reply: Reply, steps: AsyncGenerator[Step], *, stream: bool) -> Response:
        frames = play(reply, steps)
        return EventStream(frames) if stream else await _drain(reply, frames)

    def _authorise(self, key: str) -> None:
        if self._api_key is None or key == self._api_key:
            return
        if not key:
            raise refused(401, _NO_KEY)
        # OpenAI quotes both ends of a long key and the whole of a short one.
        shown = f"{key[:8]}{'*' * (len(key) - 12)}{key[-4:]}" if len(key) > 12 else key
        raise refused(401, f"Incorrect API key provided: {shown}. {_FIND_KEY}", code="invalid_api_key")

    async def _list_models(self, _: Request) -> Response:
        models = [{"id": name, "object": "model", "created": 1, "owned_by": "system"} for name in self._models]
        return JSONResponse({"object": "list", "data": models})


class EventStream(Response):
    """Frames as server-sent events, until their end, the client's leaving, or a Cut."""

    media_type = "text/event-stream"

    def __init__(self, frames: AsyncGenerator[Frame]) -> None:
        super().__init__(headers={"Cache-Control": "no-cache"})
        del self.headers["content-length"]
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with asyncio.TaskGroup() as group:
            gone = group.create_task(disconnected(receive))
            sent = group.create_task(self._send(scope, send, gone))
            await asyncio.wait((gone, sent), return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            sent.cancel()

    async def _send(self, scope: Scope, send: Send, gone: asyncio.Task[None]) -> None:
        async with aclosing(self._frames) as frames:
            async for frame in frames:
                if isinstance(frame, Cut):
                    scope["state"][DROP]()
                    await gone
                    return
                data = frame.data if isinstance(frame, Raw) else frame
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Dropped(Response):
    """No answer at all: the connection ends."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"][DROP]()
        await disconnected(receive)


async def disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _put_back(first: Step | None, steps: AsyncGenerator[Step]) -> AsyncGenerator[Step]:
    async with aclosing(steps):
        if first is not None:
            yield first
        async for step in steps:
            yield step


async def play(reply: Reply, steps: AsyncGenerator[Step], *, goes_on: bool = False) -> AsyncGenerator[Frame]:
    """`goes_on`: a Cut ends the connection only, not the answer."""
    for frame in reply.begin():
        yield frame
    async with aclosing(steps):
        async for step in steps:
            match step:
                case Raw():
                    yield step
                case Cut():
                    yield step
                    if not goes_on:
                        return
                case NoTerminal():
                    return
                case Pause() | Delay():
                    await _wait(step)
                case _:
                    for produced in reply.take(step):
                        if isinstance(produced, bytes):
                            yield produced
                        else:
                            await _wait(produced)
            if reply.ended:
                return
    for frame in reply.finish():
        yield frame


async def _wait(step: Pause | Delay) -> None:
    match step:
        case Pause(until):
            await until.wait()
        case Delay(seconds):
            await asyncio.sleep(seconds)


async def _drain(reply: Reply, frames: AsyncGenerator[Frame]) -> Response:
    raw = b""
    async with aclosing(frames):
        async for frame in frames:
            match frame:
                case Cut():
                    return Dropped()
                case Raw(data):
                    raw += data
    if raw:
        return Response(raw, media_type="application/json")
    status, body = reply.drained()
    return JSONResponse(body, status)


async def _unknown_url(request: Request, _: Exception) -> Response:
    return refused(404, f"Invalid URL ({request.method} {request.url.path})").response


_NOT_JSON = (
    "We could not parse the JSON body of your request. (HINT: This likely means you aren't using your HTTP library "
    "correctly. The OpenAI API expects a JSON payload, but what was sent was not valid JSON.)"
)
_FIND_KEY = "You can find your API key at https://platform.openai.com/account/api-keys."
_NO_KEY = (
    "You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth "
    "(i.e. Authorization: Bearer YOUR_KEY)."
)
