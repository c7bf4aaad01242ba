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
from gateway.a2a.redaction import MASK, JsonPath, json_path
from gateway.foundation.spellings import SHORTEST_SECRET, beginnings, pattern_of
from gateway.recording import addresses
from gateway.recording.names import may_name_secret, names_secret_parameter
from gateway.recording.walk import RecordingWalk

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

_PARAMETERS_OF_ADDRESSES = frozenset({"code", "t"})
"""Besides those that are masked in texts."""
_LITERAL = re.compile(r"-?[0-9.]{1,7}|true|false|null")
"""A value of a variable that stands in JSON without being a text: to mask it would leave no JSON."""

_HALF = r"(?:(?<!\\)\\++(?:u[0-9a-fA-F]{0,3})?|%[0-9a-fA-F]?)?"
"""The beginning of an escape."""
_MARK = r"(?:\n|(?<!\\)\\++n)\[truncated: "
_CUT = re.compile(_HALF + _MARK)
_CUT_TEXT = re.compile(rf"{_HALF}(?:{_MARK}|(?<!\\)\\*+\"|\Z)")
_IS_CUT_VALUE = re.compile(r"truncated\\*\":\s*true")
"""Results that `gateway.core.tools.toolset` has cut: texts have a mark, other values are put into an object."""

_ARGUMENTS = tuple(json_path(f"$..{name}") for name in ("arguments", "args"))
_ALL_ARGUMENTS, _ALL_RESULTS = ("args", None), ("response", None)
"""The first steps of paths that cover all that a call was given, or has given. None is every member."""


class Secrets:
    """The values that no file may hold. They may become more. `key` is of the recording, and makes its digests."""

    def __init__(self, values: Iterable[str] = (), key: bytes = b"") -> None:
        self.key = key
        self._values: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None
        self.add(values)

    def add(self, values: Iterable[str]) -> None:
        fresh = {value for value in values if len(value) >= SHORTEST_SECRET and _LITERAL.fullmatch(value) is None}
        if fresh <= self._values:
            return
        self._values |= fresh
        self._pattern = pattern_of(self._values, cased=True)

    def masked(self, text: str, *, cut: bool = False) -> str:
        """`cut`: its end is missing, so the beginning of a secret there is masked too. So it is where the gateway has cut a
        result."""
        if self._pattern is None:
            return text
        text = self._pattern.sub(MASK, text)
        if cut or _IS_CUT_VALUE.search(text) is not None:
            return self._without_beginnings(text, _CUT_TEXT)
        return self._without_beginnings(text, _CUT) if "[truncated: " in text else text

    def _without_beginnings(self, text: str, ends: re.Pattern[str]) -> str:
        pieces, at = [], 0
        for begin, end in beginnings(text, self._values, ends):
            if begin >= at:
                pieces += [text[at:begin], MASK]
                at = end
        return "".join([*pieces, text[at:]])


class Masks:
    """The masks of one agent or source of tools. `redact` are the paths of its `tool_calls`."""

    def __init__(self, secrets: Secrets, redact: Iterable[JsonPath] = ()) -> None:
        self._secrets = secrets
        given = tuple(redact)
        self._paths = tuple(dict.fromkeys(path for one in given for path in _anywhere(one)))
        self._results = any(len(one.steps) == 1 and one.steps[0].key in _ALL_RESULTS for one in given)

    def secrets(self, text: str) -> str:
        """A text that says nothing but secrets."""
        return self._secrets.masked(text)

    def text(self, text: str, *, cut: bool = False) -> str:
        """Any text."""
        walk = self._walk()
        return walk.text(self._secrets.masked(text, cut=cut), walk.all_places(), 0)

    def raw(self, content: bytes, *, cut: bool = False) -> bytes:
        """Any bytes; in those that are no text, a secret of ASCII is found as it is."""
        try:
            return self.text(content.decode(), cut=cut).encode()
        except UnicodeDecodeError:
            return self.text(content.decode("latin-1"), cut=cut).encode("latin-1", "replace")

    def body(self, body: bytes | None) -> str | bytes | None:
        """A whole body; bytes for one that is no text."""
        if body is None:
            return None
        try:
            return self.json(body.decode())
        except UnicodeDecodeError:
            return self.raw(body)

    def json(self, text: str, *, cut: bool = False) -> str:
        """JSON with its masks, as it is written otherwise. Another text is masked as a text. `cut`: nothing comes behind it,
        although it was to."""
        masked = self._secrets.masked(text, cut=cut)
        if not self._paths and not self._results and not may_name_secret(masked):
            return masked
        try:
            value: Json = msgspec.json.decode(masked)
        except (msgspec.DecodeError, RecursionError):
            return self.text(masked)
        covered = self.value(value)
        return masked if covered == value else msgspec.json.encode(covered).decode()

    def value(self, value: Json) -> Json:
        """A value whose texts hold no secret any more, with the other masks."""
        walk = self._walk()
        return walk.value(value, walk.all_places(), 0)

    def arguments(self, text: str) -> str:
        """The arguments of a tool call, as JSON, or as much of it as has come."""
        covered = self.value({"arguments": self._secrets.masked(text, cut=True)})
        masked = covered["arguments"] if isinstance(covered, dict) else MASK
        return "{}" if masked == MASK else str(masked)

    def url(self, url: str) -> str:
        return addresses.masked(self._secrets.masked(url), _is_secret_parameter, lambda: MASK, self.text, whole=True)

    def headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """By names in small letters."""
        low = {name.lower(): value for name, value in headers.items()}
        return {name: self.url(value) if _is_shown(name) else MASK for name, value in sorted(low.items())}

    def _walk(self) -> RecordingWalk:
        return RecordingWalk(self._paths, results=self._results, digest=self._digest, seal=_seal)

    def _digest(self, text: str) -> str:
        return blake2b(text.encode(errors="replace"), digest_size=2, key=self._secrets.key).hexdigest()


def _seal(text: str) -> str:
    return f"[sealed {blake2b(text.encode(errors='replace'), digest_size=8).hexdigest()}]"


def _is_secret_parameter(name: str) -> bool:
    return names_secret_parameter(name) or unquote_plus(name) in _PARAMETERS_OF_ADDRESSES


def _is_shown(name: str) -> bool:
    return name in _SHOWN or (name.startswith(_SHOWN_BEGINNINGS) and name not in _NEVER)


def _anywhere(path: JsonPath) -> Iterable[JsonPath]:
    """A path of a tool call as paths into bodies, where the call stands at any depth under other names."""
    first, *rest = path.steps
    if first.deep:
        return (path,)
    if rest:
        return (JsonPath(path.text, (replace(rest[0], deep=True), *rest[1:])),)
    return _ARGUMENTS if first.key in _ALL_ARGUMENTS else ()
