"""The adapter of agents behind Direct Line. The first call of a thread starts its conversation; the thread keeps the watermark
and the conversation's token.

Law: a message is sent once; what became of it is read from the conversation.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from secrets import token_hex

import structlog
from msgspec.structs import replace

from adapters.copilot.activities import Activity, is_conversation_id
from adapters.copilot.answer import Answer
from adapters.copilot.direct_line.begun import Begun
from adapters.copilot.direct_line.exchange import Exchange, has_ended, latest, until_next
from adapters.copilot.direct_line.files import with_bytes
from adapters.copilot.direct_line.service import DirectLine, Joined
from adapters.copilot.direct_line.state import LineState, Token
from adapters.copilot.direct_line.turn import LineTurn, readable
from adapters.copilot.direct_line.turn_end import Patience
from adapters.copilot.failures import CopilotFailures
from adapters.copilot.message import Outgoing, encode, signs
from adapters.copilot.settings import CopilotSettings, DirectLineSettings
from adapters.http.failures import nothing_sent
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError, AdapterEvent, CallStarted, ErrorClass, ServiceRequest
from gateway.ports.capabilities import Backend, Ongoing, ProbeReport, Tail
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner

log = structlog.get_logger("adapters.copilot.direct_line.adapter")


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
            turn = self._turn(joined, Exchange(state, signs(request.items)))
        else:
            with nothing_sent():
                turn = await self._rejoin(request, request.handle)
        async with aclosing(turn.take(outgoing)) as events:
            async for event in events:
                yield event
        self._begun.drop(turn.joined.handle)

    async def resume(self, request: ServiceRequest, call: Ongoing) -> AsyncGenerator[AdapterEvent, None]:
        """Reads the conversation again from where the call began. What came in pieces then comes whole."""
        if call.handle is None or call.run is None:
            raise self._failures.error(ErrorClass.BACKEND_FAILED, "the call has no message in a conversation")
        try:
            state, reached = await self._reach(request, call.handle)
        except AdapterError as error:
            if error.kind is not ErrorClass.HANDLE_EXPIRED or request.state is not None:
                raise
            # The context goes on in another conversation.
            raise self._failures.error(ErrorClass.BACKEND_FAILED, error.detail) from error
        turn = self._turn(reached, Exchange(state, signs(request.items), sent=call.run), state.watermark)
        async with aclosing(turn.take(None)) as events:
            async for event in events:
                yield event
        self._begun.drop(turn.joined.handle)

    async def tail(self, request: ServiceRequest) -> Tail | None:
        if request.handle is None:
            return Tail(0)
        state, reached = await self._reach(request, request.handle)
        activities, watermark = await self._line.all_activities(reached, state.watermark)
        found = latest(activities, signs(request.items))
        if found is None:
            return Tail(0)
        place, held = found
        mine = activities[place].id
        exchange, answer = Exchange(state, (), sent=mine), Answer(cumulative=True)
        left = exchange.look_back(activities)
        said = [each for each in until_next(activities[place + 1 :], state.user) if each in left]
        events = [event for each in readable(said) for event in answer.receive(each)]
        if answer.spoke:
            events = [await with_bytes(self._line, event) for event in (*events, *answer.close())]
            known, ended = exchange.state_after(watermark), has_ended(activities, state.user)
            state = replace(known, last=None, ended=ended)
        else:
            events = []
        # What else answers that message is told in no turn: its task is over.
        after = state if mine is None else state.giving_up((mine,))
        done = answer.completed(reached.handle, state=after.json(), secret=self._line.to_keep(reached.token))
        return Tail(held, (*events, done))

    def check_handle(self, handle: str) -> None:
        if not self._line.opens_any:
            raise ValueError("a conversation can be adopted with the setting `secret` only: its token is not known")
        if not is_conversation_id(handle):
            raise ValueError("is not the id of a Direct Line conversation, as `conversationId` has it")

    async def probe(self) -> ProbeReport:
        await self._line.check()
        return ProbeReport(notes=("it takes the credentials", "whether the bot answers is seen by the first message"))

    # --- conversations

    def _turn(
        self, joined: Joined, exchange: Exchange, watermark: str | None = None, idle: Sequence[Activity] = ()
    ) -> LineTurn:
        return LineTurn(self._line, self._failures, self._patience, self._poll, joined, exchange, watermark, idle)

    async def _rejoin(self, request: ServiceRequest, handle: str) -> LineTurn:
        """The next turn of a conversation, with what came in it since. Raises: AdapterError."""
        state, reached = await self._reach(request, handle)
        try:
            found, watermark = await self._line.all_activities(reached, state.watermark)
        except AdapterError as error:
            if error.kind is not ErrorClass.CONTRACT_BROKEN:
                raise
            # The conversation is heard from now on, so that what it holds does not end it.
            log.warning("conversation.not-read", detail=error.detail)
            drop_tracebacks(error)
            found, watermark = [], None
        if has_ended(found, state.user):
            raise self._failures.error(ErrorClass.HANDLE_EXPIRED, "the bot has ended the conversation")
        exchange = Exchange(state, signs(request.items))
        idle = exchange.look_back(found)
        began_here = request.state is not None or self._begun.has(handle)
        return self._turn(await self._line.join(reached, watermark), exchange, watermark, idle if began_here else ())

    async def _reach(self, request: ServiceRequest, handle: str) -> tuple[LineState, Joined]:
        begun, token = self._begun.find(handle)
        try:
            state = begun if request.state is None else LineState.read(request.state)
        except ValueError as error:
            raise self._failures.error(ErrorClass.CONTRACT_BROKEN, f"the state cannot be read: {error}") from error
        if state.ended:
            raise self._failures.error(ErrorClass.HANDLE_EXPIRED, "the bot has ended the conversation")
        if not state.user:
            state = replace(state, user=f"a2a_{token_hex(16)}")
        return state, await self._line.reach(handle, Token.read(request.secret) or token)

    def _encoded(self, request: ServiceRequest) -> Outgoing:
        try:
            return encode(request.items)
        except ValueError as error:
            raise self._failures.unsendable("A file is no base64.", str(error)) from error
