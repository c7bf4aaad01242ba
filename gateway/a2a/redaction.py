"""JSON paths, and JSON with the values at those paths masked. Law: a path that may match a value masks it; inputs stay
unchanged.

A path is a subset of RFC 9535: `$`, then names, indices, `*` and `..`, as in `$.args.password` or `$..items[*]['api key']`.
Unlike there, names are compared by their letters and digits: `$..api_key` is also `apiKey` and `API-Key`.
"""

import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from gateway.a2a.model import Json

MASK = "[redacted]"

_SEGMENT = re.compile(
    r"(?P<deep>\.\.)?(?:(?<=\.\.)(?P<bare>[^\W\d][\w-]*|\*)|(?<!\.)\.(?P<name>[^\W\d][\w-]*|\*)"
    r"|\[(?P<index>-?\d{1,9}|\*)\]|\['(?P<single>[^']+)'\]|\[\"(?P<double>[^\"]+)\"\])"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a JSON path. `key` is a name, an index, or None for every member. `deep` applies the step to this
    level and to every level below. `name` is the name in the form in which names are compared, or empty."""

    key: str | int | None
    deep: bool = False
    name: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _comparable(self.key) if isinstance(self.key, str) else "")


@dataclass(frozen=True, slots=True)
class JsonPath:
    text: str
    steps: tuple[Step, ...]


Steps = tuple[Step, ...]


def json_path(text: str) -> JsonPath:
    """Raises: ValueError for a text that is no path, or matches the whole document."""
    if not text.startswith("$") or text == "$":
        raise ValueError("must be a JSON path such as $.args.password or $..token")
    steps, position = [], 1
    while position < len(text):
        found = _SEGMENT.match(text, position)
        if found is None:
            raise ValueError(f"must be a JSON path such as $.args.password or $..token; {text[position:]!r} is no step")
        index = found["index"]
        name = found["bare"] or found["name"] or found["single"] or found["double"]
        quoted = found["single"] or found["double"]
        key = name if quoted or name != "*" else None
        steps.append(Step(int(index) if index not in (None, "*") else key, bool(found["deep"])))
        position = found.end()
    return JsonPath(text, tuple(steps))


def redacted(document: Json, paths: tuple[JsonPath, ...]) -> tuple[Json, list[str]]:
    """The document with each matched value masked, and the paths that matched one.

    A path also leads into text, as tools often answer with JSON in a string: see `_masked_text`.
    """
    hit = []
    for path in paths:
        document, touched = _masked(document, path.steps)
        if touched:
            hit.append(path.text)
    return document, hit


def redacted_member(
    name: str, value: dict[str, Json], paths: tuple[JsonPath, ...]
) -> tuple[dict[str, Json], list[str]]:
    """Does what `redacted` does, for the member `name`. The member is an empty object when all of it is masked."""
    document, hit = redacted({name: value}, paths)
    masked = document[name] if isinstance(document, dict) else None
    return (masked if isinstance(masked, dict) else {}), hit


_DEEPEST = 200
"""Levels of a document, JSON in its texts included. What lies deeper is masked."""


def _masked(value: Json, steps: Steps, depth: int = 0) -> tuple[Json, bool]:
    if not steps or depth > _DEEPEST:
        return MASK, True
    if isinstance(value, str):
        return _masked_text(value, steps, depth)
    if not isinstance(value, dict | list):
        return value, False
    step = steps[0]
    found = set(_keys(value, step))
    members: dict[str | int, Json] = dict(value.items() if isinstance(value, dict) else enumerate(value))
    touched = False
    for key, member in members.items():
        now, here = _masked(member, steps[1:], depth + 1) if key in found else (member, False)
        now, below = _masked(now, steps, depth + 1) if step.deep and now != MASK else (now, False)
        members[key] = now
        touched = touched or here or below
    return (members if isinstance(value, dict) else list(members.values())), touched


def _keys(value: dict[str, Json] | list[Json], step: Step) -> Iterable[str | int]:
    """The keys that match the step. A negative index counts from the end."""
    key = step.key
    if isinstance(value, dict):
        return list(value) if key is None else [each for each in value if _is(each, step)]
    if key is None:
        return range(len(value))
    return [key % len(value)] if isinstance(key, int) and -len(value) <= key < len(value) else []


def _is(name: str, step: Step) -> bool:
    return name == step.key or (bool(step.name) and _comparable(name) == step.name)


def _comparable(name: str) -> str:
    """The letters and digits of the name, without case; a name without any is compared as it is."""
    plain = name if name.isascii() else unicodedata.normalize("NFKC", name)
    return "".join(filter(str.isalnum, plain.casefold())) or name


# --- text -------------------------------------------------------------------------------------------------------------

_INVISIBLE = r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufffd]*"
_BEGINNING = re.compile(_INVISIBLE)
_BETWEEN = re.compile(rf"{_INVISIBLE}[,;]?{_INVISIBLE}")
_JSON = re.compile(r"[{\[]|\"[\s\"\\]*(?:[{\[]|u00)")
"""The beginning of an object or a list, or of a text that holds one."""

_ESCAPED = re.compile(r"\\+u([0-9a-fA-F]{4})")
_CLOSEST = 64
"""Characters between a name in a text and the sign that gives it a value: quotes, backslashes, spaces."""


def _masked_text(text: str, steps: Steps, depth: int) -> tuple[Json, bool]:
    """The text with the values at the path masked. JSON in it is read: one value, or several in a row. A text that begins
    like JSON and cannot be read, because it was cut for example, is masked as a whole. So is any other text in which
    the last name of the path is given a value, as in `token: x`, `?token=x` or `{"token": "x` in the middle of a sentence.
    """
    if text == MASK:
        return text, False
    begin = _BEGINNING.match(text)
    if _JSON.match(text, begin.end() if begin else 0) is None:
        return (MASK, True) if _gives_value(text, steps) else (text, False)
    values = _values(text)
    if values is None:
        return MASK, True
    touched = False
    if len(values) > 1:
        together, touched = _masked(values, steps, depth + 1)
        values = together if isinstance(together, list) else values
    masked = [_masked(value, steps, depth + 1) for value in values]
    if not touched and not any(here for _, here in masked):
        return text, False
    try:
        return "\n".join(msgspec.json.encode(value).decode() for value, _ in masked), True
    except (UnicodeEncodeError, OverflowError):  # half a character, a number of too many digits
        return MASK, True


def _values(text: str) -> list[Json] | None:
    """The values that the text consists of, or None for a text that is not JSON from its beginning to its end."""
    values: list[Json] = []
    position = _end(_BEGINNING, text, 0)
    try:
        while position < len(text):
            value, position = _decoder.raw_decode(text, position)
            values.append(value)
            position = _end(_BETWEEN, text, position)
    except (ValueError, RecursionError):
        return None
    return values


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    found = pattern.match(text, position)
    return position if found is None else found.end()


def _object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Raises: ValueError for a name that is given twice, as readers differ on which of the values counts."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice")
    return found


_decoder = json.JSONDecoder(object_pairs_hook=_object, strict=False)


def _gives_value(text: str, steps: Steps) -> bool:
    """Whether the text, which is not JSON, gives a value to the last name of the path."""
    name = next((step.name for step in reversed(steps) if step.name), "")
    if not name:
        return False
    if "\\" in text:
        text = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text)
    plain = text if text.isascii() else unicodedata.normalize("NFKC", text)
    return _assignment(name).search(plain.casefold()) is not None


@lru_cache(maxsize=64)
def _assignment(name: str) -> re.Pattern[str]:
    """The name as a word, with any sign between two of its letters, and a sign behind it that gives it a value."""
    begins = r"(?:(?<![^\W_])|(?<=\\[nrtbf])|(?<=%[0-9a-f]{2}))"
    letters = r"[\W_]?".join(map(re.escape, name))
    return re.compile(rf"{begins}{letters}(?:%2[27]|&\w{{2,6}};|[^\w:=>|]){{0,{_CLOSEST}}}(?:[:=>|]|%3[ad])")
