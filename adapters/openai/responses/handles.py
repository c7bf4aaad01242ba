"""How a request goes on from what the backend keeps: what it says of that, what the answer must not say, and which
handle comes out. Law: an echo is the only sign of a backend that ignores what it does not know.

What the ids of the Responses API look like: enough to know one that is another's. Law: what no rule knows is let pass,
because servers other than OpenAI's make ids of their own.
"""

import re
from dataclasses import dataclass

import msgspec
from msgspec import UNSET, UnsetType

from adapters.http.failures import Failures
from gateway.a2a.model import Json
from gateway.ports.adapter import AdapterError, ErrorClass


class Echo(msgspec.Struct):
    """What a response says of itself and of what it went on from. Servers leave out what they like."""

    id: str | None = None
    previous_response_id: str | UnsetType | None = UNSET
    conversation: Json | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class Chain:
    """From the response `handle`, if any; without `keeps` the answer leads nowhere.

    If `verifies`, the backend must not say that it went on from another.
    """

    handle: str | None = None
    keeps: bool = True
    verifies: bool = True

    announced = False

    @property
    def fields(self) -> dict[str, Json]:
        went_on_from = {} if self.handle is None else {"previous_response_id": self.handle}
        return {"store": self.keeps, **went_on_from}

    def contradicts(self, echo: Echo, failures: Failures) -> AdapterError | None:
        told, said = self.handle, echo.previous_response_id
        if not self.verifies or said in (UNSET, told):
            return None
        if told is None:
            return failures.error(ErrorClass.CONTRACT_BROKEN, f"the backend went on from {said!r}, which nobody named")
        what = f"the backend ignored previous_response_id {told!r}: it went on from {said!r}"
        return failures.error(ErrorClass.HANDLE_NOT_FOUND, what)

    def handle_of(self, echo: Echo) -> str | None:
        return echo.id if self.keeps else None

    def state(self, last_item: str | None) -> Json:
        return None


@dataclass(frozen=True, slots=True)
class InConversation:
    """In the conversation `handle`; `announced` if the core knows it by now."""

    handle: str
    announced: bool = False

    @property
    def fields(self) -> dict[str, Json]:
        # Not as an object: OGX takes a string only.
        return {"store": True, "conversation": self.handle}

    def contradicts(self, echo: Echo, failures: Failures) -> AdapterError | None:
        said = echo.conversation.get("id") if isinstance(echo.conversation, dict) else echo.conversation
        if said in (UNSET, self.handle):
            return None
        if said is None:
            return failures.error(ErrorClass.HANDLE_NOT_FOUND, f"the backend ignored conversation {self.handle!r}")
        what = f"the backend answered in conversation {said!r}, not in {self.handle!r}"
        return failures.error(ErrorClass.CONTRACT_BROKEN, what)

    def handle_of(self, echo: Echo) -> str | None:
        return self.handle

    def state(self, last_item: str | None) -> Json:
        """Behind this item begins what the conversation may hold without our knowledge."""
        return None if last_item is None else {"last_item": last_item}


Continuing = Chain | InConversation


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


def refuse_for_chain(handle: str) -> None:
    """Raises: ValueError for what is no response."""
    if _CONVERSATION.fullmatch(handle):
        raise ValueError(
            "is a conversation, and this agent goes on from responses (resp_...): name the conversation's last response, "
            "or set `conversation: true` for the agent"
        )
    if not _RESPONSE.fullmatch(handle):
        _refuse_others(handle, "the id of a response (resp_...), from which this agent goes on")


def refuse_for_conversation(handle: str) -> None:
    """Raises: ValueError for what is no conversation."""
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
