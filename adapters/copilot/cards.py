"""Cards: what they say, what they ask, where they send the user. Law: a card of an unknown form says what text it has, and
breaks nothing.

Source: Bot Framework cards (hero, thumbnail, receipt, sign-in, OAuth); Adaptive Cards 1.6.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeGuard
from urllib.parse import urlsplit

import msgspec

from adapters.copilot.activities import Attachment, CardAction, text_of
from gateway.a2a import nesting
from gateway.a2a.model import Json
from gateway.foundation.addresses import is_loopback

_PREFIX = "application/vnd.microsoft.card."
_ADAPTIVE = f"{_PREFIX}adaptive"
_OAUTH = f"{_PREFIX}oauth"
_SIGN_IN = f"{_PREFIX}signin"

_OPENS = frozenset({"openUrl", "downloadFile", "playAudio", "playVideo", "showImage"})
_SIGNS_IN = frozenset({"signin", "openUrl"})
_BELOW = ("items", "columns", "rows", "cells", "body", "card")
_WORDS = ("title", "subtitle", "text")
_NO_ADDRESS = re.compile(r"[^!-~]|[\"<>\\^`{|}]")


@dataclass(slots=True)
class Card:
    """`choices` and `inputs` are JSON objects; `sign_in` is the address where the user has to consent, for `party`."""

    lines: list[str] = field(default_factory=list)
    choices: list[Json] = field(default_factory=list)
    inputs: list[Json] = field(default_factory=list)
    sign_in: str | None = None
    party: str = ""

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


def is_card(attachment: Attachment) -> bool:
    return attachment.content_type.startswith(_PREFIX)


def read_card(attachment: Attachment) -> Card:
    content = _content(attachment.content)
    card = Card()
    if attachment.content_type == _ADAPTIVE:
        _read_adaptive(content, card)
        return card
    card.lines += [word for name in _WORDS if (word := text_of(content.get(name)))]
    signs_in = attachment.content_type in (_OAUTH, _SIGN_IN)
    for button in _dicts(content.get("buttons")):
        if signs_in and button.get("type") in _SIGNS_IN and _is_page(button.get("value")):
            card.sign_in = card.sign_in or button["value"]
        else:
            _add_button(card, button)
    if attachment.content_type == _OAUTH:
        name = content.get("connectionName")
        card.party = f"oauth:{name}" if isinstance(name, str) and name else "oauth"
    return card


def _content(given: Json) -> dict[str, Json]:
    """Some bots give a card as its JSON text."""
    if isinstance(given, str):
        try:
            given = nesting.decode(given)
        except msgspec.DecodeError:
            return {}
    return given if isinstance(given, dict) else {}


def choices_of(actions: Iterable[CardAction]) -> Card:
    """Suggested actions, as a card of nothing but buttons."""
    card = Card()
    for action in actions:
        _add_button(card, {"type": action.type, "title": action.title, "value": action.value})
    return card


def _is_page(value: Json) -> TypeGuard[str]:
    """Whether a user can be sent there. A bot in an app of its own gives its button a code instead."""
    if not isinstance(value, str) or _NO_ADDRESS.search(value):
        return False
    try:
        parts = urlsplit(value)
        host = parts.hostname or ""
    except ValueError:
        return False
    local = parts.scheme == "http" and is_loopback(host)
    return bool(host) and "@" not in parts.netloc and (parts.scheme == "https" or local)


def _add_button(card: Card, button: dict[str, Json]) -> None:
    title, value = text_of(button.get("title")), button.get("value")
    shown = title or value
    if button.get("type") in _OPENS:
        card.lines.append(f"{shown}: {value}" if shown != value else f"{value}")
    elif shown is not None:
        card.choices.append({"title": shown, "value": shown if value is None else value})


def _read_adaptive(element: dict[str, Json], card: Card) -> None:
    kind = element.get("type")
    if not isinstance(kind, str):
        kind = ""
    if kind.startswith("Input."):
        _add_input(element, kind, card)
    elif kind.startswith("Action."):
        _add_action(element, kind, card)
        return
    elif kind == "FactSet":
        card.lines += [f"{fact.get('title')}: {fact.get('value')}" for fact in _dicts(element.get("facts"))]
    elif kind == "RichTextBlock":
        card.lines.append("".join(_inline(each) for each in _list(element.get("inlines"))))
    elif isinstance(text := element.get("text"), str) and text:
        card.lines.append(text)
    for below in (*_children(element), *_dicts(element.get("actions"))):
        _read_adaptive(below, card)


def _children(element: dict[str, Json]) -> Iterator[dict[str, Json]]:
    for name in _BELOW:
        below = element.get(name)
        yield from (below,) if isinstance(below, dict) else _dicts(below)


def _add_input(element: dict[str, Json], kind: str, card: Card) -> None:
    named = {name: element[name] for name in ("id", "label", "placeholder") if isinstance(element.get(name), str)}
    choices = [
        {"title": choice.get("title"), "value": choice.get("value")} for choice in _dicts(element.get("choices"))
    ]
    label = element.get("label")
    if isinstance(label, str) and label:
        card.lines.append(label)
    given: dict[str, Json] = {"type": kind.removeprefix("Input."), **named}
    card.inputs.append(given | {"choices": choices} if choices else given)


def _add_action(element: dict[str, Json], kind: str, card: Card) -> None:
    title = element.get("title")
    if kind == "Action.OpenUrl":
        card.lines.append(f"{title}: {element.get('url')}" if title else f"{element.get('url')}")
    elif kind in ("Action.Submit", "Action.Execute"):
        data = element.get("data")
        card.choices.append({"title": title, "value": title if data is None else data})
    elif kind == "Action.ShowCard" and isinstance(below := element.get("card"), dict):
        _read_adaptive(below, card)


def _inline(value: Json) -> str:
    text = value.get("text") if isinstance(value, dict) else value
    return text if isinstance(text, str) else ""


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _dicts(value: Json) -> list[dict[str, Json]]:
    return [each for each in _list(value) if isinstance(each, dict)]
