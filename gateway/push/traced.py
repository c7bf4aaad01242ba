"""The span of a post, in the trace of the turn of which it tells. Law: a receiver is given nothing but where the post is in
that trace."""

from collections.abc import Mapping

from gateway.core.turn_trace import locate
from gateway.foundation.clock import Clock
from gateway.foundation.trace import TraceContext
from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.push import PushConfig, PushReads
from gateway.ports.observer import Observer
from gateway.ports.spans import PushSpan
from gateway.push.webhook import Outcome


class TracedPost:
    __slots__ = ("_began", "_clock", "_config", "_number", "_observer", "_parent", "_place")

    def __init__(
        self, observer: Observer, clock: Clock, config: PushConfig, number: int, turn: str, parent: TraceContext
    ) -> None:
        self._observer, self._clock, self._config, self._number = observer, clock, config, number
        self._began, self._parent = clock.now(), parent.span_id
        self._place = parent.child(turn, "push", config.id, number, self._began)

    @classmethod
    async def begun(
        cls, ledger: PushReads, observer: Observer, clock: Clock, config: PushConfig, number: int
    ) -> "TracedPost | None":
        """Of a post of the event with this number. None where its turn is gone, or cannot be read."""
        try:
            found = await ledger.turn_of_event(config.task, number)
        except LedgerUnavailable:
            return None
        if found is None:
            return None
        turn, caller = found
        return cls(observer, clock, config, number, turn, locate(turn, caller, observer.samples)[0])

    @property
    def headers(self) -> Mapping[str, str]:
        return self._place.headers()

    def end(self, outcome: Outcome) -> None:
        if self._place.sampled:
            failure = "" if outcome.delivered else str(outcome.status or "no_answer")
            self._observer.spanned(
                PushSpan(
                    place=self._place,
                    parent=self._parent,
                    began=self._began,
                    ended=self._clock.now(),
                    failure=failure,
                    task=self._config.task,
                    config=self._config.id,
                    number=self._number,
                    status=outcome.status,
                )
            )
