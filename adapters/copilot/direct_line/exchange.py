"""Whose an activity of a conversation is, and which message it belongs to. Law: pure; nothing is told twice, and the answer to
a message that was given up is not told as that to another.

Activities come again behind every new connection, and the caller's own come back from the service.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from adapters.copilot.activities import Activity
from gateway.a2a.model import Json

SIGNS = "a2aItems"
"""The field of `channelData` with the signs of the items that a message carries. The service returns it unchanged."""

_USER_ROLES = ("user", 1)


class Whose(Enum):
    SENT = auto()
    """The message of this turn, as the conversation has it."""
    TOLD = auto()
    """Something of the bot for this turn."""
    NEITHER = auto()
    """Known already, of the caller's, or an answer to another message."""


@dataclass(slots=True)
class Exchange:
    """One message and its answer. `last` is the id of the message before, whose answer may still go on."""

    user: str
    signs: Sequence[str]
    last: str | None = None
    sent: str | None = None
    """The id of the message, once it is known."""
    _known: set[str] = field(default_factory=set)
    _others: set[str] = field(default_factory=set)
    """The ids of the caller's other messages."""

    def sort(self, activity: Activity) -> Whose:
        if activity.id:
            if activity.id in self._known:
                return Whose.NEITHER
            self._known.add(activity.id)
        if not is_own(activity, self.user):
            return Whose.NEITHER if activity.reply_to_id in self._others else Whose.TOLD
        if activity.id and (activity.id == self.sent or (self.sent is None and signs_of(activity) == self.signs)):
            self.sent = activity.id
            return Whose.SENT
        if activity.id and activity.id != self.last:
            self._others.add(activity.id)
        return Whose.NEITHER


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
