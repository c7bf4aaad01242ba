"""What a turn is reminded of: the ledger's items as the view of its next service call. Law: with a window no more is read
than the window takes, however long the conversation is."""

from collections.abc import Sequence

import msgspec

from gateway import ownership
from gateway.agents import Agent, AgentPolicies
from gateway.commits.calls import NewToolCall
from gateway.commits.threads import ThreadRecord
from gateway.items import HistoryRecord, StorageOwner
from gateway.ledger_port import Ledger
from gateway.projection import View, project
from gateway.reduction import Window, weigh, weight_of_tokens
from gateway.sources import last_number, without_uncited


async def recall(ledger: Ledger, agent: Agent, thread: ThreadRecord, turn: str) -> View:
    """Raises: LedgerUnavailable, CorruptRecord."""
    owned = ownership.of_thread(thread, agent.adapter.ownership)
    anew = ownership.begins_anew(thread)
    whole_turns = agent.policies.persistence == "per_turn"
    if owned.owner is StorageOwner.BACKEND and not anew:
        unsent = await ledger.history(thread.id, unsent_only=True)
        return project(owned, unsent, turn, whole_turns=whole_turns)
    window = await _window(ledger, agent.policies, thread.id) if owned.owner is StorageOwner.GATEWAY else None
    records: Sequence[HistoryRecord]
    if window is None:
        records = await ledger.history(thread.id, unsent_only=False)
    else:
        records = await ledger.recent_history(
            thread.id, turn, messages=window.messages, weight=window.weight, opaque=owned.opaque_replay
        )
    if agent.policies.uncited_sources == "keep":
        return project(owned, records, turn, window, anew=anew, whole_turns=whole_turns)
    counting = [record for record in records if not record.displaced]
    shrunk = without_uncited(counting, turn)
    view = project(owned, shrunk, turn, window, anew=anew, whole_turns=whole_turns)
    return msgspec.structs.replace(view, last_source=last_number(counting))


async def _window(ledger: Ledger, policies: AgentPolicies, thread: str) -> Window | None:
    if policies.history_tokens is not None:
        weight = weight_of_tokens(policies.history_tokens, await ledger.measured(thread))
        return Window(policies.history_messages, weight)
    return Window(policies.history_messages, None) if policies.history_messages is not None else None


def weight_to_measure(agent: Agent, view: View, tool_calls: tuple[NewToolCall, ...]) -> int | None:
    """Of what a request carried, where that tells how many bytes make a token.

    A backend that runs tools reads more than it was sent, and counts that too.
    """
    if agent.policies.history_tokens is None or tool_calls or agent.adapter.ownership.owner is StorageOwner.BACKEND:
        return None
    return weigh(view.items)
