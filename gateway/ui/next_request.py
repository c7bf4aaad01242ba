"""What would be sent to the backend next, and what is left out?"""

import asyncio

import msgspec

from gateway.a2a.errors import NotFound, UnsupportedOperation
from gateway.core import ownership
from gateway.core.agents import Agent
from gateway.core.diagnosis.next_request import SENT, Fate, Lost, PlannedItem, after_loss, planned
from gateway.engine.turn_context import is_sent_whole, load_conversation
from gateway.ledger.threads import ThreadRecord
from gateway.operations.target import check_owner, check_version
from gateway.ports.conversation import CallItem, HistoryRecord, Item, OpaqueItem, OutputItem
from gateway.ports.observer import Target
from gateway.ui.masks import Masks
from gateway.ui.places import by_public_id
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


_FAILS = {
    Lost.FAILS: "The backend has lost this conversation, and the agent is set to begin none anew (on_lost_handle: fail): the "
    "next message fails, and nothing is sent.",
    Lost.GAPS: "The backend has lost this conversation, and the gateway does not know all that was said in it, so that it "
    "cannot tell it again: the next message fails, and nothing is sent.",
}


class ItemRow(msgspec.Struct, frozen=True):
    item: PlannedItem
    words: str


class Course(msgspec.Struct, frozen=True):
    """`thread` is the thread as the next request goes on from it. `refusal` says why nothing is sent."""

    thread: ThreadRecord
    rebuilt: bool = False
    refusal: str | None = None


async def show(visit: Visit) -> Outcome:
    row, name = visit.path["row"], visit.query.get("agent", "")
    going_on = await visit.parts.ledger.admin.continuation(visit.caller.tenant, row, name)
    if going_on is None:
        if await visit.parts.ledger.admin.context(visit.caller.tenant, row) is None:
            return await by_public_id(visit)
        raise NotFound("This context has no conversation with this agent.")
    visit.looked_at(going_on.owner, Target(agent=name, context=going_on.context_id))
    agent = visit.parts.agents.by_name.get(name)
    course = await _course(visit, agent, going_on.thread)
    found = [] if agent is None or course.refusal else await _planned(visit, agent, course.thread, going_on.turn)
    sent = [each for each in found if each.item.fate in SENT]
    left_out = [each for each in found if each.item.fate not in SENT]
    values = {
        "row": row,
        "agent": name,
        "course": course,
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


async def _course(visit: Visit, agent: Agent | None, thread: ThreadRecord) -> Course:
    """What the next message would do before anything is sent."""
    if agent is None:
        return Course(
            thread,
            refusal="The agent is not in the configuration any more: its messages are refused, and nothing is sent.",
        )
    try:
        check_owner(agent, thread)
        check_version(agent, thread)
    except UnsupportedOperation as error:
        return Course(thread, refusal=f"The next message is refused, and nothing is sent. {error.message}")
    if not thread.lost:
        return Course(thread)
    records = await visit.parts.ledger.history(thread.id, unsent_only=False)
    lost, following = after_loss(thread, agent.adapter.ownership, agent.policies, records)
    return Course(following, lost is Lost.REBUILT, _FAILS.get(lost))


async def _planned(visit: Visit, agent: Agent, thread: ThreadRecord, turn: str | None) -> list[ItemRow]:
    """What goes out beside the next message, which nobody has written yet, and what does not."""
    ledger = visit.parts.ledger
    if turn is None:
        return []
    if is_sent_whole(thread):
        records, window = await load_conversation(ledger, agent, thread, turn)
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
    if agent is not None and agent.policies.shadow_history == "none":
        return "The agent is set to remember nothing of what its backend keeps (shadow_history: none)."
    return None
