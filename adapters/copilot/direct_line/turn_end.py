"""When a turn of a bot is over, which Direct Line does not tell. Law: pure; a time is of the monotonic clock, in seconds.

A turn is over when the bot ends the conversation, when its answer says that it expects input, or when it has been silent for
as long as its last activity allows: `quiet` behind a message, `typing` behind a sign that more follows. A message in pieces, a
step of a plan, and a bot that has not answered yet have the time that any answer has.

Most bots say which message they answer. In a conversation where the bot does, what does not say so is no answer: a greeting,
a reminder. Where it never did, any message may be the answer. In the first turn that is not known yet: a message that does not
say what it answers may be the answer or a greeting, and is waited behind for `typing`.
"""

from dataclasses import dataclass, field

from adapters.copilot.activities import MESSAGE, TYPING, Activity, stream_of
from adapters.copilot.answer import Answer


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds of silence. `answer`: before a turn counts as unanswered."""

    quiet: float
    typing: float
    answer: float


@dataclass(slots=True)
class TurnEnd:
    """`since` is the time of the last activity. `replies`: whether the bot is known to say which message it answers; None: not
    known. `delivered`: the service has taken the message, and most bots have then done their work."""

    patience: Patience
    since: float
    replies: bool | None = None
    delivered: bool = False
    _sent: set[str] = field(default_factory=set)
    _replied_to: set[str] = field(default_factory=set)
    """The ids that messages of the bot have answered."""
    _unbound: bool = False
    """A message came that does not say what it answers."""

    def name(self, activity_id: str | None) -> None:
        """The message has this id."""
        if activity_id is not None:
            self._sent.add(activity_id)

    def deliver(self, now: float) -> None:
        self.delivered, self.since = True, now

    def hear(self, activity: Activity, now: float) -> None:
        self.since = now
        if activity.type != MESSAGE and not (activity.type == TYPING and _is_final(activity)):
            return
        if activity.reply_to_id is None:
            self._unbound = True
        else:
            self._replied_to.add(activity.reply_to_id)

    @property
    def replied(self) -> bool | None:
        """Whether the answer says which message it answers; what was known before where there is no answer."""
        return True if self._is_answered else False if self._unbound else self.replies

    def deadline(self, answer: Answer) -> float | None:
        """The time at which the silence decides; None as long as the service has not taken the message."""
        if not self.delivered:
            return None
        if answer.open or not (self._is_answered or self._may_be_answered):
            return self.since + self.patience.answer
        if not self._is_answered and self.replies is None:
            return self.since + max(self.patience.typing, self.patience.quiet)
        if answer.expects:
            return self.since
        return self.since + (self.patience.typing if answer.goes_on else self.patience.quiet)

    def is_over(self, answer: Answer) -> bool:
        """Whether a silence that has lasted up to the deadline ends the turn; else the bot owes an answer."""
        return answer.spoke and not answer.open

    @property
    def _is_answered(self) -> bool:
        # Where the service gives the message no id, nothing shows what else was answered.
        return not self._sent.isdisjoint(self._replied_to) if self._sent else bool(self._replied_to)

    @property
    def _may_be_answered(self) -> bool:
        return self._unbound and self.replies is not True


def _is_final(activity: Activity) -> bool:
    info = stream_of(activity)
    return info is not None and info.kind == "final"
