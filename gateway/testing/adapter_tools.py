"""The part of the conformance suite for adapters that let the gateway run tools. Law: it knows no backend."""

import json
from collections.abc import Sequence

from gateway.a2a.model import Json
from gateway.ports.adapter import (
    Adapter,
    AdapterEvent,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import Item, StorageOwner, UserItem
from gateway.ports.tools import ToolDeclaration
from gateway.testing.adapter_scripts import (
    collect,
    completed,
    message,
    of_type,
    request,
    request_with_outputs,
    require_json,
    skip,
    text,
)
from gateway.testing.checks import require

_TOOLS = tuple(
    ToolDeclaration(name, f"The {name} of a city.", {"type": "object", "properties": {"city": {"type": "string"}}})
    for name in ("weather", "height", "mayor")
)
_Round = Sequence[tuple[str, dict[str, Json]]]
_OSLO: dict[str, Json] = {"city": "Oslo"}
_TWO_CALLS = [("weather", _OSLO), ("height", {})]


class ToolTests:
    """A part of `AdapterSuite`."""

    async def backend_calls(self, *rounds: _Round) -> None:
        """Scripts the backend. It answers a message with the first round of calls, each `(name, arguments)`, that the
        gateway has to answer. It answers the outputs of one round with the next round, and the outputs of the last
        round with the text "Done"."""
        skip("backend_calls", *rounds)

    async def backend_offered(self) -> list[list[ToolDeclaration]]:
        """The tools of each request that the backend has received so far."""
        skip("backend_offered")

    async def backend_outputs(self) -> list[list[tuple[str, str]]]:
        """The outputs of each request so far, in their order: `(name of the tool, text)`."""
        skip("backend_outputs")

    async def _first_round(self, adapter: Adapter, *rounds: _Round) -> Sequence[AdapterEvent]:
        await self.backend_calls(*rounds)
        return await collect(adapter, request("Hi", tools=_TOOLS))

    async def test_tools_are_offered_with_every_call_that_has_them_and_with_no_other(self, adapter: Adapter) -> None:
        first = await self._first_round(adapter, [("weather", _OSLO)])
        last = await collect(adapter, request_with_outputs(adapter, first, ["3C"], tools=_TOOLS))
        await collect(adapter, request_with_outputs(adapter, last, [], words="And now?"))
        offered = await self.backend_offered()
        wanted = [list(_TOOLS), list(_TOOLS), []]
        require(offered == wanted, f"the backend must be offered {wanted!r}; it was offered {offered!r}")

    async def test_a_call_that_the_backend_does_not_answer_is_left_to_the_gateway(self, adapter: Adapter) -> None:
        events = await self._first_round(adapter, [("weather", _OSLO)])
        completed(events)
        calls = of_type(events, ToolCallReady)
        require([call.name for call in calls] == ["weather"], f"the calls are {calls!r}, not one of 'weather'")
        require(not calls[0].handled, "handled is True for a call that the gateway has to answer")
        require(not of_type(events, ToolResultReady), "there is a result of a call that nobody has answered")
        require(json.loads(calls[0].arguments) == _OSLO, f"the arguments are {calls[0].arguments!r}")
        deltas = "".join(event.delta for event in of_type(events, ToolCallArguments))
        require(deltas in ("", calls[0].arguments), f"the deltas of the arguments join to {deltas!r}")
        require_json(events)

    async def test_parallel_calls_keep_their_order_and_have_ids_of_their_own(self, adapter: Adapter) -> None:
        events = await self._first_round(adapter, _TWO_CALLS)
        calls = of_type(events, ToolCallReady)
        names = [call.name for call in calls]
        require(names == ["weather", "height"], f"the calls are {names!r}, not 'weather' and 'height'")
        ids = {call.call_id for call in calls}
        require(len(ids) == len(calls) and all(ids), f"the ids of two calls are {sorted(ids)!r}")
        of_events = {event.call_id for event in events if isinstance(event, ToolCallAnnounced | ToolCallArguments)}
        require(of_events <= ids, f"events of calls have the ids {sorted(of_events)!r}, the calls {sorted(ids)!r}")

    async def test_outputs_go_back_in_one_request_each_to_its_call(self, adapter: Adapter) -> None:
        first = await self._first_round(adapter, _TWO_CALLS)
        events = await collect(adapter, request_with_outputs(adapter, first, [{"degrees": 3}, ""], tools=_TOOLS))
        answer = text(events)
        require(answer == "Done", f"the answer after the outputs is {answer!r}, not 'Done'")
        outputs = (await self.backend_outputs())[-1]
        require([name for name, _ in outputs] == ["weather", "height"], f"the outputs that arrived are {outputs!r}")
        require(
            json.loads(outputs[0][1]) == {"degrees": 3}, f"the output {{'degrees': 3}} arrived as {outputs[0][1]!r}"
        )
        require(outputs[1][1] == "", f"the empty output arrived as {outputs[1][1]!r}")

    async def test_the_model_learns_that_a_tool_failed(self, adapter: Adapter) -> None:
        first = await self._first_round(adapter, [("weather", _OSLO)])
        await collect(adapter, request_with_outputs(adapter, first, ["no such city"], error=True))
        outputs = (await self.backend_outputs())[-1]
        output = outputs[0][1] if outputs else ""
        require("no such city" in output, f"of a tool that failed with 'no such city' the backend got {outputs!r}")

    async def test_a_turn_of_several_rounds_ends_with_its_answer(self, adapter: Adapter) -> None:
        await self.backend_calls(_TWO_CALLS, [("mayor", _OSLO)])
        items: tuple[Item, ...] = (UserItem(message("Hi")),)
        events = await collect(adapter, request("Hi", tools=_TOOLS))
        for output in ("first", "second"):
            given = [output] * len(of_type(events, ToolCallReady))
            asked = request_with_outputs(adapter, events, given, before=items, tools=_TOOLS)
            items = asked.items
            events = await collect(adapter, asked)
        require(text(events) == "Done", f"the answer after two rounds is {text(events)!r}, not 'Done'")
        outputs = (await self.backend_outputs())[-1]
        earlier = [("weather", "first"), ("height", "first")]
        wanted = [*(earlier if adapter.ownership.owner is StorageOwner.GATEWAY else ()), ("mayor", "second")]
        require(outputs == wanted, f"the outputs of the last request are {outputs!r}, not {wanted!r}")

    async def test_outputs_and_a_message_after_them_go_together(self, adapter: Adapter) -> None:
        first = await self._first_round(adapter, _TWO_CALLS)
        await self.backend_calls()
        again = request_with_outputs(adapter, first, ["not run", "not run"], words="Never mind")
        completed(await collect(adapter, again))
        outputs = (await self.backend_outputs())[-1]
        wanted = [("weather", "not run"), ("height", "not run")]
        require(outputs == wanted, f"with the message came the outputs {outputs!r}, not {wanted!r}")

    async def test_after_tools_a_last_call_without_any_is_answered(self, adapter: Adapter) -> None:
        first = await self._first_round(adapter, [("weather", _OSLO)])
        answer = text(await collect(adapter, request_with_outputs(adapter, first, ["3C"])))
        require(answer == "Done", f"the answer of the last call is {answer!r}, not 'Done'")
