"""How much of a request a thread holds, and what has come after it. Law: a message is known by its id; a decision or an answer
by its question, which is not open any more.
"""

from collections.abc import Sequence

from adapters.langgraph.content import message_id
from adapters.langgraph.state import ThreadState
from adapters.langgraph.wire import HUMAN, Interrupt, Message
from gateway.ports.conversation import Item, OutputItem, UserItem


def held_items(
    items: Sequence[Item], messages: Sequence[Message], asked: Sequence[Interrupt], state: ThreadState
) -> tuple[int, list[Message]]:
    """The number of items, from the first on, that the thread holds, and the messages of the graph after them.

    `state` is that of the last call that has completed, `asked` are the questions that are open now.
    """
    places = {message.id: index for index, message in enumerate(messages)}
    said = [places.get(message_id(item.message)) if isinstance(item, UserItem) else None for item in items]
    # A run takes messages together: with the last of them the thread holds all that came before it.
    held = max((index + 1 for index, place in enumerate(said) if place is not None), default=0)
    open_ = {interrupt.id for interrupt in asked}
    while held < len(items) and _is_taken(items[held], state, open_):
        held += 1
    end = max(places.get(state.last, -1), *(place for place in said if place is not None), -1)
    return held, [message for message in messages[end + 1 :] if message.type != HUMAN]


def _is_taken(item: Item, state: ThreadState, open_: set[str]) -> bool:
    """Whether the graph has taken a decision or the answer to a question."""
    approvals = {each.id for each in state.asked if each.actions}
    if isinstance(item, UserItem):
        answers = not approvals and bool(state.asked) and item.message.task_id == state.task
        return answers and state.asked[0].id not in open_
    return isinstance(item, OutputItem) and not approvals & open_
