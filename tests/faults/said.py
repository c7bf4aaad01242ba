"""What the callers have said in a conversation, apart from the notes about answers that were interrupted."""

from gateway.core.history import INTERRUPTED
from tests.emulators.scripts import Conversation


def said(conversation: Conversation) -> tuple[str, ...]:
    """The callers' messages, in order. A note that is not behind a message of its own, or comes twice, is among them."""
    texts: list[str] = []
    noted: set[tuple[str, str]] = set()
    for text in conversation.user_texts:
        if text.startswith(INTERRUPTED) and texts and (texts[-1], text) not in noted:
            noted.add((texts[-1], text))
        else:
            texts.append(text)
    return tuple(texts)
