"""What of an exchange stands in its file. Law: a value is masked the same way in a request and in an answer, so that what was
masked compares as equal, and masking twice is masking once.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from hashlib import blake2b
from urllib.parse import unquote_plus

import msgspec

from gateway.a2a.model import Json
from gateway.a2a.redaction import MASK, JsonPath, json_path, redacted, redacted_member
from gateway.foundation.spellings import SHORTEST_SECRET, pattern_of

_SHOWN = frozenset(
    {
        "accept",
        "accept-encoding",
        "cache-control",
        "content-encoding",
        "content-length",
        "content-location",
        "content-type",
    }
    | {
        "date",
        "idempotency-key",
        "last-event-id",
        "location",
        "openai-beta",
        "openai-version",
        "request-id",
        "retry-after",
    }
    | {"server", "transfer-encoding", "user-agent", "x-ms-conversationid", "x-request-id"}
)
"""The headers whose values are written; and those below."""
_SHOWN_BEGINNINGS = ("a2a-", "anthropic-", "x-ratelimit-")
_NEVER = frozenset({"anthropic-organization-id"})

_SECRET_NAMES = frozenset(
    {
        "token",
        "accesstoken",
        "refreshtoken",
        "idtoken",
        "clientsecret",
        "apikey",
        "password",
        "authorization",
        "streamurl",
    }
)
"""Members of JSON, and parameters of addresses, whose text is a secret; by their letters, in small ones."""
_SECRET_PARAMETERS = _SECRET_NAMES | {"key", "sig", "signature", "code", "t"}
_SEALED_NAMES = frozenset({"encryptedcontent", "encryptedindex", "signature", "thoughtsignature"})
"""Members whose text only the backend can read."""
_SEALED_SHORTEST = 24
_SEAL = re.compile(r"\[sealed [0-9a-f]{16}\]")
_NOTABLE = re.compile(
    "token|secret|api_?-?key|password|authorization|stream_?url|encrypted|signature|redacted_thinking", re.IGNORECASE
)
"""JSON without any of these words has no such member."""
_LITERAL = re.compile(r"-?[0-9.]{1,7}|true|false|null")
"""A value of a variable that stands in JSON without being a text: to mask it would leave no JSON."""

_ARGUMENTS = tuple(json_path(f"$..{name}") for name in ("arguments", "args"))
_ALL_ARGUMENTS, _ALL_RESULTS = ("args", None), ("response", None)
"""The first steps of paths that cover all that a call was given, or has given. None is every member."""


class Secrets:
    """The values that no file may hold. They may become more."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        fresh = {value for value in values if len(value) >= SHORTEST_SECRET and _LITERAL.fullmatch(value) is None}
        if fresh <= self._values:
            return
        self._values |= fresh
        self._pattern = pattern_of(self._values, cased=True)

    def masked(self, text: str) -> str:
        return text if self._pattern is None else self._pattern.sub(MASK, text)


