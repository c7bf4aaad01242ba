"""Addresses with {arguments} in them. Law: an argument fills its place only: it adds no segment, parameter, port or user."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

import msgspec

from gateway.a2a.model import Json

_PLACE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?")
_STAND_IN = "0"


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
        if any(segment in {".", ".."} for segment in path.split("/")):
            raise ArgumentRefused("an argument must not be `.` or `..`: it stands in a path")
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
