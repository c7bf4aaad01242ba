"""The extended card of an agent: what its public card says, and the skills that only some callers see.

Law: a caller learns nothing of a skill that is not for its principal. Source: A2A 1.0, section 3.1.11.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import msgspec
from msgspec.structs import replace

from gateway.a2a.model import AgentCard, AgentSkill


class ExtendedSkill(msgspec.Struct, frozen=True):
    """A skill for callers whose principal matches one of the patterns."""

    skill: AgentSkill
    principals: tuple[str, ...]

    def is_for(self, principal: str) -> bool:
        return any(fnmatchcase(principal, pattern) for pattern in self.principals)


@dataclass(frozen=True, slots=True)
class ExtendedCard:
    """`sign` makes the card that is sent of a card. A skill takes the place of a public one with its id."""

    public: AgentCard
    skills: tuple[ExtendedSkill, ...]
    sign: Callable[[AgentCard], AgentCard]
    _made: dict[tuple[bool, ...], AgentCard] = field(default_factory=dict)

    def __call__(self, principal: str) -> AgentCard:
        """The card for this caller. Callers that see the same skills get the same card, with the same signature."""
        seen = tuple([extended.is_for(principal) for extended in self.skills])
        made = self._made.get(seen)
        if made is None:
            made = self._made[seen] = self.sign(self._with(seen))
        return made

    def _with(self, seen: tuple[bool, ...]) -> AgentCard:
        skills = {skill.id: skill for skill in self.public.skills}
        skills |= {each.skill.id: each.skill for each, shown in zip(self.skills, seen, strict=True) if shown}
        return replace(self.public, skills=tuple(skills.values()))
