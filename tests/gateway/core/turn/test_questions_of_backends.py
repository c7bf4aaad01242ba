"""A backend asks whether it may run a tool of its own: one turn, event by event."""

import pytest

from gateway.a2a.tool_calls import CallFacts
from gateway.core.tools.tool_call import ALLOWED, Settled, ToolCall, ToolPolicy
from gateway.core.turn.commands import Command, CompleteCall, Continue, EndTool, EndTurn
from gateway.core.turn.machine import TurnFacts, TurnMachine
from gateway.ledger.calls import NewItem
from gateway.ledger.states import ToolCallStatus
from gateway.ports.adapter import AdapterEvent, ApprovalAsked, CallCompleted, ToolCallReady, ToolResultReady
from gateway.ports.conversation import CallItem, HandleKind, OutputItem, Ownership, StorageOwner
from tests.gateway.core.turn.test_machine import phases
from tests.support.core import Time

G = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)
BR = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)
ASKED = ApprovalAsked("q1", "pay", '{"to":"a"}', "bank", "mcpr_1")


def turn(ownership: Ownership = BR, *, shadow: str = "items", exhausted: bool = False) -> TurnMachine:
    facts = TurnFacts("task", "context", "turn", ownership, shadow=shadow, tools=ToolPolicy(exhausted=exhausted))
    return TurnMachine(facts, Time().clock)


def asked(machine: TurnMachine) -> list[Command]:
    handle = "r1" if machine.facts.ownership.owner is StorageOwner.BACKEND else None
    return [*machine.receive(ASKED), *machine.receive(CallCompleted(handle))]


def closed(commands: list[Command]) -> CompleteCall:
    return next(command for command in commands if isinstance(command, CompleteCall))


def only(machine: TurnMachine) -> ToolCall:
    [call] = machine.calls.values()
    return call


def outcome(commands: list[Command]) -> tuple[str, NewItem]:
    ended = next(command for command in commands if isinstance(command, EndTool))
    return ended.status, ended.item


@pytest.mark.parametrize("shadow", ["items", "text", "none"])
def test_a_question_is_a_call_of_the_backend_that_waits_for_a_decision(shadow: str) -> None:
    machine = turn(shadow=shadow)
    commands = asked(machine)
    call = only(machine)
    assert commands[-1] == Continue()
    assert machine.waiting
    assert phases(commands) == ["requested", "awaiting-approval"]
    assert (call.facts.origin, call.facts.server, call.inputs) == ("backend", "mcp:bank", {"to": "a"})
    assert closed(commands).items == (
        NewItem(CallItem("q1", "pay", '{"to":"a"}', asking="bank"), "mcpr_1", call.facts.id),
    )
    [row] = closed(commands).tool_calls
    assert (row.executor, row.status, row.asked, row.external_id) == ("backend", "pending_approval", True, "q1")


@pytest.mark.parametrize("ownership", [G, BR])
def test_an_approval_is_sent_as_one(ownership: Ownership) -> None:
    machine = turn(ownership)
    asked(machine)
    machine.approve(only(machine).facts.id)
    status, item = outcome(machine.settle_tool(only(machine), Settled(ToolCallStatus.COMPLETED, ALLOWED)))
    assert status == "completed"
    assert item.item == OutputItem("q1", ALLOWED, approved=True)
    assert (item.unsent, item.replayable, machine.waiting) == (True, True, False)


@pytest.mark.parametrize("status", ["rejected", "cancelled", "interrupted"])
def test_any_other_outcome_is_a_rejection(status: str) -> None:
    machine = turn()
    asked(machine)
    if status == "interrupted":
        machine.approve(only(machine).facts.id)
    _, item = outcome(machine.settle_tool(only(machine), Settled(ToolCallStatus(status), "why")))
    assert item.item == OutputItem("q1", "why", True, approved=False)
    assert item.unsent


def test_a_turn_that_is_cancelled_says_no() -> None:
    machine = turn()
    asked(machine)
    commands = machine.cancel()
    assert outcome(commands)[1].item == OutputItem("q1", "This call was not run.", True, approved=False)
    assert isinstance(commands[-1], EndTurn)


def test_at_the_limit_of_rounds_no_approval_is_asked_for() -> None:
    machine = turn(exhausted=True)
    commands = asked(machine)
    assert outcome(commands)[1].item == OutputItem("q1", "This call was not run.", True, approved=False)
    assert not machine.waiting


def test_a_turn_that_goes_on_after_a_restart_knows_its_questions() -> None:
    machine = turn()
    facts = CallFacts("call_1", "pay", 0, 0, "backend", "mcp:bank", "2026-11-20T10:00:00.000Z")
    machine.restore((ToolCall(facts, "q1", "{}", status=ToolCallStatus.APPROVED, asked=True),))
    _, item = outcome(machine.settle_tool(only(machine), Settled(ToolCallStatus.COMPLETED, ALLOWED)))
    assert item.item == OutputItem("q1", ALLOWED, approved=True)


def test_other_calls_of_the_backend_are_no_questions() -> None:
    machine = turn()
    ran: list[AdapterEvent] = [ToolCallReady("c", "pay", "{}", True), ToolResultReady("c", "paid"), CallCompleted("r1")]
    commands = [command for event in ran for command in machine.receive(event)]
    [_, output] = closed(commands).items
    assert output.item == OutputItem("c", "paid")
