"""Addresses with {arguments} in them. Law: an argument fills its place and never leaves it: it adds no segment, parameter,
port or user.

A source of tools of `type: http`: one request of an HTTP API. Law: the host is the operator's; where a model has a say in
it, only public addresses are contacted. No proxy, cookie or redirect.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Self
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from pydantic import Field, JsonValue, PrivateAttr, field_validator, model_validator
from yarl import URL

from adapters.tools.headers import SecretHeaders, plain
from gateway.a2a.model import Json
from gateway.config.settings import Settings
from gateway.core.tools.arguments import SchemaRefused, checker
from gateway.foundation.addresses import AddressRefused, checked
from gateway.foundation.aiohttp_resolver import CheckedResolver
from gateway.foundation.keep_alive import CLIENT_KEEP_ALIVE
from gateway.foundation.resolver import Resolver
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.tools import SourceTool, ToolError, ToolFactory, ToolOutput, ToolRun

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_STAND_IN = "0"


class ArgumentRefused(Exception):
    """An argument that cannot stand where it should; the text is for the model."""


@dataclass(frozen=True, slots=True)
class UrlTemplate:
    """`scheme://host/path?query`, with places in the host, the path and the values of the query."""

    scheme: str
    host: str
    path: str
    query: tuple[tuple[str, str], ...]

    @property
    def places(self) -> frozenset[str]:
        return self.needed | frozenset(name for _, value in self.query for name in _PLACE.findall(value))

    @property
    def needed(self) -> frozenset[str]:
        """Those without which there is no address. A parameter of the query is left out instead."""
        return frozenset(_PLACE.findall(self.host + self.path))

    @property
    def is_host_given(self) -> bool:
        """Whether a model decides on the host."""
        return _PLACE.search(self.host) is not None

    def filled(self, arguments: Mapping[str, Json]) -> tuple[str, str]:
        """The host without port, and the whole address. Raises: ArgumentRefused."""
        host = _PLACE.sub(lambda found: _in_host(found[1], arguments), self.host)
        path = _PLACE.sub(lambda found: _quoted(arguments[found[1]]), self.path)
        if self.is_host_given and _HOST.fullmatch(host.rpartition(":")[0] or host) is None:
            raise ArgumentRefused("the arguments make no host")
        if any(segment in {".", ".."} for segment in path.split("/")):
            raise ArgumentRefused("an argument must not be `.` or `..`: it stands in a path")
        pairs = [
            f"{name}={_PLACE.sub(lambda found: _quoted(arguments[found[1]]), value)}"
            for name, value in self.query
            if all(arguments.get(place) is not None for place in _PLACE.findall(value))
        ]
        url = f"{self.scheme}://{host}{path}" + (f"?{'&'.join(pairs)}" if pairs else "")
        return urlsplit(url).hostname or "", url


def template(url: str) -> UrlTemplate:
    """Raises: ValueError."""
    rough = _PLACE.sub(_STAND_IN, url)
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
    return UrlTemplate(scheme, host, slash + path or "/", pairs)


def with_query(url: str, arguments: Mapping[str, Json]) -> str:
    """The same address with these as more parameters."""
    pairs = [f"{quote(name, safe='')}={_quoted(value)}" for name, value in arguments.items() if value is not None]
    return f"{url}{'&' if '?' in url else '?'}{'&'.join(pairs)}" if pairs else url


def _in_host(name: str, arguments: Mapping[str, Json]) -> str:
    text = _text(arguments[name])
    if _HOST.fullmatch(text) is None:
        raise ArgumentRefused(f"{name!r} can only have letters, digits, dots and hyphens: it stands in a host")
    return text


def _quoted(value: Json) -> str:
    return quote(_text(value), safe="", errors="replace")


def _text(value: Json) -> str:
    match value:
        case str():
            return value
        case _:
            return msgspec.json.encode(value).decode()


_ANSWER_LIMIT = 4 * 1024 * 1024
_CONNECT_SECONDS = 10
_REFUSES_CREDENTIALS = (401, 403, 407)
_WITHOUT_BODY = ("GET", "DELETE")


class HttpToolSettings(Settings):
    """A tool of type `http`: one request of an HTTP API."""

    name: str | None = Field(
        None, pattern="^[a-zA-Z0-9_-]{1,64}$", description="What models call it; its name in this file when not given."
    )
    description: str = Field(min_length=1, description="What models are told that it does.")
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = Field("GET", description="Method of the request.")
    url: str = Field(description="Address, with {arguments} in its host, its path and the values of its query.")
    headers: SecretHeaders = Field({}, description="Headers of every request.")
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
        template(url)
        return url

    @model_validator(mode="after")
    def _arguments_have_places(self) -> Self:
        if self.parameters is None:
            return self
        try:
            checker(self.parameters)
        except SchemaRefused as error:
            raise ValueError(f"parameters: {error}") from error
        required, properties = self.parameters.get("required", []), self.parameters.get("properties", {})
        for place in sorted(template(self.url).needed):
            if not isinstance(required, list) or place not in required:
                raise ValueError(f"url has {{{place}}}, so {place!r} must be among the `required` of parameters")
        for place in sorted(template(self.url).places):
            if not isinstance(properties, dict) or place not in properties:
                raise ValueError(f"url has {{{place}}}, so {place!r} must be among the `properties` of parameters")
        return self

    @property
    def called(self) -> str:
        return self.name or self._entry

    @property
    def arguments(self) -> dict[str, Json]:
        """The JSON Schema of them."""
        if self.parameters is not None:
            return dict(self.parameters)
        url = template(self.url)
        return {
            "type": "object",
            "properties": {place: {"type": "string"} for place in sorted(url.places)},
            "required": sorted(url.needed),
            "additionalProperties": False,
        }


class HttpTool:
    """Keeps its connections open for the next call."""

    def __init__(self, settings: HttpToolSettings) -> None:
        self._method = settings.method
        self._url: UrlTemplate = template(settings.url)
        self._headers = plain(settings.headers)
        idempotent = settings.method == "GET" if settings.idempotent is None else settings.idempotent
        self._tools = (SourceTool(settings.called, settings.description, settings.arguments, idempotent),)
        self._resolver = Resolver(checked)
        self._session: aiohttp.ClientSession | None = None

    async def tools(self) -> tuple[SourceTool, ...]:
        return self._tools

    async def run(self, run: ToolRun) -> ToolOutput:
        try:
            host, url = self._url.filled(run.arguments)
        except ArgumentRefused as error:
            return ToolOutput(str(error), error=True)
        rest = {name: value for name, value in run.arguments.items() if name not in self._url.places}
        body = None
        if self._method in _WITHOUT_BODY:
            url = with_query(url, rest)
        elif rest:
            body = msgspec.json.encode(rest)
        try:
            return await self._ask(host, url, body, run.key)
        except AddressRefused as error:
            return ToolOutput(str(error), error=True)
        except (TimeoutError, OSError, aiohttp.ClientError) as error:
            # Its request holds the headers, so it is not chained.
            failed = ToolError(f"{self._method} at {host}: {type(error).__name__}: {error}")
            drop_tracebacks(error)
        raise failed

    async def _ask(self, host: str, url: str, body: bytes | None, key: str) -> ToolOutput:
        if self._url.is_host_given and _is_address(host):
            checked(host, [host])
        headers = {"Accept": "application/json, text/*;q=0.9, */*;q=0.1", "Accept-Encoding": "identity"}
        if self._method != "GET":
            headers["Idempotency-Key"] = key
        if body is not None:
            headers["Content-Type"] = "application/json"
        address = URL(url, encoded=True)
        session = self._opened()
        async with session.request(
            self._method, address, data=body, headers=headers | self._headers, allow_redirects=False
        ) as response:
            if response.status in _REFUSES_CREDENTIALS or 300 <= response.status < 400:
                raise ToolError(f"{self._method} at {host}: HTTP {response.status}")
            told = _read(await _beginning(response), response.content_type, response.charset)
            if 200 <= response.status < 300:
                return ToolOutput(told)
            return ToolOutput({"status": response.status, "answer": told}, error=True)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            resolver = CheckedResolver(self._resolver) if self._url.is_host_given else None
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, resolver=resolver, keepalive_timeout=CLIENT_KEEP_ALIVE),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                headers={"User-Agent": "a2a-gateway"},
                # How long it may take in all is for the caller to say.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
                trust_env=False,
            )
        return self._session

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
        self._resolver.close()


def _is_address(host: str) -> bool:
    return host.replace(".", "").isdigit() or ":" in host


async def _beginning(response: aiohttp.ClientResponse) -> bytes:
    told = bytearray()
    while len(told) <= _ANSWER_LIMIT and (piece := await response.content.readany()):
        told += piece
    return bytes(told[:_ANSWER_LIMIT])


def _read(told: bytes, content_type: str, charset: str | None) -> Json:
    """JSON as such, text as text; for what is neither, how much it is."""
    if not told:
        return None
    if content_type.endswith(("/json", "+json")):
        with suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            found: Json = msgspec.json.decode(told)
            return found
    if content_type.startswith("text/") or content_type.endswith(("json", "xml", "yaml", "/x-www-form-urlencoded")):
        try:
            return told.decode(charset or "utf-8", errors="replace")
        except LookupError:
            return told.decode(errors="replace")
    return {"mediaType": content_type, "bytes": len(told)}


factory = ToolFactory(settings=HttpToolSettings, build=HttpTool)
