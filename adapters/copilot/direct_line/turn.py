"""One turn of a conversation: its message is sent, and what the bot says is told until the turn is over.

Law: that the message was taken is told before anything of its answer is read, and only its own answer can spoil a turn.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from functools import partial

import structlog
from msgspec.structs import replace

from adapters.copilot.activities import END_OF_CONVERSATION, Activity
from adapters.copilot.answer import Answer
from adapters.copilot.direct_line.exchange import SIGNS, Exchange, Whose
from adapters.copilot.direct_line.files import with_bytes
from adapters.copilot.direct_line.reception import Deaf, Delivered, Heard, Reception
from adapters.copilot.direct_line.service import DirectLine, Joined
from adapters.copilot.direct_line.turn_end import Patience, TurnEnd
from adapters.copilot.failures import CopilotFailures
from adapters.copilot.message import Outgoing
from adapters.http.failures import nothing_sent
from gateway.ports.adapter import NOT_PROCESSED, AdapterError, AdapterEvent, CallStarted, ErrorClass

log = structlog.get_logger("adapters.copilot.direct_line.turn")


class LineTurn:
    """`idle` is what the bot said between two turns; it is told at the beginning of this one. `poll` is in seconds."""

    def __init__(
        self,
        line: DirectLine,
        failures: CopilotFailures,
        patience: Patience,
        poll: float,
        joined: Joined,
        exchange: Exchange,
        watermark: str | None = None,
        idle: Sequence[Activity] = (),
    ) -> None:
        self.joined = joined
        self._line = line
        self._failures = failures
        self._poll = poll
        self._exchange = exchange
        self._watermark = watermark
        self._answer = Answer(cumulative=True)
        self._end = TurnEnd(patience, self._now(), exchange.state.replies)
        self._waiting = [each for each in readable(idle) if each.type != END_OF_CONVERSATION]
        """What is told when it is known that the conversation has the message."""
        self._doubtful: list[Activity] = []
        """What decides about the turn only if it came behind the message."""
        self._named: str | None = None
        self._has_begun = False

    async def take(self, outgoing: Outgoing | None) -> AsyncGenerator[AdapterEvent, None]:
        """The events of the turn. Without `outgoing` its message is in the conversation already."""
        answer, end, exchange, again = self._answer, self._end, self._exchange, outgoing is None
        async with Reception(self._line, self.joined, self._watermark, self._poll, repeats=again) as reception:
            if outgoing is None:
                end.name(exchange.sent)
                end.deliver(self._now())
            else:
                with nothing_sent():
                    await reception.ready()
                more = {"channelData": {SIGNS: list(exchange.signs)}}
                user = exchange.state.user
                reception.send(partial(self._line.send, reception.joined, outgoing, user, more))
            deaf: AdapterError | None = None
            while answer.ended is None:
                try:
                    news = await self._next(reception)
                except TimeoutError:
                    break
                deaf = news.error if isinstance(news, Deaf) else deaf
                mine = () if isinstance(news, Deaf) else self._taken(news)
                if exchange.sent != self._named or (mine and not self._has_begun):
                    self._named, self._has_begun = exchange.sent, True
                    yield CallStarted(self.joined.handle, exchange.sent)
                for event in self._told(mine):
                    yield await with_bytes(self._line, event)
                if deaf is not None and (exchange.sent is not None or end.delivered):
                    raise deaf
            self.joined = reception.joined
        for event in self._closed():
            yield await with_bytes(self._line, event)

    async def _next(self, reception: Reception) -> Heard | Delivered | Deaf:
        """Raises: AdapterError; TimeoutError when the turn is over."""
        try:
            return await reception.next(self._end.deadline(self._answer))
        except AdapterError as error:
            if error.kind in NOT_PROCESSED and any(each.type == END_OF_CONVERSATION for each in self._doubtful):
                raise self._ended() from error
            raise

    def _taken(self, news: Heard | Delivered) -> Sequence[Activity]:
        """What is to be told now."""
        exchange, end, now = self._exchange, self._end, self._now()
        if isinstance(news, Delivered):
            exchange.sent = exchange.sent or news.activity_id
            end.name(news.activity_id)
            end.deliver(now)
            heard: list[Activity] = []
        else:
            self._watermark = news.watermark or self._watermark
            heard = [each for each in news.activities if self._is_told(each, now)]
        if exchange.sent is None and not end.delivered:
            self._doubtful += (each for each in heard if _decides(each))
            heard = [each for each in heard if not _decides(each)]
        else:
            heard, self._doubtful = [*self._doubtful, *heard], []
        if heard or exchange.sent is not None:
            heard, self._waiting = [*self._waiting, *heard], []
        return heard

    def _is_told(self, activity: Activity, now: float) -> bool:
        whose = self._exchange.sort(activity)
        if whose is Whose.TOLD:
            self._end.hear(activity, now)
        elif whose is Whose.SENT:
            self._end.name(self._exchange.sent)
        return whose is Whose.TOLD

    def _told(self, activities: Iterable[Activity]) -> Iterator[AdapterEvent]:
        """Raises: AdapterError for what decides that there is no answer."""
        for activity in activities:
            if activity.type == END_OF_CONVERSATION and self._exchange.is_before(activity):
                raise self._ended()
            if activity.unreadable is not None and not self._may_be_answer(activity):
                _passed_over(activity)
                continue
            try:
                yield from self._answer.receive(activity)
            except ValueError as error:
                raise self._failures.error(ErrorClass.CONTRACT_BROKEN, str(error)) from error

    def _may_be_answer(self, activity: Activity) -> bool:
        asked, sent = activity.reply_to_id, self._exchange.sent
        if asked is not None and sent is not None:
            return asked == sent
        return self._exchange.state.replies is not True and not self._exchange.is_before(activity)

    def _closed(self) -> Iterator[AdapterEvent]:
        """Raises: AdapterError for a turn that is over without an answer."""
        answer, end, exchange = self._answer, self._end, self._exchange
        if answer.ended is None and not end.is_over(answer):
            # Who listens again would wait as long in vain.
            raise self._failures.error(ErrorClass.BACKEND_FAILED, "the bot did not finish its answer in time")
        if answer.failure is not None:
            raise self._failures.error(ErrorClass.BACKEND_FAILED, f"the bot ended the conversation: {answer.failure}")
        yield from answer.close()
        known, ended = exchange.state_after(self._watermark), answer.ended is not None
        after = replace(known, last=exchange.sent, ended=ended, replies=end.replied)
        yield answer.completed(self.joined.handle, state=after.json(), secret=self._line.to_keep(self.joined.token))

    def _ended(self) -> AdapterError:
        return self._failures.error(ErrorClass.HANDLE_EXPIRED, "the bot has ended the conversation")

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


def readable(activities: Iterable[Activity]) -> Iterator[Activity]:
    """All but messages that cannot be read, where none of them is the answer that is waited for."""
    for activity in activities:
        if activity.unreadable is None:
            yield activity
        else:
            _passed_over(activity)


def _decides(activity: Activity) -> bool:
    return activity.type == END_OF_CONVERSATION or activity.unreadable is not None


def _passed_over(activity: Activity) -> None:
    log.warning("activity.passed-over", activity=activity.id, detail=activity.unreadable)
