"""What would be sent to the backend next, and what is left out?"""

import asyncio

import msgspec

from gateway.a2a.errors import NotFound
from gateway.core import ownership
from gateway.core.agents import Agent
from gateway.core.diagnosis.next_request import SENT, Fate, PlannedItem, planned
from gateway.engine.turn_context import is_sent_whole, load_conversation
from gateway.ledger.admin.contexts import Continuation
from gateway.ports.conversation import CallItem, HistoryRecord, Item, OpaqueItem, OutputItem
from gateway.ports.observer import Target
from gateway.ui.masks import Masks
from gateway.ui.said import words_of
from gateway.ui.visit import Outcome, Page, Visit

_ITEMS = 300
"""Items of each list that are shown, the latest."""

KINDS = {
    "user": "message",
    "assistant": "answer",
    "call": "tool call",
    "output": "tool result",
    "reasoning": "reasoning",
    "opaque": "item of the backend",
}


class ItemRow(msgspec.Struct, frozen=True):
    item: PlannedItem
    words: str


async def show(visit: Visit) -> Outcome:
    row, name = visit.path["row"], visit.query.get("agent", "")
    going_on = await visit.parts.ledger.admin.continuation(visit.caller.tenant, row, name)
    if going_on is None:
        raise NotFound("This context has no conversation with this agent.")
    visit.looked_at(going_on.owner, Target(agent=name, context=going_on.context_id))
    agent = visit.parts.agents.by_name.get(name)
    found = [] if agent is None else await _planned(visit, agent, going_on)
    sent = [each for each in found if each.item.fate in SENT]
    left_out = [each for each in found if each.item.fate not in SENT]
    values = {
        "row": row,
        "agent": name,
        "thread": going_on.thread,
        "context_id": going_on.context_id,
        "sent": sent[-_ITEMS:],
        "more": max(0, len(sent) - _ITEMS),
        "weight": sum(each.item.weight for each in sent),
        "left_out": left_out[-_ITEMS:],
        "more_left_out": max(0, len(left_out) - _ITEMS),
        "trouble": _trouble(agent),
        "kinds": KINDS,
        "as_it_is": Fate.SENT,
    }
    return Page("next.html", f"What {name} would be sent next", values)


async def _planned(visit: Visit, agent: Agent, going_on: Continuation) -> list[ItemRow]:
    """What goes out beside the next message, which nobody has written yet, and what does not."""
    ledger, thread = visit.parts.ledger, going_on.thread
    if going_on.turn is None:
        return []
    if is_sent_whole(thread):
        records, window = await load_conversation(ledger, agent, thread, going_on.turn)
    else:
        records, window = await ledger.history(thread.id, unsent_only=True), None

    def plan() -> list[ItemRow]:
        items = planned(
            ownership.of_thread(thread, agent.adapter.ownership),
            records,
            window,
            new_chain=ownership.starts_new_chain(thread),
            whole_turns=agent.policies.persistence == "per_turn",
            drops_uncited=agent.policies.uncited_sources == "drop",
        )
        masks = Masks(agent)
        return [ItemRow(item, _words(record, masks)) for item, record in zip(items, records, strict=True)]

    return await asyncio.to_thread(plan)


def _words(record: HistoryRecord, masks: Masks) -> str:
    item: Item = record.item
    if masks.any:
        match item:
            case CallItem(name=name, arguments=arguments):
                return f"{name} {masks.hide('arguments', arguments)}"
            case OutputItem(output=output):
                return masks.hide("outcome", msgspec.json.encode(output).decode())
            case OpaqueItem():
                return masks.hide("item", "")
    return words_of(item)


def _trouble(agent: Agent | None) -> str | None:
    if agent is None:
        return "The agent is not in the configuration any more, so nothing is sent to it."
    if agent.policies.shadow_history == "none":
        return "The agent is set to remember nothing of what its backend keeps (shadow_history: none)."
    return None
