"""The walk that masks what is recorded. Law: what is not masked stays as it was, so that different words never compare as
equal; only the extent of a value is masked in a text, and an extent that is not certain has a digest beside its mask."""

import re
from collections.abc import Callable

import msgspec

from gateway.a2a.model import Json
from gateway.a2a.redaction import DEEPEST, MASK, JsonPath, Places, Walk, assignment_of, value_at
from gateway.recording import addresses
from gateway.recording.declarations import Part, Parts, parts_of, parts_of_schema
from gateway.recording.names import (
    may_name_secret,
    names_sealed,
    names_secret,
    names_secret_parameter,
    plain_name,
)

_MARK = re.compile(r"\[redacted(?: [0-9a-f]{4})?\]")
_OPENING = re.compile(r"[{\[]")
_MOST_OPENINGS = 200
"""Places of a text at which JSON is looked for."""
_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")
_MEMBER = re.compile(r"(?P<quote>\\{0,15}[\"'])(?P<name>(?:[\w.\- ]|\\{1,16}u[0-9a-fA-F]{4}){1,64})(?P=quote)\s*[:=]")
"""The name of a member of JSON that cannot be read, because it was cut or quoted once more."""
_FLAG = re.compile(r"--[^:=>|]*[\s\"'][^:=>|]\Z", re.DOTALL)
_OPENING_OF_VALUE = re.compile(r"\s*(\\{0,15}[\"'])?")
_LINE = re.compile(r"[^\r\n]*")
_SEALED_SHORTEST = 24
_SEAL = re.compile(r"\[sealed [0-9a-f]{16}\]")


