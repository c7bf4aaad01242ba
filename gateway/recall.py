"""What a turn is reminded of: the ledger's items as the view of its next service call. Law: with a window no more is read
than the window takes, however long the conversation is."""

from gateway.agents import Agent, AgentPolicies
from gateway.commits import NewToolCall
from gateway.items import StorageOwner
from gateway.ports import Ledger
from gateway.projection import View, project
from gateway.reduction import Window, weigh, weight_of_tokens


async def recall(ledger: Ledger, agent: Agent, thread: str, turn: str) -> View:
    """Raises: LedgerUnavailable, CorruptRecord."""
    ownership = agent.adapter.ownership
    if ownership.owner is StorageOwner.BACKEND:
        return project(ownership, await ledger.history(thread, unsent_only=True), turn)
    window = await _window(ledger, agent.policies, thread)
    if window is None:
        return project(ownership, await ledger.history(thread, unsent_only=False), turn)
    records = await ledger.recent_history(
        thread, turn, messages=window.messages, weight=window.weight, opaque=ownership.opaque_replay
    )
    return project(ownership, records, turn, window)


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
