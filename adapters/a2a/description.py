"""A card of another agent as the port describes one. Law: pure; what does not fit is left out, since the rest is still good."""

import re
from collections.abc import Iterator

from adapters.a2a.card import objects
from gateway.a2a.model import AgentSkill, Json
from gateway.ports.capabilities import Description

_MEDIA_TYPE = re.compile(r"[^/\s;,]+/[^/\s;,]+")
_NAMES = {"text": "text/plain", "data": "application/json", "json": "application/json", "file": "*/*", "*": "*/*"}
"""What cards say in the place of media types."""


def described(card: dict[str, Json]) -> Description:
    return Description(
        name=_text(card, "name"),
        description=_text(card, "description"),
        version=_text(card, "version"),
        skills=tuple(_skills(card.get("skills"))),
        input_modes=_modes(card.get("defaultInputModes")),
        output_modes=_modes(card.get("defaultOutputModes")),
        documentation_url=_text(card, "documentationUrl"),
        icon_url=_text(card, "iconUrl"),
    )


def _skills(value: Json) -> Iterator[AgentSkill]:
    for each in objects(value):
        key, name = _text(each, "id"), _text(each, "name")
        if key and name:
            yield AgentSkill(
                id=key,
                name=name,
                description=_text(each, "description") or "",
                tags=_texts(each.get("tags")),
                examples=_texts(each.get("examples")) or None,
                input_modes=_modes(each.get("inputModes")) or None,
                output_modes=_modes(each.get("outputModes")) or None,
            )


def _modes(value: Json) -> tuple[str, ...]:
    named = (_NAMES.get(each.lower(), each) for each in _texts(value))
    return tuple(dict.fromkeys(each for each in named if _MEDIA_TYPE.fullmatch(each)))


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str) and each) if isinstance(value, list) else ()


def _text(members: dict[str, Json], name: str) -> str | None:
    value = members.get(name)
    return value if isinstance(value, str) and value else None
