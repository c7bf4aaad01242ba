"""The requests of Direct Line 3.0. Law: a token reaches its own conversation only, and stays out of every text.

Source: MicrosoftDocs/bot-docs, Direct Line API 3.0.
"""

from dataclasses import dataclass
from secrets import token_hex
from urllib.parse import urlencode, urlsplit

import msgspec
import structlog

from adapters.copilot.activities import Activity, read_set
from adapters.copilot.direct_line.state import Token
from adapters.copilot.failures import CopilotFailures
from adapters.copilot.message import Outgoing, multipart
from adapters.copilot.settings import CopilotSettings, DirectLineSettings
from adapters.http.address import id_segment
from adapters.http.client import HttpClient
from adapters.http.json_text import decode
from adapters.http.sse import EVENT_LIMIT
from adapters.http.websocket import WebSocket
from gateway.a2a.model import Json
from gateway.foundation.clock import Clock
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError, ErrorClass

log = structlog.get_logger("adapters.copilot.direct_line.service")

GLOBAL = "https://directline.botframework.com/v3/directline"

_REFRESHED_BELOW = 25 * 60 * 1000
"""Milliseconds. A token that lives less long is refreshed before its next use, so that a conversation may rest for at least so
long; tokens live for 30 minutes."""

_MOST_PAGES = 100
"""Of one look at a conversation."""

_CREATED = 201
_GATEWAY_TIMEOUT = 504
_TAKEN = frozenset({200, 201, 202, 204, _GATEWAY_TIMEOUT})
"""Direct Line waits 15 seconds for a bot, then answers 504; the bot goes on, and what it says still comes."""

_ENVIRONMENT_PATH = "/powervirtualagents/"
_REGIONAL = "powervirtualagents/regionalchannelsettings"


@dataclass(frozen=True, slots=True)
class Joined:
    """An open conversation. `stream` is the address of its WebSocket, good for 60 seconds; None where there is none."""

    handle: str
    token: Token
    stream: str | None


