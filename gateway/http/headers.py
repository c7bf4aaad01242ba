"""The headers and query parameters of a request that A2A defines. Law: validated only when the operation is known."""

import re
from functools import lru_cache
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Scope

from gateway.a2a.errors import UnsupportedMediaType, echo, invalid
from gateway.a2a.limits import Limits
from gateway.http.reply import A2A_JSON, JSON, Headers

_VERSION = b"a2a-version"
_EXTENSIONS = (b"a2a-extensions", b"x-a2a-extensions")
"""The names of A2A 1.0 and 0.3. Clients that speak both send both."""

_NAMES = frozenset({_VERSION, *_EXTENSIONS, b"idempotency-key", b"last-event-id"})
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_NUMBER = re.compile(r"[0-9]{1,18}")
_URI_LENGTH = 512
_PARAMETERS = 100
_JSON_TYPES = frozenset({JSON, A2A_JSON})
_REFUSED = re.compile(rb"(^|;)\s*q\s*=\s*0(\.0*)?\s*($|;)")
HTML = b"text/html"


class ServiceParameters(msgspec.Struct, frozen=True):
    """Source: A2A 1.0, sections 3.2.6 and 3.6.1."""

    _raw: dict[bytes, list[str]]

    @classmethod
    def of(cls, headers: Headers, query_string: bytes) -> "ServiceParameters":
        raw: dict[bytes, list[str]] = {}
        for name, value in headers:
            if name in _NAMES:
                # RFC 9110, section 5.5: a value excludes the spaces and tabs around it.
                raw.setdefault(name, []).append(value.strip(b" \t").decode("latin-1"))
        if _VERSION not in raw and (versions := _versions_in_query(query_string)):
            raw[_VERSION] = versions
        return cls(raw)

    def version(self) -> str | None:
        """None where the request names none. The header wins over the request parameter. Raises: InvalidParams."""
        return self._single(_VERSION, "A2A-Version")

    def extensions(self, limits: Limits) -> tuple[str, ...]:
        """The URIs in A2A-Extensions and X-A2A-Extensions, without repeats. Raises: InvalidParams."""
        values = [value for name in _EXTENSIONS for value in self._raw.get(name, ())]
        if not values:
            return ()
        listed = (uri.strip() for value in values for uri in value.split(","))
        uris = tuple(dict.fromkeys(uri for uri in listed if uri))
        if len(uris) > limits.extensions:
            raise invalid("A2A-Extensions", f"must not name more than {limits.extensions} extensions")
        for uri in uris:
            if len(uri) > _URI_LENGTH or not _VISIBLE.fullmatch(uri):
                raise invalid("A2A-Extensions", f"must hold URIs of up to {_URI_LENGTH} characters, not {echo(uri)}")
        return uris

    def idempotency_key(self, limits: Limits) -> str | None:
        """Raises: InvalidParams."""
        key = self._single(b"idempotency-key", "Idempotency-Key")
        if key is not None and (len(key) > limits.id_length or not _VISIBLE.fullmatch(key)):
            raise invalid("Idempotency-Key", f"must be 1 to {limits.id_length} visible ASCII characters")
        return key

    def last_event_id(self) -> int | None:
        """Raises: InvalidParams."""
        number = self._single(b"last-event-id", "Last-Event-ID")
        # A browser that has not seen an id yet sends an empty one.
        if not number:
            return None
        if not _NUMBER.fullmatch(number):
            raise invalid("Last-Event-ID", f"must be the number of an event, not {echo(number)}")
        return int(number)

    def _single(self, name: bytes, title: str) -> str | None:
        values = self._raw.get(name)
        if values is None:
            return None
        if len(values) > 1 and len(set(values)) > 1:
            raise invalid(title, "is given twice")
        return values[0]


def _versions_in_query(query_string: bytes) -> list[str]:
    return [value.strip(" \t") for name, value in query(query_string) if name.lower() == "a2a-version"]


def query(query_string: bytes) -> list[tuple[str, str]]:
    """The parameters of the URL. Raises: InvalidParams."""
    if not query_string:
        return []
    try:
        pairs = parse_qsl(
            query_string.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS
        )
    except ValueError:
        raise invalid("query", f"must be at most {_PARAMETERS} parameters in UTF-8, percent-encoded") from None
    for name, value in pairs:
        if "\0" in value:
            raise invalid(name, "must not contain NUL")
    return pairs


def refuse_media_type(scope: Scope) -> None:
    """Raises: UnsupportedMediaType for a body that is declared as anything but plain JSON in UTF-8."""
    for name, value in scope["headers"]:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            raise UnsupportedMediaType(f"Content-Encoding {echo(value.decode('latin-1'))} is not read; send it plain")
        if name == b"content-type" and not _is_json(value):
            raise UnsupportedMediaType(
                f"Content-Type {echo(value.decode('latin-1'))} is not read; send application/json"
            )


@lru_cache(maxsize=64)
def _is_json(value: bytes) -> bool:
    kind, _, parameters = value.lower().partition(b";")
    if kind.strip() not in _JSON_TYPES:
        return not value.strip()
    charset = re.search(rb'charset\s*=\s*"?([^\s";]*)', parameters)
    return charset is None or charset[1] in (b"utf-8", b"utf8")


def names_html(scope: Scope) -> bool:
    """Whether the client names `text/html` among what it accepts, as browsers do. A range such as `*/*` names no type."""
    return any(
        kind.strip() == HTML and _REFUSED.search(parameters) is None
        for name, value in scope["headers"]
        if name == b"accept"
        for kind, _, parameters in (each.partition(b";") for each in value.lower().split(b","))
    )


def wants_a2a_json(scope: Scope) -> bool:
    """Whether the client sends or accepts `application/a2a+json`."""
    return any(A2A_JSON in value.lower() for name, value in scope["headers"] if name in (b"content-type", b"accept"))
