"""The conformance suite of the adapter port: a subclass tests an adapter. Law: it knows no backend.

Needs pytest and pytest-asyncio with `asyncio_mode = "auto"`. The page `docs/adapters.md` shows an example.
"""

import asyncio
import copy
import json
import socket
from collections.abc import AsyncGenerator
from collections.abc import Set as AbstractSet
from typing import ClassVar, NoReturn, get_args

import pytest

from gateway.a2a.model import Json
from gateway.ports import adapter as port
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner
from gateway.testing.adapter_runs import RunTests
from gateway.testing.adapter_scripts import (
    collect,
    completed,
    failure,
    first_text,
    follow_up,
    of_type,
    only,
    request,
    require_json,
    skip,
    text,
)
from gateway.testing.adapter_tools import ToolTests
from gateway.testing.checks import bounded, require

_AWKWARD = 'quotes " and \\, tab\t, line\nbreak, \u2028, \u0085, \u00e9, \U0001f30d, [DONE], data: {}'
_PERHAPS_PROCESSED = frozenset(port.ErrorClass) - port.NOT_PROCESSED
_STATUSES = {
    400: port.NOT_PROCESSED,
    401: {port.ErrorClass.UNAUTHORISED},
    403: {port.ErrorClass.UNAUTHORISED},
    429: {port.ErrorClass.RATE_LIMITED},
    500: _PERHAPS_PROCESSED,
    502: _PERHAPS_PROCESSED,
}