class DirectLine:
    def __init__(self, settings: CopilotSettings, line: DirectLineSettings, failures: CopilotFailures) -> None:
        self._failures = failures
        self._locale = settings.locale
        self._secret = line.secret.get_secret_value() if line.secret is not None else None
        self._given = line.token.get_secret_value() if line.token is not None else None
        self._endpoint = line.token_endpoint
        self._base = line.url or (None if self._is_of_environment else GLOBAL)
        self._http = HttpClient(settings.timeouts, failures, route=settings.route)
        self._clock = Clock()

    @property
    def address(self) -> str:
        return self._base or self._endpoint or GLOBAL

    @property
    def opens_any(self) -> bool:
        """Whether the credentials open every conversation of the bot."""
        return self._secret is not None

    def to_keep(self, token: Token) -> Json:
        """The token of a conversation as its thread keeps it; None where the settings can replace it."""
        return None if self.opens_any else token.json()

    @property
    def _is_of_environment(self) -> bool:
        return self._endpoint is not None and _ENVIRONMENT_PATH in urlsplit(self._endpoint).path

    async def aclose(self) -> None:
        await self._http.aclose()

    # --- tokens and conversations

    async def new_token(self) -> Token:
        """A token for a new conversation. Raises: AdapterError."""
        if self._given is not None:
            return Token(self._given)
        if self._secret is not None:
            return self._token(await self._json("POST", f"{await self._url()}/tokens/generate", self._secret, {}))
        return self._token(await self._json("GET", self._endpoint or "", None))

    async def check(self) -> None:
        """Uses the credentials without a conversation. Raises: AdapterError."""
        if self._given is not None:
            await self._json("POST", f"{await self._url()}/tokens/refresh", self._given)
        else:
            await self.new_token()

    async def start(self, user: str) -> Joined:
        """Opens a new conversation. Raises: AdapterError."""
        token = self._secret or (await self.new_token()).token
        given = {"user": {"id": user}, "locale": self._locale}
        body = msgspec.json.encode({name: value for name, value in given.items() if value is not None})
        try:
            reply = await self._http.request("POST", f"{await self._url()}/conversations", body, headers=_bearer(token))
        except AdapterError as error:
            if error.kind.meaning.handle_lost:
                # There is no conversation yet that could have expired: the token of the settings has.
                raise self._failures.error(ErrorClass.UNAUTHORISED, error.detail) from error
            raise
        if self._given is not None and reply.status != _CREATED:
            raise self._failures.error(
                ErrorClass.NOT_SERVED, "the conversation of `token` is taken: a token is good for one context"
            )
        return self._joined(self._decoded(reply.body), None, Token(token))

    async def reach(self, handle: str, kept: Token | None) -> Joined:
        """A conversation that is open already, to be looked at. Raises: AdapterError."""
        return Joined(handle, await self._usable(handle, kept), None)

    async def join(self, joined: Joined, watermark: str | None) -> Joined:
        """Opens a conversation again, from behind the watermark on. Raises: AdapterError."""
        query = "" if watermark is None else f"?{urlencode({'watermark': watermark})}"
        handle, token = joined.handle, joined.token
        found = await self._json("GET", f"{await self._conversation(handle)}{query}", token.token, handle=handle)
        return self._joined(found, handle, token)

    async def _usable(self, handle: str, kept: Token | None) -> Token:
        if self._secret is not None:
            return Token(self._secret)
        if kept is None:
            if self._given is None:
                raise self._failures.error(ErrorClass.HANDLE_EXPIRED, "the token of the conversation is not there")
            return Token(self._given)
        if kept.expires_at is None:
            return kept
        left = kept.expires_at - self._clock.now()
        if left <= 0:
            raise self._failures.error(ErrorClass.HANDLE_EXPIRED, "the token of the conversation has expired")
        if left > _REFRESHED_BELOW:
            return kept
        try:
            return self._token(
                await self._json("POST", f"{await self._url()}/tokens/refresh", kept.token, handle=handle)
            )
        except AdapterError as error:
            # It is good for this use, and refreshed before the next.
            log.info("token.not-refreshed", detail=error.detail)
            drop_tracebacks(error)
            return kept

    # --- activities

    def socket(self, url: str) -> WebSocket:
        return self._http.websocket(url)

    async def activities(self, joined: Joined, watermark: str | None) -> tuple[list[Activity], str | None]:
        """The next activities behind the watermark, and the watermark behind these. Raises: AdapterError."""
        query = "" if watermark is None else f"?{urlencode({'watermark': watermark})}"
        url = f"{await self._conversation(joined.handle)}/activities{query}"
        headers = _bearer(joined.token.token)
        reply = await self._http.request("GET", url, handle=joined.handle, headers=headers, limit=EVENT_LIMIT)
        return read_set(self._decoded(reply.body))

    async def all_activities(self, joined: Joined, watermark: str | None) -> tuple[list[Activity], str | None]:
        """All activities behind the watermark, and the watermark behind them. Raises: AdapterError."""
        found: list[Activity] = []
        for _ in range(_MOST_PAGES):
            page, following = await self.activities(joined, watermark)
            found += page
            if not page or following in (None, watermark):
                return found, following or watermark
            watermark = following
        raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "the list of activities does not end")

    def read_frame(self, text: str) -> tuple[list[Activity], str | None]:
        """Raises: AdapterError for a frame that is no JSON."""
        return read_set(self._decoded(text.encode(errors="replace")))

    async def send(self, joined: Joined, outgoing: Outgoing, user: str, more: Json) -> str | None:
        """The id of the message, where the service names it. Raises: AdapterError."""
        activity = msgspec.json.encode(
            {"from": {"id": user}, **({"locale": self._locale} if self._locale else {}), **outgoing.fields, **more}
        )
        url, headers = await self._conversation(joined.handle), _bearer(joined.token.token)
        if outgoing.files:
            boundary = token_hex(16)
            url, body = f"{url}/upload?{urlencode({'userId': user})}", multipart(activity, outgoing.files, boundary)
            headers["Content-Type"] = f"multipart/form-data; boundary={boundary}"
        else:
            url, body = f"{url}/activities", activity
        reply = await self._http.request("POST", url, body, handle=joined.handle, headers=headers, expected=_TAKEN)
        match self._decoded(reply.body) if reply.body and reply.status != _GATEWAY_TIMEOUT else None:
            case {"id": str(name)} if name:
                return name
        return None

    async def file(self, url: str) -> tuple[bytes, str]:
        """A file that the service keeps: its bytes, and its media type. Raises: AdapterError."""
        reply = await self._http.request("GET", url)
        return reply.body, reply.headers.get("Content-Type", "").partition(";")[0].strip()

    def keeps(self, url: str) -> bool:
        """Whether the service itself has the file at this address."""
        try:
            return self._base is not None and urlsplit(url)[:2] == urlsplit(self._base)[:2]
        except ValueError:
            return False

    # --- the wire

    async def _url(self) -> str:
        """The address of the service. An environment of Copilot Studio names that of its region once."""
        if self._base is None:
            endpoint = urlsplit(self._endpoint or "")
            query = f"?{endpoint.query}" if endpoint.query else ""
            match await self._json("GET", f"{endpoint.scheme}://{endpoint.netloc}/{_REGIONAL}{query}", None):
                case {"channelUrlsById": {"directline": str(url)}} if url.startswith(("http://", "https://")):
                    self._base = f"{url.rstrip('/')}/v3/directline"
                case _:
                    raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "the environment names no Direct Line")
        return self._base

    async def _conversation(self, handle: str) -> str:
        return f"{await self._url()}/conversations/{id_segment(handle, self._failures)}"

    async def _json(
        self, method: str, url: str, token: str | None, body: Json = None, *, handle: str | None = None
    ) -> Json:
        content = None if body is None else msgspec.json.encode(body)
        headers = {} if token is None else _bearer(token)
        reply = await self._http.request(method, url, content, handle=handle, headers=headers)
        return self._decoded(reply.body)

    def _decoded(self, content: bytes) -> Json:
        try:
            return decode(content) if content else {}
        except ValueError as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"an answer that is no JSON: {error}") from error

    def _token(self, content: Json) -> Token:
        match content:
            case {"token": str(token), **rest} if token:
                match rest.get("expires_in"):
                    case int() | float() as seconds:
                        return Token(token, self._clock.now() + int(seconds * 1000))
                return Token(token)
        raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "a token was asked for, and none came")

    def _joined(self, content: Json, handle: str | None, token: Token) -> Joined:
        match content:
            case {"conversationId": str(name), **rest} if name and handle in (None, name):
                fresh = self._token(content) if rest.get("token") else token
                stream = rest.get("streamUrl")
                return Joined(name, fresh, stream if isinstance(stream, str) and stream else None)
        raise self._failures.error(ErrorClass.CONTRACT_BROKEN, "a conversation was opened without its id")


def _bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}