class Masks:
    """The masks of one agent or source of tools. `redact` are the paths of its `tool_calls`."""

    def __init__(self, secrets: Secrets, redact: Iterable[JsonPath] = ()) -> None:
        self._secrets = secrets
        given = tuple(redact)
        self._paths = tuple(dict.fromkeys(path for one in given for path in _anywhere(one)))
        self._results = any(len(one.steps) == 1 and one.steps[0].key in _ALL_RESULTS for one in given)

    @property
    def redacts(self) -> bool:
        """Whether values of tool calls are masked."""
        return bool(self._paths) or self._results

    def text(self, text: str) -> str:
        """Any text. Where a path may fit a part of it, all of it is masked."""
        masked = self._secrets.masked(text)
        return str(redacted(masked, self._paths)[0]) if self._paths else masked

    def raw(self, content: bytes) -> bytes:
        """Any bytes; in those that are no text, a secret of ASCII is found as it is."""
        try:
            return self.text(content.decode()).encode()
        except UnicodeDecodeError:
            return self.text(content.decode("latin-1")).encode("latin-1", "replace")

    def body(self, body: bytes | None) -> str | bytes | None:
        """A whole body; bytes for one that is no text."""
        if body is None:
            return None
        try:
            return self.json(body.decode())
        except UnicodeDecodeError:
            return self.raw(body)

    def json(self, text: str) -> str:
        """JSON with its masks, as it is written otherwise. Another text is masked as a text."""
        masked = self._secrets.masked(text)
        if not self.redacts and _NOTABLE.search(masked) is None:
            return masked
        try:
            value: Json = msgspec.json.decode(masked)
        except (msgspec.DecodeError, RecursionError):
            return self.text(masked)
        covered = self.value(value)
        return masked if covered == value else msgspec.json.encode(covered).decode()

    def value(self, value: Json) -> Json:
        """A value whose texts hold no secret any more, with the other masks."""
        covered = _covered(value, results=self._results)
        return redacted(covered, self._paths)[0] if self._paths else covered

    def arguments(self, text: str) -> str:
        """The complete arguments of a tool call, as JSON; those that are none are masked as a whole."""
        try:
            value: Json = msgspec.json.decode(self._secrets.masked(text))
        except (msgspec.DecodeError, RecursionError):
            value = None
        if not isinstance(value, dict):
            return MASK
        return msgspec.json.encode(redacted_member("arguments", value, self._paths)[0]).decode()

    def url(self, url: str) -> str:
        address, mark, query = self._secrets.masked(url).partition("?")
        return address + mark + "&".join(map(_parameter, query.split("&")))

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """By names in small letters."""
        low = {name.lower(): value for name, value in headers.items()}
        return {name: self._secrets.masked(value) if _is_shown(name) else MASK for name, value in sorted(low.items())}


def _parameter(pair: str) -> str:
    name, mark, _ = pair.partition("=")
    return f"{name}={MASK}" if mark and _plain(unquote_plus(name)) in _SECRET_PARAMETERS else pair


def _is_shown(name: str) -> bool:
    return name in _SHOWN or (name.startswith(_SHOWN_BEGINNINGS) and name not in _NEVER)


def _covered(value: Json, *, results: bool) -> Json:
    match value:
        case dict():
            covered = {name: _member(name, member, results=results) for name, member in value.items()}
            result = _result_of(value) if results else None
            if result is not None:
                covered[result] = MASK
            if value.get("type") == "redacted_thinking" and isinstance(value.get("data"), str):
                covered["data"] = _sealed(value["data"])
            return covered
        case list():
            return [_covered(item, results=results) for item in value]
    return value


def _member(name: str, value: Json, *, results: bool) -> Json:
    if not isinstance(value, str) or not value:
        return _covered(value, results=results)
    plain = _plain(name)
    if plain in _SECRET_NAMES:
        return MASK
    return _sealed(value) if plain in _SEALED_NAMES else value


def _sealed(text: str) -> str:
    if len(text) < _SEALED_SHORTEST or _SEAL.fullmatch(text) is not None:
        return text
    return f"[sealed {blake2b(text.encode(), digest_size=8).hexdigest()}]"


def _result_of(value: dict[str, Json]) -> str | None:
    """The member that holds what a tool has given, on the wires of backends and in the recording of a tool."""
    match value:
        case {"call_id": _, "output": _}:
            return "output"
        case {"role": "tool", "content": _} | {"type": "tool_result", "content": _}:
            return "content"
        case {"response": _, "error": bool()}:
            return "response"
    return None


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _anywhere(path: JsonPath) -> Iterable[JsonPath]:
    """A path of a tool call as paths into bodies, where the call stands at any depth under other names."""
    first, *rest = path.steps
    if first.deep:
        return (path,)
    if rest:
        return (JsonPath(path.text, (replace(rest[0], deep=True), *rest[1:])),)
    return _ARGUMENTS if first.key in _ALL_ARGUMENTS else ()