class AdapterSuite(ToolTests, RunTests):
    """Subclass it as `class TestMine(AdapterSuite)`, with hooks that control your backend.

    Required: `adapter` and `backend_answers`. The tests of any other missing hook are skipped, and the skip names the hook.
    """

    factory: ClassVar[port.AnyAdapterFactory | None] = None
    """The factory that makes such adapters."""

    secret: str | None = None
    """The adapter's API key."""

    @pytest.fixture
    def adapter(self) -> port.Adapter:
        """A fresh adapter against a fresh backend of your own (a real server on loopback)."""
        raise NotImplementedError("give your test class a fixture `adapter`")

    async def backend_answers(self, *pieces: str) -> None:
        """Makes the backend answer every later message with these pieces of text."""
        raise NotImplementedError("give your test class `backend_answers`")

    async def backend_echoes(self) -> None:
        """It answers every message with the text of that message."""
        skip("backend_echoes")

    async def backend_trickles(self) -> None:
        """Makes the backend send its later answers one byte at a time."""
        skip("backend_trickles")

    async def backend_fails(self) -> None:
        """It accepts the request and reports a failure of its own, best with the API key in its text."""
        skip("backend_fails")

    async def backend_refuses(self) -> None:
        """It refuses the request, without having done anything."""
        skip("backend_refuses")

    async def backend_answers_status(self, status: int) -> None:
        """It answers with this HTTP status."""
        skip("backend_answers_status", status)

    async def backend_disappears(self) -> None:
        """Its address refuses connections."""
        skip("backend_disappears")

    async def backend_breaks_off(self, *pieces: str) -> None:
        """It sends the pieces and ends the answer without a sign that it is complete. The HTTP response must end properly:
        any client notices a cut connection without the adapter's help."""
        skip("backend_breaks_off", *pieces)

    async def backend_stalls(self, *pieces: str) -> None:
        """It sends the pieces, then nothing, and keeps the connection."""
        skip("backend_stalls", *pieces)

    async def backend_is_released(self) -> None:
        """Returns when the backend has noticed that the client of the stalled answer is gone."""
        skip("backend_is_released")

    async def backend_runs_tool(self, name: str, arguments: dict[str, Json], output: str) -> None:
        """It calls a tool of its own, shows the call and its outcome, and answers with some text."""
        skip("backend_runs_tool", name, arguments, output)

    async def backend_received(self) -> list[list[tuple[str, str]]]:
        """The messages of each request so far, oldest first, as `("user", text)` or `("agent", text)`."""
        skip("backend_received")

    # --- what the adapter declares

    async def test_ownership_is_declared_without_network_and_stays_the_same(
        self, adapter: port.Adapter, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await self.backend_answers("Hello")
        with monkeypatch.context() as offline:
            for name in ("connect", "connect_ex"):
                offline.setattr(socket.socket, name, _no_network)
            declared = adapter.ownership
        otherwise = f"ownership is {declared!r}, which is no gateway.ports.conversation.Ownership"
        require(isinstance(declared, Ownership), otherwise)
        await collect(adapter, request("Hi"))
        require(adapter.ownership == declared, f"ownership was {declared!r} and is {adapter.ownership!r} after a call")

    async def test_the_adapter_keeps_conversations_in_a_way_that_its_factory_declares(
        self, adapter: port.Adapter
    ) -> None:
        if self.factory is None:
            skip("factory")
        ways = {(state.owner, state.handle, state.adapter) for state in self.factory.states}
        way = (adapter.ownership.owner, adapter.ownership.handle, type(adapter))
        require(way in ways, f"the adapter is {way!r}, and `states` of its factory are {ways!r}")

    # --- a plain message

    async def test_a_plain_message_ends_with_exactly_one_completed_call_as_the_last_event(
        self, adapter: port.Adapter
    ) -> None:
        await self._first_call(adapter)

    async def _first_call(self, adapter: port.Adapter) -> port.CallCompleted:
        await self.backend_answers("Hello")
        return completed(await collect(adapter, request("Hi")))

    async def test_a_call_begins_with_call_started(self, adapter: port.Adapter) -> None:
        await self.backend_answers("Hello")
        first = next(iter(await collect(adapter, request("Hi"))), None)
        require(isinstance(first, port.CallStarted), f"the call began with {first!r}, not with CallStarted")

    async def test_the_text_deltas_join_to_the_answer(self, adapter: port.Adapter) -> None:
        await self.backend_answers("Hel", "lo, ", "world")
        answer = text(await collect(adapter, request("Hi")))
        require(answer == "Hello, world", f"the text joins to {answer!r}, not to 'Hello, world'")

    async def test_an_empty_answer_completes_too(self, adapter: port.Adapter) -> None:
        await self.backend_answers()
        events = await collect(adapter, request("Hi"))
        completed(events)
        require(text(events) == "", f"the answer is {text(events)!r}, not empty")

    async def test_all_events_are_those_of_the_port(self, adapter: port.Adapter) -> None:
        await self.backend_answers("Hel", "lo")
        kinds = get_args(port.AdapterEvent)
        foreign = [event for event in await collect(adapter, request("Hi")) if type(event) not in kinds]
        require(not foreign, f"{foreign!r} is not of the types in gateway.ports.adapter.AdapterEvent")

    async def test_all_that_events_carry_is_json(self, adapter: port.Adapter) -> None:
        await self.backend_answers("Hel", "lo")
        require_json(await collect(adapter, request("Hi")))

    async def _echo(self, adapter: port.Adapter) -> list[port.AdapterEvent]:
        await self.backend_echoes()
        events = await collect(adapter, request(_AWKWARD))
        require(text(events) == _AWKWARD, f"sent {_AWKWARD!r} to a backend that echoes, and got {text(events)!r}")
        return events

    async def test_any_text_comes_through_unchanged(self, adapter: port.Adapter) -> None:
        require_json(await self._echo(adapter))

    async def test_an_answer_that_comes_byte_by_byte_is_the_same(self, adapter: port.Adapter) -> None:
        await self.backend_trickles()
        completed(await self._echo(adapter))

    async def test_a_request_is_not_changed(self, adapter: port.Adapter) -> None:
        first = await self._first_call(adapter)
        again = follow_up(adapter, first, "Hi", "Hello", "And now?")
        before = copy.deepcopy(again)
        await collect(adapter, again)
        require(again == before, f"the request was {before!r} and is {again!r} after the call")

    # --- handles and what is sent

    async def test_a_backend_that_owns_the_conversation_confirms_a_handle(self, adapter: port.Adapter) -> None:
        _only(adapter.ownership.owner, StorageOwner.BACKEND, "the storage owner")
        handle = (await self._first_call(adapter)).handle
        require(bool(handle) and isinstance(handle, str), f"the confirmed handle is {handle!r}, with owner BACKEND")

    async def test_with_the_history_at_the_gateway_no_handle_is_confirmed(self, adapter: port.Adapter) -> None:
        _only(adapter.ownership.owner, StorageOwner.GATEWAY, "the storage owner")
        handle = (await self._first_call(adapter)).handle
        require(handle is None, f"the handle {handle!r} was confirmed, with owner GATEWAY")

    async def test_a_static_handle_stays_the_same(self, adapter: port.Adapter) -> None:
        _only(adapter.ownership.handle, HandleKind.STATIC, "the kind of handle")
        first = await self._first_call(adapter)
        second = completed(await collect(adapter, follow_up(adapter, first, "Hi", "Hello", "And now?")))
        require(first.handle == second.handle, f"the static handle {first.handle!r} became {second.handle!r}")

    async def test_a_static_handle_is_pending_before_it_is_confirmed(self, adapter: port.Adapter) -> None:
        _only(adapter.ownership.handle, HandleKind.STATIC, "the kind of handle")
        await self.backend_answers("Hello")
        events = await collect(adapter, request("Hi"))
        pending, confirmed = of_type(events, port.CallStarted), completed(events).handle
        named = pending[0].handle if pending else None
        require(named == confirmed, f"the call began with the handle {named!r} and confirmed {confirmed!r}")

    async def test_a_pending_handle_is_never_reported_twice_differently(self, adapter: port.Adapter) -> None:
        await self.backend_answers("Hel", "lo")
        started = of_type(await collect(adapter, request("Hi")), port.CallStarted)
        handles = {event.handle for event in started if event.handle is not None}
        require(len(handles) <= 1, f"one call reported the pending handles {sorted(handles)!r}")

    async def test_the_second_call_sends_its_items_and_nothing_else(self, adapter: port.Adapter) -> None:
        first = await self._first_call(adapter)
        await collect(adapter, follow_up(adapter, first, "Hi", "Hello", "And now?"))
        owner = adapter.ownership.owner
        earlier = [] if owner is StorageOwner.BACKEND else [("user", "Hi"), ("agent", "Hello")]
        wanted = [[("user", "Hi")], [*earlier, ("user", "And now?")]]
        received = await self.backend_received()
        require(received == wanted, f"with owner {owner} the backend must get {wanted!r}; it got {received!r}")

    # --- closing and cancelling

    async def _stalled_call(self, adapter: port.Adapter) -> AsyncGenerator[port.AdapterEvent, None]:
        await self.backend_stalls("Hel")
        events = adapter.call(request("Hi"))
        await first_text(events)
        return events

    async def test_closing_in_the_middle_of_an_answer_releases_the_connection(self, adapter: port.Adapter) -> None:
        events = await self._stalled_call(adapter)
        await bounded(events.aclose(), "closing the generator")
        await bounded(self.backend_is_released(), "the backend is released after closing")

    async def test_cancelling_while_waiting_releases_the_connection(self, adapter: port.Adapter) -> None:
        events = await self._stalled_call(adapter)
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(_next(events))
            await asyncio.sleep(0)  # the task waits for the next event
            waiting.cancel()
        require(waiting.cancelled(), "a cancelled wait for the next event did not end as cancelled")
        await bounded(self.backend_is_released(), "the backend is released after cancelling")

    async def test_after_a_closed_call_the_next_one_works(self, adapter: port.Adapter) -> None:
        events = await self._stalled_call(adapter)
        await bounded(events.aclose(), "closing the generator")
        await self.backend_answers("Hello")
        answer = text(await collect(adapter, request("Hi")))
        require(answer == "Hello", f"the call after a closed one answered {answer!r}, not 'Hello'")

    async def test_two_calls_at_once_do_not_mix(self, adapter: port.Adapter) -> None:
        await self.backend_echoes()
        sent = ["one one one", "two two two", "three three three"]
        answers = [text(events) for events in await asyncio.gather(*(collect(adapter, request(each)) for each in sent))]
        require(answers == sent, f"calls at the same time sent {sent!r} and were answered {answers!r}")

    async def test_closing_the_adapter_twice_does_no_harm(self, adapter: port.Adapter) -> None:
        await self._first_call(adapter)
        await bounded(adapter.aclose(), "the first aclose")
        await bounded(adapter.aclose(), "the second aclose")

    # --- failures

    async def test_a_failing_backend_is_an_adapter_error_with_a_class_and_a_detail(self, adapter: port.Adapter) -> None:
        await self.backend_fails()
        error = await failure(adapter, secret=self.secret)
        require(isinstance(error.kind, port.ErrorClass), f"the error's kind is {error.kind!r}, which is no ErrorClass")
        require(bool(error.detail.strip()), "the error's detail is empty; the log needs the cause")

    async def test_a_failing_backend_may_have_processed_the_request(self, adapter: port.Adapter) -> None:
        await self.backend_fails()
        await self._failure_is(_PERHAPS_PROCESSED, adapter, "a backend that fails")

    async def test_a_refused_request_was_not_processed(self, adapter: port.Adapter) -> None:
        await self.backend_refuses()
        await self._failure_is(port.NOT_PROCESSED, adapter, "a backend that refuses the request")

    async def test_an_http_error_has_the_class_of_its_status(self, adapter: port.Adapter) -> None:
        for status, right in _STATUSES.items():
            await self.backend_answers_status(status)
            await self._failure_is(right, adapter, f"HTTP {status}")

    async def test_the_api_key_is_in_no_error(self, adapter: port.Adapter) -> None:
        if self.secret is None:
            skip("secret")
        await self.backend_fails()
        await failure(adapter, secret=self.secret)

    async def test_a_backend_that_is_gone_is_unreachable(self, adapter: port.Adapter) -> None:
        await self.backend_disappears()
        await self._failure_is({port.ErrorClass.UNREACHABLE}, adapter, "a backend that is gone")

    async def test_an_answer_without_its_end_is_an_error_and_never_completed(self, adapter: port.Adapter) -> None:
        await self.backend_breaks_off("Hel")
        await self._failure_is(_PERHAPS_PROCESSED, adapter, "an answer without its end")

    async def _failure_is(self, right: AbstractSet[port.ErrorClass], adapter: port.Adapter, what: str) -> None:
        kind = (await failure(adapter, secret=self.secret)).kind
        require(kind in right, f"{what} was {kind!r}; right is {' or '.join(sorted(right))}")

    # --- tool calls of the backend

    async def test_a_tool_call_is_announced_then_ready_then_answered(self, adapter: port.Adapter) -> None:
        await self.backend_runs_tool("lookup", {"q": "x"}, "found")
        events = await collect(adapter, request("Hi"))
        completed(events)
        ready = only(events, port.ToolCallReady)
        announced, result = only(events, port.ToolCallAnnounced), only(events, port.ToolResultReady)
        order = [events.index(event) for event in (announced, ready, result)]
        require(order == sorted(order), f"announced, ready and result came at the places {order}")
        require(ready.name == "lookup", f"the tool is called {ready.name!r}, not 'lookup'")
        arguments = json.loads(ready.arguments)
        require(arguments == {"q": "x"}, f"the arguments are {ready.arguments!r}, not those of the call")
        require(ready.handled is True, f"handled is {ready.handled!r} for a call that the backend ran itself")
        require(result.output == "found", f"the output is {result.output!r}, not 'found'")
        require_json(events)

    async def test_a_tool_call_keeps_its_id_and_its_name(self, adapter: port.Adapter) -> None:
        await self.backend_runs_tool("lookup", {"q": "x"}, "found")
        events = await collect(adapter, request("Hi"))
        kinds = (port.ToolCallAnnounced, port.ToolCallArguments, port.ToolCallReady, port.ToolResultReady)
        calls = [event for event in events if isinstance(event, kinds)]
        ids = {event.call_id for event in calls}
        require(len(ids) == 1 and all(ids), f"the events of one tool call have the ids {sorted(ids)!r}")
        names = {event.name for event in calls if isinstance(event, port.ToolCallAnnounced | port.ToolCallReady)}
        require(names == {"lookup"}, f"the tool is called {sorted(names)!r}")
        deltas = "".join(event.delta for event in of_type(events, port.ToolCallArguments))
        whole = only(events, port.ToolCallReady).arguments
        require(deltas in ("", whole), f"the deltas of the arguments join to {deltas!r}, not to {whole!r}")


def _only(found: object, wanted: object, what: str) -> None:
    if found is not wanted:
        pytest.skip(f"{what} is {found}")


def _no_network(*_: object) -> NoReturn:
    raise AssertionError("reading `ownership` opened a connection")


async def _next(events: AsyncGenerator[port.AdapterEvent, None]) -> port.AdapterEvent:
    return await anext(events)
