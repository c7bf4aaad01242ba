"""The form of a recording: YAML that a person reads, with each value as JSON in one line. Law: what is written is read back,
also of a file whose end was never written; a value may be changed by hand where it stands.

`ids:` names what the exchange belongs to, `request:` what was sent, `response:` what came, `end:` how it ended. A body that
is an object has its members on lines of their own, and so have the items of a list in it.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from gateway.a2a.model import Json
from gateway.ports.wire import End, Occasion
from gateway.recording import lines
from gateway.recording.lines import flow

_STEP = 2

Tree: TypeAlias = "str | list[str] | dict[str, Tree] | None"
"""A value as it stands in the file: JSON in one line, lines of JSON, or members."""


class NoRecording(ValueError):
    """The text is no recording."""


class Ending(msgspec.Struct, frozen=True, omit_defaults=True):
    """`at` is in seconds since the request."""

    at: float
    how: End
    why: str = ""


class Exchange(msgspec.Struct, frozen=True):
    """One exchange as its file has it. `file` is its path in the folder of the recordings, `begun` the time of the request.

    `body` is the JSON of the request, or its text. `reads` are what the reads of the answer gave, with the seconds since the
    request. `status` is None where there was no answer, `answered` the time until it.
    """

    file: str
    ids: Occasion
    begun: str
    method: str
    url: str
    headers: dict[str, str]
    body: Json
    status: int | None
    answered: float
    answer_headers: dict[str, str]
    reads: tuple[tuple[float, bytes], ...]
    end: Ending
    text: str
    """The whole file."""


# --- writing


def request_lines(method: str, url: str, headers: Mapping[str, str], body: str | bytes | None) -> list[str]:
    told = [f"  headers: {flow(dict(headers))}"] if headers else []
    return ["request:", f"  method: {flow(method)}", f"  url: {flow(url)}", *told, *body_lines(body)]


def head_lines(ids: Occasion, begun: str) -> list[str]:
    return [f"ids: {flow(msgspec.to_builtins(ids))}", f"at: {flow(begun)}"]


def answer_lines(at: float, status: int, headers: Mapping[str, str]) -> list[str]:
    return ["response:", f"  at: {at}", f"  status: {status}", f"  headers: {flow(dict(headers))}"]


def event_line(at: float, block: bytes) -> str:
    return f"  - {lines.line(at, block)}"


EVENTS_BEGIN = "  events:"


def end_line(ending: Ending) -> str:
    return f"end: {flow(msgspec.to_builtins(ending))}"


def body_lines(body: str | bytes | None) -> list[str]:
    """A body that is there as a whole; bytes are no text."""
    if body is None:
        return []
    if isinstance(body, bytes):
        return [f"  base64: {flow(base64.b64encode(body).decode())}"]
    try:
        value: Json = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return [f"  text: {flow(body)}"]
    if isinstance(value, dict) and value:
        return ["  body:", *_members(value, " " * 2 * _STEP)]
    return [f"  body: {flow(value)}"]


def _members(value: dict[str, Json], indent: str) -> Iterator[str]:
    for name, member in value.items():
        if isinstance(member, list) and any(isinstance(item, dict | list) for item in member):
            yield f"{indent}{flow(name)}:"
            yield from (f"{indent}- {flow(item)}" for item in member)
        else:
            yield f"{indent}{flow(name)}: {flow(member)}"


# --- reading


def read(text: str, file: str) -> Exchange:
    """A file whose end was never written ended with a cut. Raises: NoRecording."""
    if not text:
        raise NoRecording(f"{file} is no recording that can be read: it is empty")
    try:
        reader = _Reader(text.split("\n"))
        tree = reader.members(0)
        reader.check_end()
        request, response = _mapping(tree, "request"), _mapping(tree, "response")
        reads = tuple(_reads(response))
        end = Ending(reads[-1][0] if reads else 0.0, End.CUT, "the recording has no end")
        if "end" in tree:
            end = msgspec.convert(_value(tree["end"]), Ending)
        if "events" not in response and response.keys() & {"body", "text", "base64"}:
            reads = ((end.at, _whole(response)),)
        return Exchange(
            file=file,
            ids=msgspec.convert(_value(tree["ids"]), Occasion),
            begun=msgspec.convert(_value(tree.get("at")), str),
            method=msgspec.convert(_value(request["method"]), str),
            url=msgspec.convert(_value(request["url"]), str),
            headers=msgspec.convert(_value(request.get("headers", "{}")), dict[str, str]),
            body=_body(request),
            status=msgspec.convert(_value(response.get("status")), int | None),
            answered=msgspec.convert(_value(response.get("at", "0.0")), float),
            answer_headers=msgspec.convert(_value(response.get("headers", "{}")), dict[str, str]),
            reads=reads,
            end=end,
            text=text,
        )
    except (ValueError, KeyError, msgspec.MsgspecError) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise NoRecording(f"{file} is no recording that can be read: {why}") from error


def _reads(response: Mapping[str, Tree]) -> Iterator[tuple[float, bytes]]:
    events = response.get("events")
    if isinstance(events, list):
        yield from lines.reads(lines.read(each) for each in events)


def _whole(holder: Mapping[str, Tree]) -> bytes:
    if "base64" in holder:
        return base64.b64decode(str(_value(holder["base64"])))
    if "text" in holder:
        return str(_value(holder["text"])).encode()
    return msgspec.json.encode(_value(holder["body"]))


def _body(holder: Mapping[str, Tree]) -> Json:
    name = next((each for each in ("body", "text", "base64") if each in holder), None)
    return None if name is None else _value(holder[name])


def _mapping(tree: Mapping[str, Tree], name: str) -> dict[str, Tree]:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}


def _value(tree: Tree) -> Json:
    match tree:
        case str():
            return msgspec.json.decode(tree)
        case list():
            return [msgspec.json.decode(item) for item in tree]
        case dict():
            return {name: _value(member) for name, member in tree.items()}
    return None


class _Reader:
    """Reads lines from the first on."""

    def __init__(self, written: Sequence[str]) -> None:
        self._lines = [line for line in written if line.strip() and not line.lstrip().startswith("#")]
        self._at = 0

    def check_end(self) -> None:
        """Raises: ValueError where a line is left over."""
        if self._at < len(self._lines):
            raise ValueError(f"{self._lines[self._at][:60]!r} is indented otherwise than its neighbours")

    def members(self, indent: int) -> dict[str, Tree]:
        """The members whose lines are indented so far. Raises: ValueError."""
        found: dict[str, Tree] = {}
        while (line := self._line(indent)) is not None and not line.startswith("- "):
            name, rest = _named(line)
            self._at += 1
            found[name] = rest or self._below(indent)
        return found

    def _below(self, indent: int) -> Tree:
        for deeper in (indent, indent + _STEP):
            items = list(self._items(deeper))
            if items:
                return items
        return self.members(indent + _STEP) or None

    def _items(self, indent: int) -> Iterator[str]:
        while (line := self._line(indent)) is not None and line.startswith("- "):
            self._at += 1
            yield line[2:]

    def _line(self, indent: int) -> str | None:
        """The present line without its indent, None where that is another one."""
        if self._at == len(self._lines):
            return None
        line = self._lines[self._at]
        return line[indent:] if len(line) - len(line.lstrip(" ")) == indent else None


def _named(line: str) -> tuple[str, str]:
    """The name of a member, and what stands behind it. Raises: ValueError."""
    if line.startswith('"'):
        end = _end_of_text(line)
        name, rest = str(msgspec.json.decode(line[:end])), line[end:]
    else:
        at = line.find(":")
        name, rest = line[:at], line[at:]
    if not rest.startswith(":"):
        raise ValueError(f"{line[:60]!r} is no member")
    return name, rest[1:].strip()


def _end_of_text(line: str) -> int:
    at = 1
    while at < len(line) and line[at] != '"':
        at += 2 if line[at] == "\\" else 1
    return at + 1
