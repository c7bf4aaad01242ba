"""JSON paths, and JSON with the values at those paths masked. Law: a path that may match a value masks it; inputs stay
unchanged.

A path is a subset of RFC 9535: `$`, then names, indices, `*` and `..`, as in `$.args.password` or `$..items[*]['api key']`.
Unlike there, names are compared by their letters and digits (`$..api_key` is also `apiKey` and `API-Key`), a name is also
looked for in the items of a list, and a path leads on into JSON that stands in a text or in the name of a member.
"""

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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


class JsonPath(msgspec.Struct, frozen=True):
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


def at_any_depth(path: JsonPath) -> JsonPath:
    """`$.a.b` as `$.a..b`: what follows the first step is looked for at every level below it."""
    first, *rest = path.steps
    if first.deep or not rest:
        return path
    return JsonPath(path.text, (first, replace(rest[0], deep=True), *rest[1:]))


def redacted(document: Json, paths: tuple[JsonPath, ...]) -> tuple[Json, list[str]]:
    """The document with each matched value masked, and the paths that matched one."""
    walk = Walk(paths)
    masked = walk.value(document, walk.all_places(), 0)
    return masked, [path.text for number, path in enumerate(paths) if number in walk.hit]


def redacted_member(
    name: str, value: dict[str, Json], paths: tuple[JsonPath, ...]
) -> tuple[dict[str, Json], list[str]]:
    """Does what `redacted` does, for the member `name`. The member is an empty object when all of it is masked."""
    document, hit = redacted({name: value}, paths)
    masked = document[name] if isinstance(document, dict) else None
    return (masked if isinstance(masked, dict) else {}), hit


DEEPEST = 200
"""Levels of a document, JSON in its texts included. What lies deeper is masked."""

Place = tuple[int, int]
"""The number of a path, and how many of its steps lead to the value that is looked at."""

Places = tuple[Place, ...]


class Walk:
    """One walk through a document, for all paths at once. `hit` are the numbers of the paths that masked a value, `masks`
    is how many values were masked, also of those that were before."""

    __slots__ = ("_following", "_steps", "hit", "masks")

    def __init__(self, paths: tuple[JsonPath, ...]) -> None:
        self.hit: set[int] = set()
        self.masks = 0
        self._steps = [path.steps for path in paths]
        self._following: dict[tuple[Places, str | None], Places] = {}

    def value(self, value: Json, places: Places, depth: int) -> Json:
        if not places:
            return value
        ended = [place for place in places if place[1] == len(self._steps[place[0]])]
        if ended or depth > DEEPEST:
            return self.mask(ended or places)
        if isinstance(value, str):
            return self.text(value, places, depth)
        if isinstance(value, dict):
            return {
                self._name(name, places, depth): self.value(member, self._below(places, name), depth + 1)
                for name, member in value.items()
            }
        if isinstance(value, list):
            every = self._below(places, None)
            some = self._at_index(places, len(value), every)
            return [self.value(item, some.get(index, every), depth + 1) for index, item in enumerate(value)]
        return value

    def mask(self, places: Sequence[Place]) -> str:
        self.hit.update(number for number, _ in places)
        self.masks += 1
        return MASK

    def _below(self, places: Places, name: str | None) -> Places:
        """The places of the member with this name, or of an item of a list, whatever its index."""
        known = self._following.get((places, name))
        if known is not None:
            return known
        found: dict[Place, None] = {}
        plain = None if name is None else _comparable(name)
        for number, taken in places:
            step = self._steps[number][taken]
            if step.deep or (name is None and isinstance(step.key, str)):
                found[number, taken] = None
            if step.key is None or (name is not None and (step.key == name or (step.name and step.name == plain))):
                found[number, taken + 1] = None
        self._following[places, name] = below = tuple(found)
        return below

    def _at_index(self, places: Places, size: int, every: Places) -> dict[int, Places]:
        """The places of the items that a path names by their index, which is negative when it counts from the end."""
        found: dict[int, Places] = {}
        for number, taken in places:
            key = self._steps[number][taken].key
            if isinstance(key, int) and -size <= key < size:
                found[key % size] = (*found.get(key % size, every), (number, taken + 1))
        return found

    def _name(self, name: str, places: Places, depth: int) -> str:
        return name if name.isidentifier() or not begins_like_json(name) else self.text(name, places, depth)

    def text(self, text: str, places: Places, depth: int) -> str:
        """The text with the values at the places masked. JSON in it is read: one value, or several in a row. A text that
        begins like JSON and cannot be read, because it was cut for example, is masked as a whole. So is any other text in
        which the last name of a path is given a value, as in `token: x`, `?token=x` or `{"token": "x` in the middle of a
        sentence.
        """
        if text == MASK:
            return text
        values = _values(text) if begins_like_json(text) else None
        if values is None:
            return self.unreadable(text, places, depth)
        before = self.masks
        together = self.value(values, places, depth + 1) if len(values) > 1 else values
        if not isinstance(together, list):
            return MASK
        masked = [self.value(value, places, depth + 1) for value in together]
        if self.masks == before:
            return text
        try:
            return "\n".join(msgspec.json.encode(value).decode() for value in masked)
        except (UnicodeEncodeError, OverflowError):  # half a character, a number of too many digits
            return MASK

    def unreadable(self, text: str, places: Places, depth: int) -> str:  # of use to another walk
        """A text that is not JSON as a whole."""
        if begins_like_json(text):
            return self.mask(places)
        readable = readable_form(text)
        if _GIVES.search(readable) is None and "--" not in readable:
            return text
        forms = {readable, _LETTER.sub(lambda escape: chr(int(escape[1], 16)), readable)}
        giving = [place for place in places if any(_gives_value(form, self.last_name(*place)) for form in forms)]
        return self.mask(giving) if giving else text

    def all_places(self) -> Places:
        """The places before the first step."""
        return tuple((number, 0) for number in range(len(self._steps)))

    def last_name(self, number: int, taken: int) -> str:
        return next((step.name for step in reversed(self._steps[number][taken:]) if step.name), "")


