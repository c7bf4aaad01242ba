"""When a turn of a bot is over, which Direct Line does not tell. Law: pure; a time is of the monotonic clock, in seconds.

A turn is over when the bot ends the conversation, when its answer says that it expects input, or when it has been silent for
as long as its last activity allows: `quiet` behind a message, `typing` behind a sign that more follows. A message in pieces, a
step of a plan, and a bot that has not answered yet have the time that any answer has.
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
    """`since` is the time of the last activity. `delivered`: the service has taken the message, and most bots have then done
    their work. `answered`: a message came that may be the answer."""

    patience: Patience
    since: float
    delivered: bool = False
    answered: bool = False
    _sent: set[str] = field(default_factory=set)

    def name(self, activity_id: str | None) -> None:
        """The message has this id."""
        if activity_id is not None:
            self._sent.add(activity_id)

    def deliver(self, now: float) -> None:
        self.delivered, self.since = True, now

    def hear(self, activity: Activity, now: float) -> None:
        self.since = now
        ends = activity.type == MESSAGE or (activity.type == TYPING and _is_final(activity))
        if ends and self._may_answer(activity):
            self.answered = True

    def deadline(self, answer: Answer) -> float | None:
        """The time at which the silence decides; None as long as the service has not taken the message."""
        if not self.delivered:
            return None
        if not self.answered or answer.open:
            return self.since + self.patience.answer
        if answer.expects:
            return self.since
        return self.since + (self.patience.typing if answer.goes_on else self.patience.quiet)

    def is_over(self, answer: Answer) -> bool:
        """Whether a silence that has lasted up to the deadline ends the turn; else the bot owes an answer."""
        return answer.spoke and not answer.open

    def _may_answer(self, activity: Activity) -> bool:
        """Whether it answers what was sent: it says so, or does not say what it answers."""
        return activity.reply_to_id is None or not self._sent or activity.reply_to_id in self._sent


def _is_final(activity: Activity) -> bool:
    info = stream_of(activity)
    return info is not None and info.kind == "final"
