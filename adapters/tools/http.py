"""A source of tools of `type: http`: one request of an HTTP API, at an address with {arguments} in it.

Law: the operator chooses the host; where a model has a say in it, only public addresses are contacted. No proxy, cookie or
redirect. An argument fills its place only: it adds no segment, parameter, port or user.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import quote, unquote, urlsplit

import aiohttp
import msgspec
from pydantic import Field, JsonValue, PrivateAttr, field_validator, model_validator
from yarl import URL

from adapters.http.address import NO_SEGMENTS
from gateway.a2a import nesting
from gateway.a2a.model import Json
from gateway.config.connections import ConnectionSettings
from gateway.core.tools.arguments import SchemaRefused, checker
from gateway.foundation import trace
from gateway.foundation.addresses import AddressRefused, checked
from gateway.foundation.aiohttp_resolver import CheckedResolver
from gateway.foundation.keep_alive import CLIENT_KEEP_ALIVE
from gateway.foundation.resolver import Resolver
from gateway.foundation.tls import ADDRESS_OF_TLS, client_context, tls_problem
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.tools import SourceTool, ToolError, ToolFactory, ToolOutput, ToolRun

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_ANSWER_LIMIT = 4 * 1024 * 1024
_CONNECT_SECONDS = 10
_REFUSES_CREDENTIALS = (401, 403, 407)
_WITHOUT_BODY = ("GET", "DELETE")
_NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)


class ConnectionEnded(aiohttp.ClientConnectionError):
    """The connection ended before the answer began: the server may have carried out the request."""


async def _send_once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keeps aiohttp from a repeat of its own, which it makes of PUT and DELETE too."""
    try:
        return await handler(request)
    except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError):
        raise
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
        raise ConnectionEnded(f"{type(error).__name__}: {error}") from error


class ArgumentRefused(Exception):
    """An argument that cannot stand in its place; the text is for the model."""


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """`scheme://host/path?query`, with places in the host, the path and the values of the query."""

    scheme: str
    host: str
    path: str
    query: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, url: str) -> "UrlTemplate":
        """Raises: ValueError."""
        rough = _PLACE.sub("0", url)
        wrong = "must be an address that starts with http:// or https:// and a host, with {arguments} in it"
        try:
            parts = urlsplit(rough)
            usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 0) >= 0
        except ValueError as error:
            raise ValueError(wrong) from error
        if not usable or re.search(r"[\s\\{}]", rough):
            raise ValueError(wrong)
        if "@" in parts.netloc or "#" in rough:
            raise ValueError("must have no credentials and no fragment: put credentials in `headers`")
        scheme, _, rest = url.partition("://")
        target, _, query = rest.partition("?")
        host, slash, path = target.partition("/")
        if _PLACE.search(host.rpartition(":")[2]) and ":" in host:
            raise ValueError("must have no {argument} for the port")
        pairs = tuple((name, value) for name, _, value in (pair.partition("=") for pair in query.split("&") if pair))
        if any(_PLACE.search(name) for name, _ in pairs):
            raise ValueError("must have no {argument} for the name of a parameter: write name={argument}")
        return cls(scheme, host, slash + path or "/", pairs)

    @property
    def places(self) -> frozenset[str]:
        return self.required | frozenset(name for _, value in self.query for name in _PLACE.findall(value))

    @property
    def required(self) -> frozenset[str]:
        """The places of the host and the path. A parameter of the query may be left out."""
        return frozenset(_PLACE.findall(self.host + self.path))

    @property
    def has_variable_host(self) -> bool:
        """Whether a model decides on the host."""
        return _PLACE.search(self.host) is not None

    def fill(self, arguments: Mapping[str, Json]) -> tuple[str, str]:
        """The host without port, and the whole address. Raises: ArgumentRefused."""
        host = _PLACE.sub(lambda found: _host_part(found[1], arguments), self.host)
        path = _PLACE.sub(lambda found: _quoted(arguments[found[1]]), self.path)
        if self.has_variable_host and _HOST.fullmatch(host.rpartition(":")[0] or host) is None:
            raise ArgumentRefused("the arguments make no host")
        for template, segment in zip(self.path.split("/"), path.split("/"), strict=True):
            # A server may decode what the operator has written percent-encoded.
            if _PLACE.search(template) and unquote(segment) in NO_SEGMENTS:
                raise ArgumentRefused("an argument must not be empty, `.` or `..`: it stands in a path")
        pairs = [
            f"{name}={_PLACE.sub(lambda found: _quoted(arguments[found[1]]), value)}"
            for name, value in self.query
            if all(arguments.get(place) is not None for place in _PLACE.findall(value))
        ]
        url = f"{self.scheme}://{host}{path}" + (f"?{'&'.join(pairs)}" if pairs else "")
        return urlsplit(url).hostname or "", url


