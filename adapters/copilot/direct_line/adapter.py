"""The adapter of agents behind Direct Line. The first call of a thread starts its conversation; the thread keeps the watermark
and the conversation's token.

Law: a message is sent once; what became of it is read from the conversation.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from secrets import token_hex

from msgspec.structs import replace

from adapters.copilot.activities import Activity
from adapters.copilot.answer import Answer
from adapters.copilot.direct_line.begun import Begun
from adapters.copilot.direct_line.exchange import SIGNS, Exchange, Whose, latest, until_next
from adapters.copilot.direct_line.reception import Delivered, Reception
from adapters.copilot.direct_line.service import DirectLine, Joined
from adapters.copilot.direct_line.state import LineState, Token
from adapters.copilot.direct_line.turn_end import Patience, TurnEnd
from adapters.copilot.failures import CopilotFailures, nothing_sent
from adapters.copilot.message import Outgoing, encode, signs
from adapters.copilot.settings import CopilotSettings, DirectLineSettings
from gateway.a2a.model import Part
from gateway.ports.adapter import AdapterError, AdapterEvent, CallStarted, ErrorClass, PartReady, ServiceRequest
from gateway.ports.capabilities import Backend, Ongoing, ProbeReport, Tail
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner


class DirectLineAdapter:
    ownership = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)

    def __init__(self, settings: CopilotSettings, line: DirectLineSettings) -> None:
        self._failures = CopilotFailures(settings.secrets())
        self._line = DirectLine(settings, line, self._failures)
        self._patience = Patience(line.quiet, line.typing, settings.timeouts.first_byte)
        self._poll = line.poll
        self._begun = Begun()
        self.backend = Backend(self._line.address, settings.account)

    async def aclose(self) -> None:
        await self._line.aclose()

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        outgoing = self._encoded(request)
        if request.handle is None:
            state = LineState(user=f"a2a_{token_hex(16)}")
            with nothing_sent():
                joined = await self._line.start(state.user)
            self._begun.keep(joined.handle, state, joined.token)
            # The core continues this generator when the id of the conversation is stored.
            yield CallStarted(joined.handle)
        else:
            with nothing_sent():
                state, joined = await self._join(request, request.handle)
        exchange = Exchange(state.user, signs(request.items), state.last)
        async with aclosing(self._listen(joined, state, exchange, outgoing)) as events:
            async for event in events:
                yield event

    async def resume(self, request: ServiceRequest, call: Ongoing) -> AsyncGenerator[AdapterEvent, None]:
        """Reads the conversation again from where the call began. What came in pieces then comes whole."""
        if call.handle is None or call.run is None:
            raise self._failures.error(ErrorClass.BACKEND_FAILED, "the call has no message in a conversation")
        state, joined = await self._join(request, call.handle)
        exchange = Exchange(state.user, signs(request.items), state.last, sent=call.run)
        async with aclosing(self._listen(joined, state, exchange, None)) as events:
            async for event in events:
                yield event

    async def tail(self, request: ServiceRequest) -> Tail | None:
        if request.handle is None:
            return Tail(0)
        state, joined = await self._join(request, request.handle)
        activities, watermark = await self._all(joined, state.watermark)
        found = latest(activities, signs(request.items))
        if found is None:
            return Tail(0)
        place, held = found
        answer = Answer(cumulative=True)
        told = [event for each in until_next(activities[place + 1 :], state.user) for event in answer.receive(each)]
        if not answer.spoke:
            return Tail(held)
        told += answer.close()
        # What else answers that message is told at the beginning of the next turn.
        after = replace(state, watermark=watermark, last=activities[place].id, ended=answer.ended is not None)
        events = [await self._with_bytes(event) for event in told]
        done = answer.completed(joined.handle, state=after.json(), secret=self._kept(joined.token))
        return Tail(held, (*events, done))

    def check_handle(self, handle: str) -> None:
        if not self._line.opens_any:
            raise ValueError("a conversation can be adopted with the setting `secret` only: its token is not known")
        if not handle or any(mark in handle for mark in "/?#") or not handle.isprintable():
            raise ValueError("is not the id of a Direct Line conversation, as `conversationId` has it")

    async def probe(self) -> ProbeReport:
        await self._line.check()
        return ProbeReport(notes=("it takes the credentials", "whether the bot answers is seen by the first message"))

    # --- one turn

    async def _listen(
        self, joined: Joined, state: LineState, exchange: Exchange, outgoing: Outgoing | None
    ) -> AsyncGenerator[AdapterEvent, None]:
        """The events of the turn. Without `outgoing` its message is in the conversation already."""
        now = asyncio.get_running_loop().time
        answer, end, watermark = Answer(cumulative=True), TurnEnd(self._patience, now()), state.watermark
        started, again = False, outgoing is None
        async with Reception(self._line, joined, watermark, self._poll, repeats=again) as reception:
            if outgoing is None:
                end.name(exchange.sent)
                end.deliver(now())
            else:
                with nothing_sent():
                    await reception.ready()
                more = {"channelData": {SIGNS: list(exchange.signs)}}
                reception.send(partial(self._line.send, reception.joined, outgoing, exchange.user, more))
            while answer.ended is None:
                try:
                    news = await reception.next(end.deadline(answer))
                except TimeoutError:
                    break
                if isinstance(news, Delivered):
                    exchange.sent = exchange.sent or news.activity_id
                    end.name(news.activity_id)
                    end.deliver(now())
                    mine: Sequence[Activity] = ()
                else:
                    mine = [each for each in news.activities if self._is_told(each, exchange, end, now())]
                    watermark = news.watermark or watermark
                if not started and (mine or exchange.sent is not None):
                    yield CallStarted(joined.handle, exchange.sent)
                    started = True
                for event in (event for each in mine for event in answer.receive(each)):
                    yield await self._with_bytes(event)
            joined = reception.joined
        if answer.ended is None and not end.is_over(answer):
            # Who listens again would wait for ever.
            kind = ErrorClass.BACKEND_FAILED if outgoing is None else ErrorClass.TIMED_OUT
            raise self._failures.error(kind, "the bot did not finish its answer")
        if answer.failure is not None:
            raise self._failures.error(ErrorClass.BACKEND_FAILED, f"the bot ended the conversation: {answer.failure}")
        for event in answer.close():
            yield await self._with_bytes(event)
        after = replace(state, watermark=watermark, last=exchange.sent, ended=answer.ended is not None)
        self._begun.drop(joined.handle)
        yield answer.completed(joined.handle, state=after.json(), secret=self._kept(joined.token))

    def _is_told(self, activity: Activity, exchange: Exchange, end: TurnEnd, now: float) -> bool:
        whose = exchange.sort(activity)
        if whose is Whose.TOLD:
            end.hear(activity, now)
        elif whose is Whose.SENT:
            end.name(exchange.sent)
        return whose is Whose.TOLD

    def _encoded(self, request: ServiceRequest) -> Outgoing:
        try:
            return encode(request.items)
        except ValueError as error:
            raise self._failures.error(ErrorClass.REJECTED, str(error)) from error

    # --- conversations

    async def _join(self, request: ServiceRequest, handle: str) -> tuple[LineState, Joined]:
        begun, token = self._begun.find(handle)
        try:
            state = begun if request.state is None else LineState.read(request.state)
        except ValueError as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"the state cannot be read: {error}") from error
        if state.ended:
            raise self._failures.error(ErrorClass.HANDLE_EXPIRED, "the bot has ended the conversation")
        if not state.user:
            state = replace(state, user=f"a2a_{token_hex(16)}")
        return state, await self._line.join(handle, Token.read(request.secret) or token, state.watermark)

    async def _all(self, joined: Joined, watermark: str | None) -> tuple[list[Activity], str | None]:
        """All activities behind the watermark, and the watermark behind them."""
        found: list[Activity] = []
        while True:
            page, following = await self._line.activities(joined, watermark)
            found += page
            if not page or following in (None, watermark):
                return found, following or watermark
            watermark = following

    def _kept(self, token: Token) -> object:
        """A token that the settings can replace is not kept."""
        return None if self._line.opens_any else token.json()

    async def _with_bytes(self, event: AdapterEvent) -> AdapterEvent:
        """A file that Direct Line keeps for a day is told with its bytes, because its address holds a token."""
        match event:
            case PartReady(part=Part(url=str(url), media_type=kind, filename=name)) if self._line.keeps(url):
                try:
                    content, given = await self._line.file(url)
                except AdapterError:
                    return event
                raw = base64.b64encode(content).decode()
                return PartReady(Part(raw=raw, media_type=kind or given or None, filename=name))
        return event
