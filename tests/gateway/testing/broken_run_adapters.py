"""An adapter whose calls continue without a listener, and ones that are each wrong in one way."""

from collections.abc import Sequence
from contextlib import aclosing

from msgspec.structs import replace

from gateway.a2a.model import Part
from gateway.ports.adapter import AdapterEvent, CallCompleted, CallStarted, Ending, ServiceRequest, TextDelta
from gateway.ports.capabilities import Fate, Fetched, Ongoing
from gateway.ports.conversation import HandleKind, OutputItem
from tests.gateway.testing.broken_adapters import Backend, Events, Right


class Continues(Right):
    """Passes the suite with either kind of handle."""

    def __init__(self, backend: Backend, owner: object) -> None:
        super().__init__(backend, owner)  # type: ignore[arg-type]
        self.fates: dict[str, Fate] = {}

    async def call(self, request: ServiceRequest) -> Events:
        name = ""
        async with aclosing(super().call(request)) as events:
            async for event in events:
                yield self.asking(event)
                if isinstance(event, CallStarted):
                    run = self.run_of(self.calls) if self.owner.handle is HandleKind.STATIC else None
                    name = run or event.handle or ""
                    self.fates[name] = Fate.RUNNING
                    if run:
                        yield CallStarted(run=run)
                if isinstance(event, CallCompleted):
                    self.fates[name] = Fate.COMPLETED
                    if self.backend.question:
                        self.backend.waiting.add(name)

    def asking(self, event: AdapterEvent) -> AdapterEvent:
        if not (self.backend.question and isinstance(event, CallCompleted)):
            return event
        return replace(event, ending=Ending.INPUT_REQUIRED, message=(Part(text=self.backend.question),))

    def run_of(self, number: int) -> str:
        return f"run-{number}"

    def name_of(self, call: Ongoing) -> str:
        return call.run or call.handle or ""

    async def fetch(self, call: Ongoing) -> Fetched:
        fate = self.fates[self.name_of(call)]
        if fate is Fate.RUNNING and self.backend.ending == "complete":
            fate = Fate.COMPLETED
        return Fetched(fate, self.events_of(call) if fate is Fate.COMPLETED else ())

    async def resume(self, request: ServiceRequest, call: Ongoing) -> Events:
        for event in self.events_of(call):
            yield event

    async def cancel(self, call: Ongoing) -> bool:
        if self.name_of(call) not in self.fates:
            return False
        self.fates[self.name_of(call)] = Fate.FAILED
        return True

    async def withdraw(self, call: Ongoing, outcomes: Sequence[OutputItem]) -> None:
        self.backend.waiting.discard(self.name_of(call))

    def events_of(self, call: Ongoing) -> tuple[AdapterEvent, ...]:
        pieces = map(TextDelta, self.backend.pieces or ())
        return CallStarted(call.handle, call.run), *pieces, CallCompleted(call.handle)


class WithdrawsNothing(Continues):
    async def withdraw(self, call: Ongoing, outcomes: Sequence[OutputItem]) -> None:
        pass


class WithdrawsWhateverWaits(Continues):
    async def withdraw(self, call: Ongoing, outcomes: Sequence[OutputItem]) -> None:
        self.backend.waiting.clear()


class HidesItsRuns(Continues):
    def run_of(self, number: int) -> str:
        return ""


class NamesAllRunsAlike(Continues):
    def run_of(self, number: int) -> str:
        return "run"


class CancelsTheConversation(Continues):
    async def cancel(self, call: Ongoing) -> bool:
        return await super().cancel(Ongoing(call.handle))


class CancelsInWords(Continues):
    async def cancel(self, call: Ongoing) -> bool:
        return True


class TakesRunningForCompleted(Continues):
    async def fetch(self, call: Ongoing) -> Fetched:
        return Fetched(Fate.COMPLETED, self.events_of(call))


class TakesCompletedForGone(Continues):
    async def fetch(self, call: Ongoing) -> Fetched:
        found = await super().fetch(call)
        return Fetched(Fate.GONE) if found.fate is Fate.COMPLETED else found


class GoesOnWhereItStopped(Continues):
    def events_of(self, call: Ongoing) -> tuple[AdapterEvent, ...]:
        started, _, *rest = super().events_of(call)
        return started, *rest


class ConfirmsAnotherHandle(Continues):
    def events_of(self, call: Ongoing) -> tuple[AdapterEvent, ...]:
        return *super().events_of(call)[:-1], CallCompleted("another")


_WITHDRAWN = "test_what_a_call_has_left_waiting_is_withdrawn_once"
_NAMED = "test_{}_call_has_a_name_by_which_it_can_be_asked_about"
_CANCELLED = "test_{}_call_is_cancelled_by_its_names"
_FOUND = "test_{}_call_is_found_running_and_then_completed_though_nobody_listens"
_RESUMED = "test_{}_call_is_listened_to_again"


def _in(*turns: str, tests: tuple[str, ...]) -> set[str]:
    return {test.format(turn) for test in tests for turn in turns}


_FIRST, _LATER = "the_first", "a_later"
OF_STATIC: list[tuple[type[Right], set[str]]] = [
    (WithdrawsNothing, {_WITHDRAWN}),
    (WithdrawsWhateverWaits, {_WITHDRAWN}),
    (HidesItsRuns, _in(_FIRST, _LATER, tests=(_NAMED,))),
    (NamesAllRunsAlike, _in(_LATER, tests=(_NAMED,))),
    (CancelsTheConversation, _in(_FIRST, _LATER, tests=(_CANCELLED,))),
]
OF_BOTH: list[tuple[type[Right], set[str]]] = [
    (CancelsInWords, _in(_FIRST, _LATER, tests=(_CANCELLED,))),
    (TakesRunningForCompleted, _in(_FIRST, _LATER, tests=(_FOUND,))),
    (TakesCompletedForGone, _in(_FIRST, _LATER, tests=(_FOUND,))),
    (GoesOnWhereItStopped, _in(_FIRST, _LATER, tests=(_FOUND, _RESUMED))),
    (ConfirmsAnotherHandle, _in(_FIRST, tests=(_FOUND, _RESUMED))),
]
