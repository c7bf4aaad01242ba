"""The executor of a tool call, and its outcome."""

from typing import Any

import pytest

from gateway.a2a.tool_calls import CallFacts
from gateway.core.tools import tool_call
from gateway.core.tools.tool_call import Settled, ToolCall, ToolPolicy, decide, outcome_at_end, parse_arguments
from gateway.ledger.states import ToolCallStatus
from gateway.ports.tools import ToolDeclaration
from tests.support.scripted_tools import ScriptedTools

CLIENTS = {"show": ToolDeclaration("show", "Shows it.", {"type": "object"})}


async def policy(**more: Any) -> ToolPolicy:
    return ToolPolicy(await ScriptedTools({"add": 1}).offered(), CLIENTS, **more)


def call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(CallFacts("call_1", name, 0, 0, "backend", None, "now"), "c1", arguments)


async def test_a_call_of_an_offered_tool_is_the_gateways_to_run() -> None:
    made = call("add", '{"a":1}')
    assert decide(made, await policy()) is None
    assert (made.executor, made.status, made.inputs, made.to_run, made.waits) == (
        "gateway",
        "announced",
        {"a": 1},
        True,
        False,
    )


async def test_a_call_of_a_clients_tool_waits_for_the_client() -> None:
    made = call("show")
    assert decide(made, await policy()) is None
    assert (made.executor, made.to_run, made.waits) == ("client", False, True)


async def test_a_call_that_needs_a_yes_waits_for_it() -> None:
    made = call("add", '{"a":1}')
    gate = await policy(asks=lambda identity, arguments: (identity, arguments) == ("box.add", {"a": 1}))
    assert decide(made, gate) is None
    assert (made.status, made.asked, made.to_run, made.waits) == ("pending_approval", True, False, True)


@pytest.mark.parametrize(
    ("made", "settled"),
    [
        (call("nope"), Settled(ToolCallStatus.NOT_FOUND, tool_call.NO_SUCH_TOOL)),
        (call("add", "{"), Settled(ToolCallStatus.FAILED, tool_call.NO_OBJECT)),
        (
            call("add", '{"bad":1}'),
            Settled(ToolCallStatus.FAILED, "The arguments do not fit: no 'bad' here", "The arguments do not fit."),
        ),
        (call("add", '{"a":' * 101 + "1" + "}" * 101), Settled(ToolCallStatus.FAILED, tool_call.TOO_DEEP)),
        (call("show", '{"a":' * 5000 + "1" + "}" * 5000), Settled(ToolCallStatus.FAILED, tool_call.TOO_DEEP)),
    ],
)
async def test_a_call_that_cannot_be_run_has_its_outcome_at_once(made: ToolCall, settled: Settled) -> None:
    assert decide(made, await policy()) == settled


async def test_beyond_the_limit_nothing_is_run() -> None:
    assert decide(call("add"), await policy(exhausted=True)) == Settled(
        ToolCallStatus.CANCELLED, tool_call.LIMIT_REACHED
    )


async def test_the_name_gives_the_executor_of_a_call() -> None:
    known = await policy()
    assert [known.origin(name) for name in ("add", "show", "search")] == ["gateway", "client", "backend"]
    assert [known.server(name) for name in ("add", "show")] == ["test:box", None]
    assert [declared.name for declared in known.declarations()] == ["add", "show"]


@pytest.mark.parametrize(
    ("arguments", "value"), [("", {}), (" \n", {}), ('{"a":[1]}', {"a": [1]}), ("[]", None), ("\ud800", None)]
)
def test_arguments_are_an_object_or_none_at_all(arguments: str, value: object) -> None:
    assert parse_arguments(arguments) == value


@pytest.mark.parametrize(
    ("status", "settled"),
    [
        (ToolCallStatus.RUNNING, Settled(ToolCallStatus.INTERRUPTED, tool_call.OUTCOME_UNKNOWN)),
        *(
            (waiting, Settled(ToolCallStatus.CANCELLED, tool_call.NOT_RUN))
            for waiting in ("announced", "approved", "pending_approval")
        ),
    ],
)
def test_what_a_call_gets_whose_turn_ends_says_whether_it_may_have_run(status: str, settled: Settled) -> None:
    assert outcome_at_end(ToolCallStatus(status)) == settled
