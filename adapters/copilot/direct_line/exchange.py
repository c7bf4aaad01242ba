"""Whose an activity of a conversation is, and which message it belongs to. Law: pure; nothing is told twice in whatever
turns, and the answer to a message that was given up is told in none.

Activities come again behind every new connection, and where a service gives no watermark or obeys none; the caller's own come
back from the service. Direct Line numbers the activities of a conversation: `CONVERSATION|0000012`.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import msgspec
from msgspec.structs import replace

from adapters.copilot.activities import END_OF_CONVERSATION, TYPING, Activity
from adapters.copilot.direct_line.state import LineState
from gateway.a2a.model import Json

SIGNS = "a2aItems"
"""The field of `channelData` with the signs of the items that a message carries. The service returns it unchanged."""

_USER_ROLES = ("user", 1)
_NUMBERED = re.compile(r"[^|]+\|([0-9]{1,15})")
_DIGEST_LENGTH = 16


class Whose(Enum):
    SENT = auto()
    """The message of this turn, as the conversation has it."""
    TOLD = auto()
    """Something of the bot for this turn."""
    NEITHER = auto()
    """Known already, of the caller's, or an answer to another message."""


@dataclass(slots=True)
class Exchange:
    """One message and its answer. `state` is what the thread knows from before: its `last` is the message whose answer may
    still go on."""

    state: LineState
    signs: Sequence[str]
    sent: str | None = None
    """The id of the message, once it is known."""
    _known: dict[str, None] = field(default_factory=dict)
    """The names of activities, in the order in which they came."""
    _given_up: dict[str, None] = field(default_factory=dict)
    """The ids of the caller's other messages."""
    _unsigned: dict[str, None] = field(default_factory=dict)
    """The ids of those without signs, which a service may have lost: one of them may be the message, until it is known."""

    def __post_init__(self) -> None:
        self._known.update(dict.fromkeys(self.state.told))
        self._given_up.update(dict.fromkeys(self.state.given_up))

    def sort(self, activity: Activity) -> Whose:
        return self._sorted(activity, self._unsigned if self.sent is None else self._given_up)

    def look_back(self, activities: Iterable[Activity]) -> list[Activity]:
        """What of these, from before the message, is left to tell."""
        found = [each for each in activities if self._sorted(each, self._given_up) is Whose.TOLD]
        if self.sent is not None:
            # An earlier try, whose outcome was not known, has arrived after all.
            self._given_up[self.sent] = None
            self.sent = None
        return found

    def is_before(self, activity: Activity) -> bool:
        """Whether the activity certainly was in the conversation before the message, and answers it in nothing."""
        if activity.reply_to_id is not None and activity.reply_to_id == self.sent:
            return False
        place, mine = _number(activity.id), _number(self.sent)
        return place is not None and mine is not None and place < mine

    def state_after(self, watermark: str | None) -> LineState:
        """What the thread keeps when all was told that was read."""
        numbers = [number for number in map(_number, self._known) if number is not None]
        unnumbered = (name for name in self._known if _number(name) is None)
        given_up = (name for name in (*self._given_up, *self._unsigned) if name != self.sent)
        known = self.state.knowing(unnumbered).giving_up(given_up)
        return replace(known, watermark=watermark, seen=max(numbers, default=self.state.seen))

    def _sorted(self, activity: Activity, unsigned: dict[str, None]) -> Whose:
        """`unsigned` is where a message without signs belongs."""
        if self._is_known(activity):
            return Whose.NEITHER
        if not is_own(activity, self.state.user):
            return Whose.NEITHER if self._answers_another(activity) else Whose.TOLD
        if activity.id and (activity.id == self.sent or (self.sent is None and signs_of(activity) == self.signs)):
            self.sent = activity.id
            return Whose.SENT
        if activity.id and activity.id != self.state.last:
            (self._given_up if signs_of(activity) else unsigned)[activity.id] = None
        return Whose.NEITHER

    def _is_known(self, activity: Activity) -> bool:
        name = _name(activity)
        if name is None:
            return False
        number, seen = _number(name), self.state.seen
        if name in self._known or (number is not None and seen is not None and number <= seen):
            return True
        self._known[name] = None
        return False

    def _answers_another(self, activity: Activity) -> bool:
        asked = activity.reply_to_id
        if asked is None or asked in (self.sent, self.state.last):
            return False
        if asked in self._given_up or (asked in self._unsigned and self.sent is not None):
            return True
        # A message that the service did not show, such as one whose task was cancelled before it came back.
        number, last, sent = _number(asked), _number(self.state.last), _number(self.sent)
        return number is not None and last is not None and sent is not None and last < number < sent


def is_own(activity: Activity, user: str) -> bool:
    sender = activity.sender
    by_name = sender is not None and (sender.role in _USER_ROLES or (bool(user) and sender.id == user))
    return by_name or bool(signs_of(activity))


def signs_of(activity: Activity) -> list[Json]:
    data = activity.channel_data
    found = data.get(SIGNS) if isinstance(data, dict) else None
    return found if isinstance(found, list) else []


def latest(activities: Sequence[Activity], signs: Sequence[str]) -> tuple[int, int] | None:
    """The place of the last message that carries the first of these items, and how many it carries; None without one."""
    for place in range(len(activities) - 1, -1, -1):
        carried = signs_of(activities[place])
        if carried and carried == list(signs[: len(carried)]):
            return place, len(carried)
    return None


def until_next(activities: Iterable[Activity], user: str) -> list[Activity]:
    """The activities of the bot up to the caller's next message."""
    found = []
    for activity in activities:
        if is_own(activity, user):
            break
        found.append(activity)
    return found


def has_ended(activities: Iterable[Activity], user: str) -> bool:
    """Whether the bot has ended the conversation, and nobody has spoken since."""
    ended = False
    for activity in activities:
        ended = activity.type == END_OF_CONVERSATION or (ended and not is_own(activity, user))
    return ended


def _number(name: str | None) -> int | None:
    found = None if name is None else _NUMBERED.fullmatch(name)
    return None if found is None else int(found[1])


def _name(activity: Activity) -> str | None:
    """What tells the activity apart from others: its id, or what it says. Signs of typing without an id come and go alike."""
    if activity.id:
        return activity.id
    if activity.type == TYPING:
        return None
    return hashlib.sha256(msgspec.json.encode(activity)).hexdigest()[:_DIGEST_LENGTH]
