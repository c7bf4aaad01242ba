"""The card of an agent that its backend describes. Law: pure; the operator's words stand on top, and what a card may not say is
left out of a description."""

import re
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from gateway.a2a.model import AgentCard, AgentSkill
from gateway.ports.capabilities import Description

MOST_SKILLS = 100
LONGEST_TEXT = 8000
"""Characters of one text of a description."""

_MEDIA_TYPE = re.compile(r"[^/\s;,]+/[^/\s;,]+")


class AgentCards(msgspec.Struct, frozen=True):
    """What callers are told of an agent: the public card, and for a principal the extended one, if there is one."""

    public: AgentCard
    extended: Callable[[str], AgentCard] | None = None


class DescribedCard(msgspec.Struct):
    """The cards of an agent, which change with the description. `make` makes them, signed, of None too: before the backend has
    answered. `since` is the time of the last change, in milliseconds since the epoch, None before the first."""

    make: Callable[[Description | None], AgentCards]
    cards: AgentCards
    description: Description | None = None
    since: int | None = None

    def tell(self, description: Description, now: int) -> bool:
        """Whether it says something new. Raises: ValueError for a description of which no card can be made."""
        if description == self.description:
            return False
        made = self.make(description)
        self.description, self.cards, self.since = description, made, now
        return True

    def extended(self, principal: str) -> AgentCard:
        """The card for this principal: the public one where there is no other."""
        make = self.cards.extended
        return self.cards.public if make is None else make(principal)


def usable(description: Description, passed: tuple[str, ...], given: tuple[str, ...]) -> Description:
    """The part of a description that a card can say: texts of a bounded length, whole skills, each id once, addresses of the
    web, and media types that the adapter passes on (`passed` to the agent, `given` by it)."""
    skills: dict[str, AgentSkill] = {}
    for skill in description.skills:
        if _is_whole(skill) and len(skills) < MOST_SKILLS:
            skills.setdefault(skill.id, _bounded(skill, passed, given))
    return Description(
        name=_text(description.name),
        description=_text(description.description),
        version=_text(description.version),
        skills=tuple(skills.values()),
        input_modes=_modes(description.input_modes, passed),
        output_modes=_modes(description.output_modes, given),
        documentation_url=_web_address(description.documentation_url),
        icon_url=_web_address(description.icon_url),
    )


def _is_whole(skill: AgentSkill) -> bool:
    return all((skill.id, skill.name, skill.description, skill.tags)) and len(skill.id) <= LONGEST_TEXT


def _bounded(skill: AgentSkill, passed: tuple[str, ...], given: tuple[str, ...]) -> AgentSkill:
    return replace(
        skill,
        name=skill.name[:LONGEST_TEXT],
        description=skill.description[:LONGEST_TEXT],
        tags=_texts(skill.tags),
        examples=_texts(skill.examples or ()) or None,
        input_modes=_modes(skill.input_modes or (), passed) or None,
        output_modes=_modes(skill.output_modes or (), given) or None,
    )


def _texts(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(text[:LONGEST_TEXT] for text in texts if text)[:MOST_SKILLS]


def _text(text: str | None) -> str | None:
    return text[:LONGEST_TEXT] if text else None


def _modes(modes: tuple[str, ...], passed: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(mode for mode in _texts(modes) if _MEDIA_TYPE.fullmatch(mode) and passes(mode, passed))


def passes(mode: str, offered: Iterable[str]) -> bool:
    """Whether one of the media types offered is this one, or stands for it: `image/*`, `*/*`."""
    kind = mode.partition("/")[0]
    return any(each in (mode, f"{kind}/*", "*/*") for each in offered)


def _web_address(url: str | None) -> str | None:
    try:
        parts = urlsplit(url or "")
    except ValueError:
        return None
    return url if parts.scheme in {"http", "https"} and parts.hostname and len(url or "") <= LONGEST_TEXT else None
