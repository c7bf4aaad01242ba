"""The parts of an artifact as its agent has them, and what an agent has behind those that are known. Law: pure; neighbouring
plain texts are one text, because a stored artifact has the pieces of a text as parts."""

from collections.abc import Iterable, Sequence
from hashlib import sha256

import msgspec
from msgspec.structs import replace

from adapters.a2a.state import Left
from gateway.a2a.model import Part
from gateway.ports.conversation import is_plain

_encoder = msgspec.json.Encoder(order="deterministic")


class Content:
    """The parts of an artifact, which grows."""

    __slots__ = ("_parts", "_texts")

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self._parts: list[Part] = []
        self._texts: list[str] = []
        self.add(parts)

    def grow(self, text: str) -> None:
        self._texts.append(text)

    def add(self, parts: Iterable[Part]) -> None:
        for part in parts:
            if is_plain(part):
                self._texts.append(part.text or "")
            else:
                self._parts += (*self._grown, part)
                self._texts.clear()

    @property
    def parts(self) -> tuple[Part, ...]:
        return (*self._parts, *self._grown)

    @property
    def text(self) -> str:
        """The plain texts."""
        return "".join(part.text or "" for part in self.parts if is_plain(part))

    @property
    def _grown(self) -> tuple[Part, ...]:
        return (Part(text="".join(self._texts)),) if self._texts else ()


def joined(parts: Iterable[Part]) -> tuple[Part, ...]:
    """The parts with neighbouring plain texts as one."""
    return Content(parts).parts


def behind(known: Sequence[Part], parts: Sequence[Part]) -> tuple[Part, ...] | None:
    """What the parts have behind those that are known, or None where they do not begin with them. Both are joined."""
    if not known:
        return tuple(parts)
    *before, last = known
    place = len(before)
    if len(parts) <= place or list(parts[:place]) != before:
        return None
    grown, rest = parts[place], tuple(parts[place + 1 :])
    if grown == last:
        return rest
    text = last.text or ""
    if not (is_plain(last) and is_plain(grown) and (grown.text or "").startswith(text)):
        return None
    return (Part(text=(grown.text or "")[len(text) :]), *rest)


def left(name: str, content: Content | None, shown: str) -> Left:
    """What the turn leaves of an artifact. `content` is None where its parts are not known."""
    if content is None:
        return Left(name, shown)
    parts = content.parts
    length = len(parts[-1].text or "") if parts and is_plain(parts[-1]) else -1
    return Left(name, shown, _digest(parts), len(parts), length)


def known_of(earlier: Left, parts: Sequence[Part]) -> tuple[Part, ...] | None:
    """The beginning of the joined parts that the earlier turn has left, or None where they begin with something else."""
    found = tuple(parts[: earlier.parts])
    if found and earlier.length >= 0 and is_plain(found[-1]):
        text = (found[-1].text or "")[: earlier.length]
        found = (*found[:-1], replace(found[-1], text=text))
    return found if earlier.digest == _digest(found) else None


def _digest(parts: Sequence[Part]) -> str:
    return sha256(_encoder.encode(parts)).hexdigest()[:32]