def _comparable(name: str) -> str:
    """The letters and digits of the name, without case; a name without any is compared as it is."""
    plain = name if name.isascii() else unicodedata.normalize("NFKC", name)
    return "".join(filter(str.isalnum, plain.casefold())) or name


# --- text -------------------------------------------------------------------------------------------------------------

_INVISIBLE = r"[\s\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufffd]"
_BEGINNING = re.compile(rf"(?s:{_INVISIBLE}|/\*.*?\*/|//[^\n]*)*+")
"""What may stand before JSON: signs that nobody sees, and comments."""

_BETWEEN = re.compile(rf"{_INVISIBLE}*[,;]?{_INVISIBLE}*")
_JSON = re.compile(r"[{\[]|\"[\s\"\\]*(?:[{\[]|u00)")
"""The beginning of an object or a list, or of a text that holds one."""

_ESCAPED = re.compile(r"(?<!\\)\\++u([0-9a-fA-F]{4})")
_LETTER = re.compile(r"%(3[0-9]|[46][1-9a-f]|[57][0-9a])")
"""A letter or a digit in percent encoding, behind `casefold`."""

_GIVES = re.compile(r"[:=>|%]")
"""Without one of these signs, or two dashes before it, no name in a text is given a value."""

_LONGEST_COMMENT = 100
"""Characters. Behind each place of a name a text is searched so far for the end of a comment."""

_MOST_COMMENTS = 20
"""Behind so many and one more a name counts as given a value: to search on from each name in a comment would take too long."""


def begins_like_json(text: str) -> bool:
    return _JSON.match(text, _end(_BEGINNING, text, 0)) is not None


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


def value_at(text: str, position: int) -> tuple[Json, int] | None:
    """The JSON that begins here, and its end; None where none does."""
    try:
        found: tuple[Json, int] = _decoder.raw_decode(text, position)
    except (ValueError, RecursionError):
        return None
    return found


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


def readable_form(text: str) -> str:
    """The text without escapes, case and other forms of its letters."""
    if "\\" in text:
        text = _ESCAPED.sub(lambda escape: chr(int(escape[1], 16)), text)
    return (text if text.isascii() else unicodedata.normalize("NFKC", text)).casefold()


def _gives_value(readable: str, name: str) -> bool:
    """Whether the text, which is not JSON, gives a value to the name."""
    return bool(name) and assignment_of(name).search(readable) is not None


@lru_cache(maxsize=64)
def assignment_of(name: str) -> re.Pattern[str]:
    """The name as a word, with any sign between two of its letters, and a sign behind it that gives it a value. Quotes,
    spaces and the like may stand between the two, and comments. Or `--name value`, as programs take it."""
    begins = r"(?:(?<![^\W_])|(?<=\\[nrtbf])|(?<=%[0-9a-f]{2}))"
    letters = r"[\W_]?".join(map(re.escape, name))
    comment = rf"(?:/\*.{{0,{_LONGEST_COMMENT}}}?\*/|(?://|\#)[^\n]{{0,{_LONGEST_COMMENT}}}\n)"
    sign = r"%2[27]|&\w{2,6};|%(?!3[ad])"
    between = rf"(?:{sign}|[^\w:=>|%])*+"
    outside = rf"(?:{sign}|[^\w:=>|%/\#]|(?!{comment})[/\#])*+"
    comments = rf"(?:{outside}{comment}){{1,{_MOST_COMMENTS}}}+{outside}"
    gives = r"(?:[:=>|]|%3[ad])"
    flag = rf"--{letters}[\s\"']++(?!--)."
    return re.compile(rf"(?s){begins}{letters}(?:{between}{gives}|{comments}(?:{gives}|{comment}))|{flag}")