class RecordingWalk(Walk):
    """Masks the values at the paths, and those of members with the name of a secret. `results` masks all that tools have
    given, `digest` tells texts apart, `seal` is what stands in place of a text that only the backend can read."""

    __slots__ = ("_decoded", "_digest", "_results", "_seal")

    def __init__(
        self, paths: tuple[JsonPath, ...], *, results: bool, digest: Callable[[str], str], seal: Callable[[str], str]
    ) -> None:
        super().__init__(paths)
        self._results, self._digest, self._seal = results, digest, seal
        self._decoded = 0

    def value(self, value: Json, places: Places, depth: int) -> Json:
        if isinstance(value, dict):
            parts = parts_of(value)
            if parts is not None and len(self._open(places)) == len(places):
                return self._declaration(value, parts, places, depth)
            value = self._by_names(value)
        if places:
            return super().value(value, places, depth)
        if isinstance(value, str):
            return self.text(value, places, depth)
        if not isinstance(value, dict | list):
            return value
        if depth > DEEPEST:
            return self.mask(())
        if isinstance(value, list):
            return [self.value(item, places, depth + 1) for item in value]
        return {
            self._name(name, places, depth): self.value(member, places, depth + 1) for name, member in value.items()
        }

    def text(self, text: str, places: Places, depth: int) -> str:
        if (not places and not may_name_secret(text)) or _MARK.fullmatch(text) is not None:
            return text
        return super().text(text, places, depth)

    def unreadable(self, text: str, places: Places, depth: int) -> str:
        """Masks the JSON within the text, then what is given to a name by its other words."""
        text = self._embedded(text, places, depth)
        text = addresses.masked(
            text, names_secret_parameter, lambda: self.mask(()), lambda inner: self._inner(inner, places, depth)
        )
        text = self._given(text, _MEMBER, lambda found: names_secret(_unescaped(found["name"])))
        for name in dict.fromkeys(self.last_name(*place) for place in places):
            if name:
                pattern = re.compile(assignment_of(name).pattern, re.IGNORECASE)
                text = self._given(text, pattern, lambda _: True)
        return text

    def _name(self, name: str, places: Places, depth: int) -> str:
        return name if name.isidentifier() else self.text(name, places, depth)

    # --- declarations

    def _declaration(
        self, value: dict[str, Json], parts: Parts, places: Places, depth: int, *, secret: bool = False
    ) -> Json:
        """Its parts stay as they are, also where a path leads to the description of a value. `secret`: it describes a
        secret, of which it may hold values."""
        if depth > DEEPEST:
            return self.mask(places)
        places = self._open(places)
        masked: dict[str, Json] = {}
        for name, member in value.items():
            part = parts.get(name)
            if part is Part.WORDS:
                masked[name] = member
            elif part is Part.DECLARATION and isinstance(member, dict):
                masked[name] = self._declaration(member, parts_of(member, within=True) or {}, places, depth + 1)
            elif part is Part.SCHEMA:
                masked[name] = self._schema(member, self._below(places, name), depth + 1, secret=secret)
            elif part is Part.SCHEMAS and isinstance(member, dict):
                masked[name] = self._schemas(member, self._below(places, name), depth + 1, secret=secret)
            elif secret:
                masked[name] = self._values(member)
            elif part is Part.VALUES:
                masked[name] = self.value(member, (), depth + 1)
            else:
                masked |= self._other(name, member, places, depth)
        return masked

    def _schemas(self, value: dict[str, Json], places: Places, depth: int, *, secret: bool) -> Json:
        if depth > DEEPEST:
            return self.mask(places)
        places = self._open(places)
        masked: dict[str, Json] = {}
        for name, member in value.items():
            if isinstance(member, bool) or (isinstance(member, dict) and parts_of_schema(member) is not None):
                of_secret = secret or names_secret(name)
                masked[name] = self._schema(member, self._below(places, name), depth + 1, secret=of_secret)
            elif secret:
                masked[name] = self._values(member)
            else:
                masked |= self._other(name, member, places, depth)
        return masked

    def _schema(self, value: Json, places: Places, depth: int, *, secret: bool) -> Json:
        if isinstance(value, list) and depth <= DEEPEST:
            return [self._schema(item, places, depth + 1, secret=secret) for item in value]
        parts = parts_of_schema(value) if isinstance(value, dict) else None
        if isinstance(value, dict) and parts is not None:
            return self._declaration(value, parts, places, depth, secret=secret)
        return self._values(value) if secret else self.value(value, places, depth)

    def _values(self, value: Json) -> Json:
        """Values of a secret in its schema: a list of them stays one, as a schema must have it."""
        if isinstance(value, list):
            masked = [self._values(item) for item in value]
            return [item for at, item in enumerate(masked) if item not in masked[:at]]
        return value if _says_nothing(value) else self.mask(())

    def _other(self, name: str, member: Json, places: Places, depth: int) -> dict[str, Json]:
        """A member that is no part."""
        [named] = self._by_names({name: member}).values()
        return {self._name(name, places, depth): self.value(named, self._below(places, name), depth + 1)}

    def _open(self, places: Places) -> Places:
        """Those of paths that lead on."""
        return tuple(place for place in places if place[1] < len(self._steps[place[0]]))

    # --- names

    def _by_names(self, value: dict[str, Json]) -> dict[str, Json]:
        scored = "logprob" in value  # The tokens of a model are words.
        result = _result_of(value) if self._results else None
        hidden = "data" if value.get("type") == "redacted_thinking" else None
        return {
            name: self._named(name, member, secret=name == result, sealed=name == hidden, scored=scored)
            for name, member in value.items()
        }

    def _named(self, name: str, value: Json, *, secret: bool, sealed: bool, scored: bool) -> Json:
        if secret:
            return self.mask(())
        if _says_nothing(value):
            return value
        if isinstance(value, str) and (sealed or names_sealed(name)):
            if _SEAL.fullmatch(value) is not None:
                return value
            if len(value) >= _SEALED_SHORTEST:
                self.masks += 1
                return self._seal(value)
        if names_secret(name) and not (scored and plain_name(name) == "token"):
            return self.mask(())
        return value

    # --- texts

    def _embedded(self, text: str, places: Places, depth: int) -> str:
        pieces, begin, at, tries = [], 0, 0, 0
        while (found := _OPENING.search(text, at)) is not None and tries < _MOST_OPENINGS:
            at, tries = found.start(), tries + 1
            read = value_at(text, at)
            if read is None:
                at += 1
                continue
            value, end = read
            before = self.masks
            masked = self.value(value, places, depth + 1)
            if self.masks != before:
                pieces += [text[begin:at], _encoded(masked)]
                begin = end
            at = end
        return "".join([*pieces, text[begin:]])

    def _inner(self, text: str, places: Places, depth: int) -> str:
        """A text that is encoded in another."""
        if self._decoded == addresses.MOST_ENCODINGS:
            return text
        self._decoded += 1
        covered = self.text(text, places, depth + 1)
        self._decoded -= 1
        return covered

    def _given(self, text: str, pattern: re.Pattern[str], is_secret: Callable[[re.Match[str]], bool]) -> str:
        """The text without the values behind what the pattern finds."""
        pieces, begin, at = [], 0, 0
        while (found := pattern.search(text, at)) is not None:
            at = found.end()
            if is_secret(found):
                # Behind `--name` the first sign of the value is found too.
                begin_of_value, at, mask = self._extent(text, at - 1 if _FLAG.match(found[0]) else at)
                pieces += [text[begin:begin_of_value], mask]
                begin = at
                self.masks += 1
        return "".join([*pieces, text[begin:]])

    def _extent(self, text: str, at: int) -> tuple[int, int, str]:
        """Where the value begins and ends, and what stands there instead."""
        begin, quote = at, None
        if (opening := _OPENING_OF_VALUE.match(text, at)) is not None:
            begin, quote = opening.end(), opening[1]
        marked = _MARK.match(text, begin)
        if marked is not None:
            return begin, marked.end(), marked[0]
        if quote is not None and (closing := text.find(quote, begin)) >= 0:
            return begin, closing, MASK
        line = _LINE.match(text, begin) if quote is None else None
        end = len(text) if line is None else line.end()
        value = text[begin:end]
        return begin, end, f"{MASK[:-1]} {self._digest(value)}]" if value else ""


def _says_nothing(value: Json) -> bool:
    return value is None or isinstance(value, bool) or value in ("", [], {})


def _unescaped(name: str) -> str:
    return _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), name)


def _encoded(value: Json) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (UnicodeEncodeError, OverflowError):  # half a character, a number of too many digits
        return MASK


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
