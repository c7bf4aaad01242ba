"""The plan alone; its execution is in tests/scenarios/test_recovery_continues.py."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest

from gateway.a2a.model import (
    Artifact,
    Message,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.a2a.tool_calls import URI
from gateway.core.agents import Agent
from gateway.core.replay import MakeCall, ResumeCall, resume_plan, shows_output
from gateway.ledger.calls import RESTARTED, LatestCall
from gateway.ledger.events import Update
from gateway.ledger.states import UNDER_WAY, ServiceCallStatus
from gateway.ledger.threads import ThreadRecord
from gateway.ports.adapter import Adapter
from gateway.ports.capabilities import Ongoing
from gateway.ports.conversation import Ownership
from storage.compiled import LATEST_CALL
from tests.support.core import CARD
from tests.support.resuming_adapter import ResumingAdapter
from tests.support.scripted import BR, BS, G, ScriptedAdapter

CALL = LatestCall("call", 0, 0, ServiceCallStatus.PREPARED, None, None, 0, False)
ONCE = replace(G, repeatable=False)
OFTEN = replace(BR, repeatable=True)

TEXT = TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=Artifact(artifact_id="a", parts=(Part(text="x"),)))


def status(
    *, message: Message | None = None, metadata: dict[str, object] | None = None, state: TaskState = TaskState.WORKING
) -> TaskStatusUpdateEvent:
    told = TaskStatus(state=state, message=message, timestamp="2026-01-01T00:00:00Z")
    return TaskStatusUpdateEvent(task_id="t", context_id="c", status=told, metadata=metadata)


WORKING = status()
REASONING = status(metadata={"reasoning": {"delta": "hm"}})
ASIDE = status(message=Message(message_id="m", role=Role.AGENT, parts=(Part(text="looking"),)))
TOOL = status(metadata={URI: {"callId": "1", "phase": "succeeded", "round": 0}})


def way(
    call: LatestCall | None,
    ownership: Ownership = G,
    updates: Sequence[Update] = (),
    *,
    adapter: Adapter | None = None,
    lost: bool = False,
    open_tools: bool = False,
) -> ResumeCall | MakeCall | None:
    thread = ThreadRecord("thread", "c", "echo", 1, ownership.owner, ownership.handle, None, 3, None, lost=lost)
    agent = Agent("echo", CARD, adapter or ScriptedAdapter(ownership))
    return resume_plan(agent, thread, call, updates, open_tools=open_tools)


@pytest.mark.parametrize("status_", sorted(UNDER_WAY))
def test_a_call_under_way_of_which_nothing_was_shown_is_made_again_where_that_changes_nothing(
    status_: ServiceCallStatus,
) -> None:
    call = msgspec.structs.replace(CALL, status=status_)
    assert [way(call, ownership, [WORKING]) for ownership in (G, OFTEN)] == [MakeCall(0, 1, "call")] * 2
    assert [way(call, ownership) for ownership in (BR, BS, replace(BS, repeatable=True), ONCE)] == [None] * 4
    assert way(msgspec.structs.replace(call, pending="r1"), OFTEN) is None


@pytest.mark.parametrize("update", [TEXT, REASONING, ASIDE, TOOL])
def test_a_call_with_shown_output_is_not_repeated(update: Update) -> None:
    assert way(CALL, G, [WORKING, update]) is None


def test_what_was_shown_of_an_earlier_round_is_none_of_the_call() -> None:
    second = msgspec.structs.replace(CALL, round=1)
    assert way(second, G, [WORKING, TEXT, TOOL, WORKING]) == MakeCall(1, 1, "call")
    assert way(second, G, [WORKING, TEXT, TOOL, TEXT]) is None


def test_where_rounds_cannot_be_distinguished_everything_counts_as_shown() -> None:
    assert shows_output([WORKING, TEXT], 1)
    assert not shows_output([WORKING], 1)


@pytest.mark.parametrize(("restarts", "goes_on"), [(0, True), (1, True), (2, False), (3, False)])
def test_a_turn_is_taken_up_twice(restarts: int, goes_on: bool) -> None:
    call = msgspec.structs.replace(CALL, restarts=restarts, attempt=restarts)
    assert (way(call) is not None) is goes_on


@pytest.mark.parametrize("ownership", [G, BR, BS, ONCE])
def test_the_call_after_a_complete_one_whose_tools_have_ended_is_made(ownership: Ownership) -> None:
    call = msgspec.structs.replace(CALL, round=2, attempt=1, status=ServiceCallStatus.COMPLETED, asked=True)
    assert way(call, ownership, [TEXT]) == MakeCall(3, 0)
    assert way(call, ownership, [TEXT], open_tools=True) is None


@pytest.mark.parametrize("ownership", [G, BR, BS, ONCE])
def test_no_call_follows_a_complete_one_that_asked_for_no_tool(ownership: Ownership) -> None:
    """The process died before it knew of the end; the process that looked the call up has stored it."""
    assert way(msgspec.structs.replace(CALL, status=ServiceCallStatus.COMPLETED), ownership) is None


@pytest.mark.parametrize("ownership", [G, BR, BS, ONCE])
def test_a_call_that_was_refused_and_waited_for_its_next_try_is_tried(ownership: Ownership) -> None:
    assert way(msgspec.structs.replace(CALL, attempt=1, status=ServiceCallStatus.FAILED), ownership) == MakeCall(0, 2)


def test_a_call_that_has_a_name_is_listened_to_again_where_the_adapter_can() -> None:
    call = msgspec.structs.replace(CALL, status="started", pending="r1", restarts=9)
    assert way(call, BR, [TEXT], adapter=ResumingAdapter()) == ResumeCall(call, Ongoing("r1"))
    assert way(call, BR, [TEXT]) is None
    assert way(CALL, BR, adapter=ResumingAdapter()) is None


def test_nobody_goes_on_where_nothing_is_known_or_the_conversation_is_lost() -> None:
    assert way(None) is None
    assert way(CALL, lost=True) is None
    assert way(msgspec.structs.replace(CALL, status="unknown")) is None


def test_what_is_counted_is_what_recovery_writes() -> None:
    assert f"'{RESTARTED}'" in LATEST_CALL.sql
