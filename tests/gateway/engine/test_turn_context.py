"""The history of a service call: no more is read than the agent's window takes."""

from typing import Any, cast

import pytest

from gateway.a2a.model import Message, Part, Role
from gateway.core.agents import Agent, AgentPolicies
from gateway.core.history import View
from gateway.engine.turn_context import load_history, weight_to_measure
from gateway.ledger.calls import MeasuredCall, NewToolCall
from gateway.ledger.port import Ledger
from gateway.ledger.states import ToolCallStatus
from gateway.ledger.threads import ThreadRecord
from gateway.ports.conversation import AssistantItem, HistoryRecord, Item, Ownership, UserItem
from tests.support.core import CARD
from tests.support.scripted import BR, G, ScriptedAdapter

G_OPAQUE = Ownership(G.owner, G.handle, opaque_replay=True)


def user(text: str) -> Item:
    return UserItem(Message(message_id="m", role=Role.USER, parts=(Part(text=text),)))


RECORDS = (
    HistoryRecord(1, 1, user("1"), sent_in="call-1", turn_id="turn-1"),
    HistoryRecord(2, 1, AssistantItem((Part(text="A1"),)), sent_in="call-1", turn_id="turn-1"),
    HistoryRecord(3, 2, user("2"), turn_id="turn-2"),
)
WHOLE = View(tuple(record.item for record in RECORDS), (3,))
LAST = View((RECORDS[-1].item,), (3,))
CALL = NewToolCall("call_1", 0, "c", "f", "{}", "backend", ToolCallStatus.COMPLETED, None)


class Asked:
    """A ledger with one thread; `reads` are what was wanted of it."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, dict[str, Any]]] = []

    async def history(self, thread_id: str, *, unsent_only: bool) -> tuple[HistoryRecord, ...]:
        self.reads.append(("history", {"unsent_only": unsent_only}))
        return RECORDS[2:] if unsent_only else RECORDS

    async def recent_history(self, thread_id: str, turn_id: str, **window: Any) -> tuple[HistoryRecord, ...]:
        self.reads.append(("recent_history", window))
        return RECORDS

    async def measured_calls(self, thread_id: str) -> tuple[MeasuredCall, ...]:
        self.reads.append(("measured_calls", {}))
        return (MeasuredCall(400, {"input_tokens": 100}),)


def thread(ownership: Ownership) -> ThreadRecord:
    return ThreadRecord("thread-1", "context-1", "echo", 1, ownership.owner, ownership.handle, None, 0, None)


def agent(ownership: Ownership, **policies: Any) -> Agent:
    return Agent("echo", CARD, ScriptedAdapter(ownership), policies=AgentPolicies(**policies))


@pytest.mark.parametrize(
    ("ownership", "policies", "reads", "view"),
    [
        (BR, {}, [("history", {"unsent_only": True})], LAST),
        (G, {}, [("history", {"unsent_only": False})], WHOLE),
        (
            G,
            {"history_messages": 2},
            [("recent_history", {"messages": 2, "weight": None, "opaque": False})],
            LAST,
        ),
        (
            G_OPAQUE,
            {"history_messages": 3, "history_tokens": 50},
            [("measured_calls", {}), ("recent_history", {"messages": 3, "weight": 200, "opaque": True})],
            WHOLE,
        ),
        (
            G,
            {"history_tokens": 5},
            [("measured_calls", {}), ("recent_history", {"messages": None, "weight": 20, "opaque": False})],
            LAST,
        ),
    ],
)
async def test_only_what_the_window_needs_is_read(
    ownership: Ownership, policies: dict[str, Any], reads: list[Any], view: View
) -> None:
    ledger = Asked()
    assert await load_history(cast("Ledger", ledger), agent(ownership, **policies), thread(ownership), "turn-2") == view
    assert ledger.reads == reads


@pytest.mark.parametrize(
    ("ownership", "policies", "tool_calls", "weight"),
    [
        (G, {"history_tokens": 5}, (), 52),
        (G, {"history_tokens": 5}, (CALL,), None),
        (G, {"history_messages": 5}, (), None),
        (G, {}, (), None),
        (BR, {"history_tokens": 5}, (), None),
    ],
)
def test_a_request_is_weighed_where_its_tokens_will_tell_something(
    ownership: Ownership, policies: dict[str, Any], tool_calls: tuple[NewToolCall, ...], weight: int | None
) -> None:
    assert weight_to_measure(agent(ownership, **policies), WHOLE, tool_calls) == weight