def with_query(url: str, arguments: Mapping[str, Json]) -> str:
    """`url` with `arguments` as further parameters."""
    pairs = [f"{quote(name, safe='')}={_quoted(value)}" for name, value in arguments.items() if value is not None]
    return f"{url}{'&' if '?' in url else '?'}{'&'.join(pairs)}" if pairs else url


def _host_part(name: str, arguments: Mapping[str, Json]) -> str:
    text = _text(arguments[name])
    if _HOST.fullmatch(text) is None:
        raise ArgumentRefused(f"{name!r} can only have letters, digits, dots and hyphens: it stands in a host")
    return text


def _quoted(value: Json) -> str:
    return quote(_text(value), safe="", errors="replace")


def _text(value: Json) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


class HttpToolSettings(ConnectionSettings):
    """A tool of type `http`: one request of an HTTP API."""

    name: str | None = Field(
        None, pattern="^[a-zA-Z0-9_-]{1,64}$", description="What models call it; its name in this file when not given."
    )
    description: str = Field(min_length=1, description="What models are told that it does.")
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = Field("GET", description="Method of the request.")
    url: str = Field(description="Address, with {arguments} in its host, its path and the values of its query.")
    parameters: dict[str, JsonValue] | None = Field(
        None,
        description="JSON Schema of the arguments; the {arguments} of `url`, as text, when not given. What `url` does not "
        "take becomes the JSON body, of GET and DELETE more of the query.",
    )
    idempotent: bool | None = Field(
        None, description="Doing it twice does what once does, so it may be done again after a restart; so is only GET."
    )
    _entry: str = PrivateAttr(default="request")

    def model_post_init(self, context: Any) -> None:
        if isinstance(context, dict) and "name" in context:
            self._entry = context["name"]

    @field_validator("url")
    @classmethod
    def _is_template(cls, url: str) -> str:
        UrlTemplate.parse(url)
        return url

    @model_validator(mode="after")
    def _proxy_does_not_choose_hosts(self) -> Self:
        if self.proxy is not None and UrlTemplate.parse(self.url).has_variable_host:
            raise ValueError(
                "`proxy` cannot be used with an {argument} in the host of `url`: the proxy would look it up"
            )
        return self

    @model_validator(mode="after")
    def _arguments_have_places(self) -> Self:
        if self.parameters is None:
            return self
        try:
            unchecked = checker(self.parameters).unchecked
        except SchemaRefused as error:
            raise ValueError(f"parameters: {error}") from error
        if unchecked:
            why = "look-around, back-references and more than 1,000 repetitions are not supported"
            raise ValueError(f"parameters: the pattern {unchecked[0]!r} cannot be checked: {why}")
        url = UrlTemplate.parse(self.url)
        for places, key, kind in ((url.required, "required", list), (url.places, "properties", dict)):
            named = self.parameters.get(key)
            for place in sorted(places):
                if not isinstance(named, kind) or place not in named:
                    raise ValueError(f"url has {{{place}}}, so {place!r} must be among the `{key}` of parameters")
        return self

    @property
    def tool_name(self) -> str:
        return self.name or self._entry

    @property
    def arguments(self) -> dict[str, Json]:
        """The JSON Schema of the arguments."""
        if self.parameters is not None:
            return dict(self.parameters)
        url = UrlTemplate.parse(self.url)
        return {
            "type": "object",
            "properties": {place: {"type": "string"} for place in sorted(url.places)},
            "required": sorted(url.required),
            "additionalProperties": False,
        }


