"""Forms of ids in the Responses API: enough to refuse an id of another kind. Law: an id that no rule knows is accepted,
because other servers make ids of their own.
"""

import re
import secrets

_RESPONSE = re.compile(r"(?:[a-z]{0,8})?resp[_-].+")
_CONVERSATION = re.compile(r"conv[_-].+")
_OTHERS = {
    "msg": "a message",
    "item": "an item",
    "rs": "a piece of reasoning",
    "fc": "a call",
    "call": "a call",
    "run": "a run",
    "thread": "a thread of the Assistants API",
    "asst": "an assistant",
    "chatcmpl": "an answer of Chat Completions",
    "file": "a file",
    "vs": "a vector store",
    "sk": "a key",
}
_OTHER = re.compile(rf"({'|'.join(_OTHERS)})[_-].+")
_ID = re.compile(r"[A-Za-z0-9._:+/=-]{6,}")


def check_response_id(handle: str) -> None:
    """Raises: ValueError for an id of something else."""
    if _CONVERSATION.fullmatch(handle):
        raise ValueError(
            "is a conversation, and this agent goes on from responses (resp_...): name the conversation's last response, "
            "or set `conversation: true` for the agent"
        )
    if not _RESPONSE.fullmatch(handle):
        _refuse_others(handle, "the id of a response (resp_...), from which this agent goes on")


def check_conversation_id(handle: str) -> None:
    """Raises: ValueError for an id of something else."""
    if _RESPONSE.fullmatch(handle):
        raise ValueError(
            "is a response, and this agent goes on in conversations (conv_...), as `conversation: true` says: name a "
            "conversation, or remove that setting"
        )
    if not _CONVERSATION.fullmatch(handle):
        _refuse_others(handle, "the id of a conversation (conv_...), in which this agent goes on")


def _refuse_others(handle: str, needed: str) -> None:
    known = _OTHER.fullmatch(handle)
    if known is not None:
        raise ValueError(f"is {_OTHERS[known[1]]}, and not {needed}")
    # Ids that servers make hold a digit, words do not.
    if not _ID.fullmatch(handle) or not any(character.isdigit() for character in handle):
        raise ValueError(f"is not {needed}")


def unknown_handle(handle: str) -> str:
    """A real id with another end: a service that checks only the form of ids would refuse any other text."""
    return handle[:-8] + secrets.token_hex(4)
