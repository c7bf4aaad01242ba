"""The part of the conformance suite for calls that continue at the backend without a listener. Law: it knows no backend."""

from collections.abc import Sequence

import msgspec
import pytest

from gateway.ports.adapter import Adapter, AdapterEvent, CallStarted, ServiceRequest, TextDelta
from gateway.ports.capabilities import CanCancel, CanFetch, CanResume, CanWithdraw, Fate, Ongoing
from gateway.ports.conversation import HandleKind
from gateway.testing.adapter_scripts import collect, completed, follow_up, of_type, request, skip, text
from gateway.testing.checks import bounded, require, time_limit


class RunTests:
    """A part of `AdapterSuite`."""

    _earlier: str | None = None

    async def backend_answers(self, *pieces: str) -> None:
        raise NotImplementedError

    async def backend_stalls(self, *pieces: str) -> None:
        skip("backend_stalls", *pieces)

    async def backend_goes_on(self, *pieces: str) -> None:
        """The answer that stalls goes on: it gets these pieces and its end, although its first listener has left. Returns when
        the answer has ended."""
        skip("backend_goes_on", *pieces)

    async def backend_asks(self, question: str) -> None:
        """It answers every later message with this question, and waits for the answer."""
        skip("backend_asks", question)

    async def backend_waits(self) -> bool:
        """Whether anything in the latest conversation waits for its caller."""
        skip("backend_waits")

    async def test_what_a_call_has_left_waiting_is_withdrawn_once(self, adapter: Adapter) -> None:
        """The next message begins anew, and a second withdrawal leaves that alone."""
        if not isinstance(adapter, CanWithdraw):
            pytest.skip("the adapter has no CanWithdraw")
        if adapter.ownership.handle is not HandleKind.STATIC:
            pytest.skip(f"the kind of handle is {adapter.ownership.handle}")
        await self.backend_asks("Which?")
        asked = await collect(adapter, request("Hi"))
        names = Ongoing(completed(asked).handle, _names(asked).run)
        require(bool(names.run), f"the call was {asked!r}, which name no run")
        require(await self.backend_waits(), "the backend does not wait for an answer to its question")
        await bounded(adapter.withdraw(names, ()), "withdrawing a question")
        require(not await self.backend_waits(), "the question was withdrawn, and the backend waits for its answer")
        following = follow_up(adapter, completed(asked), "Hi", "Which?", "And now?")
        again = await collect(adapter, msgspec.structs.replace(following, task_id="another"))
        require(text(again) + _words(again) == "Which?", f"the message behind a withdrawn question got {again!r}")
        await bounded(adapter.withdraw(names, ()), "withdrawing a question again")
        require(await self.backend_waits(), "the withdrawal of a question has ended the question behind it")

    async def test_the_first_call_has_a_name_by_which_it_can_be_asked_about(self, adapter: Adapter) -> None:
        await self._is_named(adapter, 1)

    async def test_a_later_call_has_a_name_by_which_it_can_be_asked_about(self, adapter: Adapter) -> None:
        await self._is_named(adapter, 2)

    async def _is_named(self, adapter: Adapter, turn: int) -> None:
        self._needs_calls_that_go_on(adapter)
        _, events = await self._stalled(adapter, turn)
        names = _names(events)
        static = adapter.ownership.handle is HandleKind.STATIC
        name = names.run if static else names.run or names.handle
        require(bool(name), f"the call began with {events!r}, which name no call")
        if turn == 2:
            require(name != self._earlier, f"two calls have the name {name!r}")

    async def test_the_first_call_is_cancelled_by_its_names(self, adapter: Adapter) -> None:
        await self._is_cancelled(adapter, 1)

    async def test_a_later_call_is_cancelled_by_its_names(self, adapter: Adapter) -> None:
        await self._is_cancelled(adapter, 2)

    async def _is_cancelled(self, adapter: Adapter, turn: int) -> None:
        if not isinstance(adapter, CanCancel):
            pytest.skip("the adapter has no CanCancel")
        asked, events = await self._stalled(adapter, turn)
        names = _within(asked, _names(events))
        require(await bounded(adapter.cancel(names), "cancelling a call"), f"the call {names!r} was not cancelled")
        if isinstance(adapter, CanFetch):
            found = await bounded(adapter.fetch(names), "looking a cancelled call up")
            require(found.fate is not Fate.RUNNING, "a cancelled call is still running")

    async def test_the_first_call_is_found_running_and_then_completed_though_nobody_listens(
        self, adapter: Adapter
    ) -> None:
        await self._is_found(adapter, 1)

    async def test_a_later_call_is_found_running_and_then_completed_though_nobody_listens(
        self, adapter: Adapter
    ) -> None:
        await self._is_found(adapter, 2)

    async def _is_found(self, adapter: Adapter, turn: int) -> None:
        self._needs_calls_that_go_on(adapter)
        if not isinstance(adapter, CanFetch):
            pytest.skip("the adapter has no CanFetch")
        asked, events = await self._stalled(adapter, turn)
        names = _within(asked, _names(events))
        running = await bounded(adapter.fetch(names), "looking a running call up")
        require(running.fate is Fate.RUNNING, f"a running call is found {running.fate}")
        await self.backend_goes_on("lo")
        ended = await bounded(adapter.fetch(names), "looking a completed call up")
        require(ended.fate is Fate.COMPLETED, f"a completed call is found {ended.fate}")
        self._whole(asked, names, ended.events)

    async def test_the_first_call_is_listened_to_again(self, adapter: Adapter) -> None:
        await self._is_resumed(adapter, 1)

    async def test_a_later_call_is_listened_to_again(self, adapter: Adapter) -> None:
        await self._is_resumed(adapter, 2)

    async def _is_resumed(self, adapter: Adapter, turn: int) -> None:
        if not isinstance(adapter, CanResume):
            pytest.skip("the adapter has no CanResume")
        asked, events = await self._stalled(adapter, turn)
        names = _within(asked, _names(events))
        await self.backend_goes_on("lo")
        async with time_limit("the call ends"):
            again = [event async for event in adapter.resume(asked, names)]
        self._whole(asked, names, again)

    def _whole(self, asked: ServiceRequest, names: Ongoing, events: Sequence[AdapterEvent]) -> None:
        handle = completed(events).handle
        require(text(events) == "Hello", f"the answer is {text(events)!r}, not 'Hello'")
        if asked.handle is None and names.handle is not None:
            require(handle == names.handle, f"the call confirmed {handle!r}, and had named {names.handle!r}")

    def _needs_calls_that_go_on(self, adapter: Adapter) -> None:
        if not isinstance(adapter, CanCancel | CanResume):
            pytest.skip("the adapter has no CanCancel or CanResume")

    async def _stalled(self, adapter: Adapter, turn: int) -> tuple[ServiceRequest, list[AdapterEvent]]:
        """A call of this turn whose listener has left after the first text: its request and its events so far."""
        asked = request("Hi")
        if turn == 2:
            await self.backend_answers("Hello")
            before = await collect(adapter, asked)
            earlier = _names(before)
            self._earlier = earlier.run or earlier.handle
            asked = follow_up(adapter, completed(before), "Hi", "Hello", "And now?")
        await self.backend_stalls("Hel")
        events: list[AdapterEvent] = []
        stream = adapter.call(asked)
        async with time_limit("the first text comes"):
            async for event in stream:
                events.append(event)
                if isinstance(event, TextDelta):
                    break
        await bounded(stream.aclose(), "closing the generator")
        return asked, events


def _words(events: Sequence[AdapterEvent]) -> str:
    return "".join(part.text or "" for part in completed(events).message or ())


def _names(events: Sequence[AdapterEvent]) -> Ongoing:
    started = of_type(events, CallStarted)
    handles = [event.handle for event in started if event.handle is not None]
    runs = [event.run for event in started if event.run is not None]
    return Ongoing(handles[-1] if handles else None, runs[-1] if runs else None)


def _within(asked: ServiceRequest, names: Ongoing) -> Ongoing:
    """The names as the core gives them: a run belongs to the conversation of its request."""
    return Ongoing(names.handle or asked.handle, names.run) if names.run is not None else names
