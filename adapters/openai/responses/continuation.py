"""How a request continues what the backend keeps: forms of ids, fields, the check of the response, and the new handle.

Law: the echo in a response is the only sign of a backend that ignores fields which it does not know. An id that no rule
knows is accepted, because other servers make ids of their own.
"""

import re
import secrets

import msgspec
from msgspec import UNSET, UnsetType

from adapters.http.failures import Failures
from gateway.a2a.model import Json
from gateway.ports.adapter import NOT_PROCESSED, AdapterError, CallStarted, ErrorClass

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


class Echo(msgspec.Struct):
    """A response's own id, and what it continued. Servers leave out any of these fields."""

    id: str | None = None
    previous_response_id: str | UnsetType | None = UNSET
    conversation: Json | UnsetType = UNSET


class Chain(msgspec.Struct, frozen=True):
    """Continues the response `handle`, if any. Without `keeps`, nothing can continue the new response.

    With `verifies`, a response that names another predecessor is an error.
    """

    handle: str | None = None
    keeps: bool = True
    verifies: bool = True

    @property
    def fields(self) -> dict[str, Json]:
        previous = {} if self.handle is None else {"previous_response_id": self.handle}
        return {"store": self.keeps, **previous}

    def mismatch(self, echo: Echo, failures: Failures) -> AdapterError | None:
        sent, echoed = self.handle, echo.previous_response_id
        if not self.verifies or echoed in (UNSET, sent):
            return None
        if sent is None:
            what = f"the backend went on from {echoed!r}, which nobody named"
            return failures.error(ErrorClass.CONTRACT_BROKEN, what)
        what = f"the backend ignored previous_response_id {sent!r}: it went on from {echoed!r}"
        return failures.error(ErrorClass.HANDLE_NOT_FOUND, what)

    def started(self, echo: Echo) -> CallStarted | None:
        return CallStarted(self.handle_of(echo))

    def begun(self, error: AdapterError) -> AdapterError:
        """The failure of a response that has begun."""
        return error

    def handle_of(self, echo: Echo) -> str | None:
        return echo.id if self.keeps else None

    def state(self, last_item: str | None) -> dict[str, Json] | None:
        return None


class InConversation(msgspec.Struct, frozen=True):
    """Continues the conversation `handle`. `announced` says that the core knows the handle already, `goes_on` that the
    response goes on without a listener, so that its own id counts."""

    handle: str
    announced: bool = False
    goes_on: bool = False

    keeps = True

    @property
    def fields(self) -> dict[str, Json]:
        # The id is sent as a string and not in an object, because OGX accepts only a string.
        return {"store": True, "conversation": self.handle}

    def mismatch(self, echo: Echo, failures: Failures) -> AdapterError | None:
        echoed = echo.conversation.get("id") if isinstance(echo.conversation, dict) else echo.conversation
        if echoed in (UNSET, self.handle):
            return None
        if echoed is None:
            return failures.error(ErrorClass.HANDLE_NOT_FOUND, f"the backend ignored conversation {self.handle!r}")
        what = f"the backend answered in conversation {echoed!r}, not in {self.handle!r}"
        return failures.error(ErrorClass.CONTRACT_BROKEN, what)

    def started(self, echo: Echo) -> CallStarted | None:
        if self.goes_on:
            return CallStarted(self.handle, echo.id)
        return None if self.announced else CallStarted(self.handle)

    def begun(self, error: AdapterError) -> AdapterError:
        """The conversation may hold the input of a response that has begun, whatever limit has ended it."""
        limited = error.kind.meaning.transient and error.kind in NOT_PROCESSED
        return error.as_kind(ErrorClass.BACKEND_FAILED) if limited else error

    def handle_of(self, echo: Echo) -> str | None:
        return self.handle

    def state(self, last_item: str | None) -> dict[str, Json] | None:
        """The adapter's state. After `last_item`, the conversation may hold items that the gateway does not know."""
        return None if last_item is None else {"last_item": last_item}


Continuation = Chain | InConversation


def check_response_id(handle: str) -> None:
    """Raises: ValueError for an id of something else."""
    mistaken = (
        "is a conversation, and this agent goes on from responses (resp_...): name the conversation's last response, "
        "or set `conversation: true` for the agent"
    )
    needed = "the id of a response (resp_...), from which this agent goes on"
    _check(handle, _RESPONSE, needed, _CONVERSATION, mistaken)


def check_conversation_id(handle: str) -> None:
    """Raises: ValueError for an id of something else."""
    mistaken = (
        "is a response, and this agent goes on in conversations (conv_...), as `conversation: true` says: name a "
        "conversation, or remove that setting"
    )
    needed = "the id of a conversation (conv_...), in which this agent goes on"
    _check(handle, _CONVERSATION, needed, _RESPONSE, mistaken)


def _check(handle: str, right: re.Pattern[str], needed: str, wrong: re.Pattern[str], mistaken: str) -> None:
    if wrong.fullmatch(handle):
        raise ValueError(mistaken)
    if right.fullmatch(handle):
        return
    if known := _OTHER.fullmatch(handle):
        raise ValueError(f"is {_OTHERS[known[1]]}, and not {needed}")
    # Ids that servers make hold a digit, words do not.
    if not _ID.fullmatch(handle) or not any(character.isdigit() for character in handle):
        raise ValueError(f"is not {needed}")


def unknown_handle(handle: str) -> str:
    """A real id with another end: a service that checks only the form of ids would refuse any other text."""
    return handle[:-8] + secrets.token_hex(4)
