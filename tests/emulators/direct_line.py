"""Direct Line 3.0 in front of a bot: tokens, conversations, watermarks, WebSockets, uploads, and the connector that a real bot
answers to.

Law: a token opens one conversation, a typing activity is nowhere but on an open socket, every activity has its own id.
Source: MicrosoftDocs/bot-docs, Direct Line API 3.0; Bot Connector API 3.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from secrets import token_hex
from typing import Any, TypeAlias

import aiohttp
from aiohttp import WSCloseCode, WSMsgType, web

from tests.emulators.scripts import Json

BASE = "/v3/directline"
TOKEN_ENDPOINT = "/powervirtualagents/botsbyschema/bot/directline/token"
_REGIONAL = "/powervirtualagents/regionalchannelsettings"
USER = "user"


class Refused(Exception):
    """The request is answered with an error of the service."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(code)
        body = {"error": {"code": code, "message": message}}
        self.response = web.json_response(body, status=status, headers=headers)


class LineConversation:
    """`log` holds what GET gives: everything but signs of typing."""

    def __init__(self, *, numbers: bool = True) -> None:
        self.id = token_hex(11)
        self.numbers = numbers
        self.user: str | None = None
        self.log: list[Json] = []
        self.listened = asyncio.Event()
        """Set when a socket is open."""
        self.left = asyncio.Event()
        """Set when a listener has left by itself."""
        self.broken = False
        self._numbers = 0
        self._sockets: list[web.WebSocketResponse] = []

    async def add(self, activity: Json) -> str:
        """An activity of the user or the bot. Returns its id."""
        name = f"{self.id}|{self._numbers:07d}" if self.numbers else token_hex(8)
        self._numbers += 1
        common = {"id": name, "channelId": "directline", "conversation": {"id": self.id}}
        whole = {**activity, **common, "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        watermark = None
        if whole.get("type") != "typing":
            self.log.append(whole)
            watermark = str(len(self.log) - 1)
        for socket in tuple(self._sockets):
            await _send(socket, [whole], watermark)
        return name

    def since(self, watermark: str | None) -> tuple[list[Json], str | None]:
        start = int(watermark) + 1 if watermark else 0
        return self.log[start:], str(len(self.log) - 1) if self.log else None

    async def listen(self, socket: web.WebSocketResponse, start: int) -> None:
        """Serves a socket until either side leaves, from this place of the log on. An earlier one gives way."""
        await self.disconnect(b"collision")
        activities, until = self.log[start:], str(len(self.log) - 1)
        await socket.send_str("")  # a sign of life
        if activities:
            await _send(socket, activities, until)
        self._sockets.append(socket)
        self.listened.set()
        async for message in socket:
            if message.type is WSMsgType.ERROR:
                break
        if socket in self._sockets:
            self._sockets.remove(socket)
            self.left.set()

    async def disconnect(self, reason: bytes = b"", code: int = WSCloseCode.GOING_AWAY) -> None:
        """The service closes the socket."""
        sockets, self._sockets = self._sockets, []
        for socket in sockets:
            await socket.close(code=code, message=reason)

    async def send_raw(self, frame: str) -> None:
        """Any frame, as it is."""
        for socket in tuple(self._sockets):
            await socket.send_str(frame)

    async def break_down(self) -> None:
        """The service closes the socket, and fails for this conversation from now on."""
        self.broken = True
        await self.disconnect()

    def cut(self) -> None:
        """The network loses the socket."""
        sockets, self._sockets = self._sockets, []
        for socket in sockets:
            transport = socket._req.transport if socket._req is not None else None
            if transport is not None:
                transport.abort()


Answering: TypeAlias = Callable[[str], Awaitable[web.Response | None]]
"""Answers the message with this id into its conversation. Gives the response of the service, unless it is the ordinary one."""

Bot: TypeAlias = "Callable[[DirectLine, LineConversation, Json], Awaitable[web.Response | Answering]]"
"""Gets a message: the refusal of the service, for which it does not exist, or the answer to it."""


class DirectLine:
    """`requests` are the activities that clients have sent, `calls` all requests as `METHOD path`, `headers` those of each.
    `bot` may be replaced.

    `sockets`: whether WebSockets can be had. `refusals`: errors for the next requests of a kind, by `METHOD path` without ids.
    """

    def __init__(self, bot: Bot, *, secret: str = "line-secret-0123456789", lives: int = 1800) -> None:
        self.bot = bot
        self.secret = secret
        self.lives = lives
        self.sockets = True
        self.streams = True
        """Whether a conversation names the address of a socket."""
        self.answers_at_once = False
        """Whether a message is taken before the bot has worked on it, as Copilot Studio does."""
        self.obeys_watermarks = True
        self.numbers_activities = True
        """Whether the ids of activities tell their order."""
        self.broken_lists = 0
        """So many lists of activities to come are none."""
        self.requests: list[Json] = []
        self.headers: list[dict[str, str]] = []
        self.uploads: list[tuple[str, str, bytes]] = []
        self.calls: list[str] = []
        self.conversations: dict[str, LineConversation] = {}
        self.files: dict[str, tuple[bytes, str]] = {}
        self.refusals: dict[str, list[web.Response]] = {}
        self.origin = ""
        self._tokens: dict[str, tuple[str, float]] = {}
        """By token: its conversation, and the time at which it expires."""
        self._late: dict[str, web.Response] = {}
        self._working: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def serve(self, port: int = 0) -> AsyncGenerator[str]:
        """Serves it while the block runs; gives its address, without a path. Port 0: a free one."""
        app = web.Application(middlewares=[self._refusing])
        app.add_routes(self._routes())
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        [(_, port)] = [address[:2] for address in runner.addresses]
        self.origin = f"http://127.0.0.1:{port}"
        try:
            yield self.origin
        finally:
            for task in self._working:
                task.cancel()
            for conversation in self.conversations.values():
                await conversation.disconnect()
            await runner.cleanup()

    @property
    def url(self) -> str:
        return f"{self.origin}{BASE}"

    @property
    def only(self) -> LineConversation:
        """The latest conversation."""
        return list(self.conversations.values())[-1]

    def new_token(self) -> str:
        """A token for a conversation that has not begun."""
        token: str = self._token(token_hex(11))["token"]
        return token

    def forget_everything(self) -> None:
        self.conversations.clear()

    def expire_tokens(self) -> None:
        self._tokens = {token: (name, 0.0) for token, (name, _) in self._tokens.items()}

    def refuse(self, what: str, status: int, code: str = "BadArgument", **headers: str) -> None:
        """The next request of this kind fails so."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.refusals.setdefault(what, []).append(Refused(status, code, f"No. {self.secret}", given).response)

    def refuse_after(self, what: str, status: int, code: str) -> None:
        """The next request of this kind is worked on, and answered so."""
        self._late[what] = Refused(status, code, "Too late.").response

    def _routes(self) -> Iterable[web.RouteDef]:
        one = f"{BASE}/conversations/{{id}}"
        return (
            web.get(TOKEN_ENDPOINT, self._endpoint_token),
            web.get(_REGIONAL, self._region),
            web.post(f"{BASE}/tokens/generate", self._generate),
            web.post(f"{BASE}/tokens/refresh", self._refresh),
            web.post(f"{BASE}/conversations", self._start),
            web.get(one, self._join),
            web.get(f"{one}/stream", self._stream),
            web.get(f"{one}/activities", self._list),
            web.post(f"{one}/activities", self._post),
            web.post(f"{one}/upload", self._upload),
            web.get("/attachments/{name}", self._file),
            web.post("/v3/conversations/{id}/activities", self._connector),
            web.post("/v3/conversations/{id}/activities/{reply}", self._connector),
        )

    @web.middleware
    async def _refusing(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        what = f"{request.method} {_without_ids(request.path)}"
        self.calls.append(what)
        self.headers.append(dict(request.headers))
        if self.refusals.get(what):
            return self.refusals[what].pop(0)
        try:
            response = await handler(request)
            return self._late.pop(what, response)
        except Refused as refused:
            return refused.response

    # --- tokens

    async def _endpoint_token(self, _: web.Request) -> web.Response:
        return web.json_response(self._token(token_hex(11)))

    async def _region(self, _: web.Request) -> web.Response:
        return web.json_response({"channelUrlsById": {"directline": f"{self.origin}/"}})

    async def _generate(self, request: web.Request) -> web.Response:
        if _bearer(request) != self.secret:
            raise Refused(403, "BadArgument", f"The secret {_bearer(request)} is invalid")
        return web.json_response(self._token(token_hex(11)))

    async def _refresh(self, request: web.Request) -> web.Response:
        return web.json_response(self._token(self._conversation_of(_bearer(request))))

    def _token(self, name: str) -> Json:
        token = f"eyJhbGciOiJSUzI1NiJ9.{token_hex(24)}.{token_hex(16)}"
        self._tokens[token] = name, time.time() + self.lives
        return {"conversationId": name, "token": token, "expires_in": self.lives}

    def _conversation_of(self, token: str) -> str:
        if token not in self._tokens:
            raise Refused(403, "BadArgument", f"The token {token} is invalid")
        name, until = self._tokens[token]
        if until <= time.time():
            raise Refused(403, "TokenExpired", "Token has expired")
        return name

    def _open(self, request: web.Request) -> LineConversation:
        name, token = request.match_info["id"], _bearer(request)
        if not token:
            raise Refused(401, "Unauthorized", "Missing token or secret")
        if token != self.secret and self._conversation_of(token) != name:
            raise Refused(403, "BadArgument", "The token is for another conversation")
        if name not in self.conversations:
            raise Refused(404, "BadArgument", "Conversation not found")
        if self.conversations[name].broken:
            raise Refused(500, "ServiceError", "The service has failed")
        return self.conversations[name]

    # --- conversations

    async def _start(self, request: web.Request) -> web.Response:
        token, body = _bearer(request), await request.json() if request.can_read_body else {}
        given = token_hex(11) if token == self.secret else self._conversation_of(token)
        known = given in self.conversations
        conversation = self.conversations.setdefault(given, LineConversation(numbers=self.numbers_activities))
        conversation.id = given
        conversation.user = (body.get("user") or {}).get("id")
        return web.json_response(self._opened(conversation, 0), status=200 if known else 201)

    async def _join(self, request: web.Request) -> web.Response:
        conversation, watermark = self._open(request), request.query.get("watermark")
        # Without a watermark only what follows this request is sent.
        start = int(watermark) + 1 if watermark else len(conversation.log)
        start = start if self.obeys_watermarks else 0
        return web.json_response(self._opened(conversation, start))

    def _opened(self, conversation: LineConversation, start: int) -> Json:
        opened = self._token(conversation.id)
        if not self.streams:
            return opened
        address = f"{self.origin.replace('http', 'ws', 1)}{BASE}/conversations/{conversation.id}/stream"
        return opened | {"streamUrl": f"{address}?t={opened['token']}&start={start}"}

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        name = self._conversation_of(request.query["t"])
        if not self.sockets:
            raise Refused(400, "BadArgument", "No WebSocket here")
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await self.conversations[name].listen(socket, int(request.query["start"]))
        return socket

    async def _list(self, request: web.Request) -> web.Response:
        given = request.query.get("watermark") if self.obeys_watermarks else None
        activities, watermark = self._open(request).since(given)
        if self.broken_lists:
            self.broken_lists -= 1
            return web.Response(text="{no")
        return web.json_response({"activities": activities, "watermark": watermark})

    # --- messages

    async def _post(self, request: web.Request) -> web.Response:
        return await self._take(self._open(request), await request.json())

    async def _upload(self, request: web.Request) -> web.Response:
        conversation, activity = self._open(request), {"type": "message", "from": {"id": request.query["userId"]}}
        attachments = []
        async for part in await request.multipart():
            assert isinstance(part, aiohttp.BodyPartReader)
            kind, content = part.headers.get("Content-Type", ""), bytes(await part.read())
            if kind == "application/vnd.microsoft.activity":
                activity |= json.loads(content)
                continue
            name = part.filename or "file"
            self.uploads.append((name, kind, content))
            self.files[name] = content, kind
            attachments.append({"contentType": kind, "name": name, "contentUrl": self.link(name)})
        given = activity.get("attachments") or []
        return await self._take(conversation, activity | {"attachments": [*given, *attachments]})

    def link(self, name: str) -> str:
        """The address of a file that the service keeps."""
        return f"{self.origin}/attachments/{name}?t={token_hex(8)}"

    async def _file(self, request: web.Request) -> web.Response:
        content, kind = self.files[request.match_info["name"]]
        return web.Response(body=content, content_type=kind)

    async def _take(self, conversation: LineConversation, activity: Json) -> web.Response:
        taken = await self.bot(self, conversation, activity)
        if isinstance(taken, web.Response):
            return taken
        self.requests.append(activity)
        name = await conversation.add({**activity, "from": {**activity["from"], "role": USER}})
        work = asyncio.get_running_loop().create_task(_answered(taken, name))
        self._working.add(work)
        refused = None if self.answers_at_once else await asyncio.shield(work)
        return refused or web.json_response({"id": name})

    async def _connector(self, request: web.Request) -> web.Response:
        """An activity that a real bot sends."""
        conversation = self.conversations[request.match_info["id"]]
        activity = await request.json()
        reply = request.match_info.get("reply")
        return web.json_response({"id": await conversation.add({"replyToId": reply, **activity})})


async def _answered(answering: Answering, name: str) -> web.Response | None:
    return await answering(name)


async def _send(socket: web.WebSocketResponse, activities: list[Json], watermark: str | None) -> None:
    with suppress(ConnectionError):
        await socket.send_str(json.dumps({"activities": activities, "watermark": watermark}))


def _bearer(request: web.Request) -> str:
    return request.headers.get("Authorization", "").removeprefix("Bearer ")


def _without_ids(path: str) -> str:
    parts = path.removeprefix(BASE).split("/")
    return "/".join(
        "{id}" if before == "conversations" else part for before, part in zip(["", *parts], parts, strict=False)
    )
