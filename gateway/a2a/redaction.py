"""JSON paths, and JSON with the values at those paths masked. Law: a path that may match a value masks it; inputs stay
unchanged.

A path is a subset of RFC 9535: `$`, then names, indices, `*` and `..`, as in `$.args.password` or `$..items[*]['api key']`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

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
    level and to every level below."""

    key: str | int | None
    deep: bool = False


@dataclass(frozen=True, slots=True)
class JsonPath:
    text: str
    steps: tuple[Step, ...]


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

    A path also leads into text that contains a JSON object or list: tools often answer with JSON in a string.
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


def _masked(value: Json, steps: tuple[Step, ...]) -> tuple[Json, bool]:
    if not steps:
        return MASK, True
    if isinstance(value, str):
        inner = _inside(value)
        if inner is None:
            return value, False
        changed, touched = _masked(inner, steps)
        return (msgspec.json.encode(changed).decode(), True) if touched else (value, False)
    if not isinstance(value, dict | list):
        return value, False
    step = steps[0]
    found = set(_keys(value, step.key))
    members: dict[str | int, Json] = dict(value.items() if isinstance(value, dict) else enumerate(value))
    touched = False
    for key, member in members.items():
        now, here = _masked(member, steps[1:]) if key in found else (member, False)
        now, below = _masked(now, steps) if step.deep and now != MASK else (now, False)
        members[key] = now
        touched = touched or here or below
    return (members if isinstance(value, dict) else list(members.values())), touched


def _keys(value: dict[str, Json] | list[Json], key: str | int | None) -> Iterable[str | int]:
    """The keys that match the step. A negative index counts from the end."""
    if isinstance(value, dict):
        return list(value) if key is None else [key] if key in value else []
    if key is None:
        return range(len(value))
    return [key % len(value)] if isinstance(key, int) and -len(value) <= key < len(value) else []


def _inside(text: str) -> Json:
    """The object or list in the text, None for any other text."""
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None