class HttpTool:
    """Keeps its connections open for the next run."""

    def __init__(self, settings: HttpToolSettings) -> None:
        self._method = settings.method
        self._url = UrlTemplate.parse(settings.url)
        self._route = settings.route
        self._idempotent = settings.method == "GET" if settings.idempotent is None else settings.idempotent
        self._tools = (SourceTool(settings.tool_name, settings.description, settings.arguments, self._idempotent),)
        self._resolver = Resolver(checked)
        self._session: aiohttp.ClientSession | None = None
        self._answered = False
        """Whether any request has had an answer."""

    async def tools(self) -> tuple[SourceTool, ...]:
        return self._tools

    async def run(self, run: ToolRun) -> ToolOutput:
        try:
            host, url = self._url.fill(run.arguments)
        except ArgumentRefused as error:
            return ToolOutput(str(error), error=True)
        rest = {name: value for name, value in run.arguments.items() if name not in self._url.places}
        body = None
        if self._method in _WITHOUT_BODY:
            url = with_query(url, rest)
        elif rest:
            body = msgspec.json.encode(rest)
        try:
            return await self._answer(host, url, body, run.key)
        except AddressRefused as error:
            return ToolOutput(str(error), error=True)
        except aiohttp.ClientHttpProxyError as error:
            failed = ToolError(f"{self._method} at {host}: the proxy answers HTTP {error.status}")
            drop_tracebacks(error)
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            # The request of this error holds the headers, so the error is not chained.
            reason = tls_problem(error, "`ca`") or f"{type(error).__name__}: {error}"
            silent = isinstance(error.__cause__, aiohttp.ServerDisconnectedError) and not self._answered
            if silent and url.startswith("http:"):
                reason = f"{reason}; {ADDRESS_OF_TLS}"  # most servers of TLS say nothing to a request in plain text
            failed = ToolError(f"{self._method} at {host}: {reason}", may_have_run=not isinstance(error, _NOT_SENT))
            drop_tracebacks(error)
        raise failed

    async def _answer(self, host: str, url: str, body: bytes | None, key: str) -> ToolOutput:
        """The output of the request, which is made once more where its connection ended and a repeat does no harm."""
        try:
            return await self._request(host, url, body, key)
        except ConnectionEnded:
            if not self._idempotent:
                raise
        return await self._request(host, url, body, key)

    async def _request(self, host: str, url: str, body: bytes | None, key: str) -> ToolOutput:
        if self._url.has_variable_host and (host.replace(".", "").isdigit() or ":" in host):
            checked(host, [host])  # an address, which no resolver checks
        headers = {
            "Accept": "application/json, text/*;q=0.9, */*;q=0.1",
            "Accept-Encoding": "identity",
            **trace.current_headers(),
        }
        if self._method != "GET":
            headers["Idempotency-Key"] = key
        if body is not None:
            headers["Content-Type"] = "application/json"
        session, address, proxy = self._open_session(), URL(url, encoded=True), self._route.proxy
        own = {**self._route.headers, **({} if proxy is None else proxy.headers_of(url))}
        async with session.request(
            self._method,
            address,
            data=body,
            headers=headers | own,
            allow_redirects=False,
            **({} if proxy is None else proxy.arguments(url)),
        ) as response:
            self._answered = True
            if response.status in _REFUSES_CREDENTIALS or 300 <= response.status < 400:
                refused = response.status in _REFUSES_CREDENTIALS
                raise ToolError(f"{self._method} at {host}: HTTP {response.status}", may_have_run=not refused)
            answer = _decode(await _beginning(response), response.content_type, response.charset)
            if 200 <= response.status < 300:
                return ToolOutput(answer)
            return ToolOutput({"status": response.status, "answer": answer}, error=True)

    def _open_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            resolver = CheckedResolver(self._resolver) if self._url.has_variable_host else None
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0,
                    resolver=resolver,
                    keepalive_timeout=CLIENT_KEEP_ALIVE,
                    ssl=True if self._route.ca is None else client_context(self._route.ca),
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                middlewares=(_send_once,),
                headers={"User-Agent": "a2a-gateway"},
                # The caller limits the whole time.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                trust_env=False,
            )
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
        self._resolver.close()


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    while len(body) <= _ANSWER_LIMIT and (chunk := await response.content.readany()):
        body += chunk
    return bytes(body[:_ANSWER_LIMIT])


def _decode(body: bytes, content_type: str, charset: str | None) -> Json:
    """A JSON value or a text; of any other body, its type and size."""
    if not body:
        return None
    if content_type.endswith(("/json", "+json")):
        with suppress(msgspec.DecodeError, UnicodeDecodeError):
            return nesting.decode(body.decode())
    if content_type.startswith("text/") or content_type.endswith(("json", "xml", "yaml", "/x-www-form-urlencoded")):
        try:
            return body.decode(charset or "utf-8", errors="replace")
        except LookupError:
            return body.decode(errors="replace")
    return {"mediaType": content_type, "bytes": len(body)}


factory = ToolFactory(settings=HttpToolSettings, build=HttpTool)
