"""What an adapter may be able to do besides to make calls: one protocol each, found by `isinstance`."""

from collections.abc import AsyncGenerator, Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from gateway.a2a.model import Json, Message
from gateway.ports.adapter import AdapterEvent, ServiceRequest


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a backend was found to do; None: it could not be told. `notes` are more findings, in plain words.

    `model`: the backend lists the model that the settings name. `streams`: it sends an answer in pieces. `verifies_chain`:
    it refuses to go on from a response that it does not know.
    """

    model: bool | None = None
    streams: bool | None = None
    verifies_chain: bool | None = None
    notes: tuple[str, ...] = ()


@runtime_checkable
class Probe(Protocol):
    """An ability: to look at the backend before anybody needs it. What it sends leaves no trace in a conversation."""

    async def probe(self) -> ProbeReport:
        """Raises: AdapterError when the backend cannot be used."""
        ...


@dataclass(frozen=True, slots=True)
class Backend:
    """What is one and the same for all adapters that ask this address on this account."""

    address: str
    account: Hashable = field(default=None, repr=False)


@runtime_checkable
class BackendNaming(Protocol):
    """An ability: to say which backend it asks, so that one that is down is left alone for a while."""

    @property
    def backend(self) -> Backend: ...


@runtime_checkable
class Forgetting(Protocol):
    """An ability: to delete at the backend what a handle stands for."""

    async def forget(self, handle: str) -> None:
        """Returns also when the backend has no such thing (any more). Raises: AdapterError when it did not answer so."""
        ...


@runtime_checkable
class StateReading(Protocol):
    """An ability: to go on from a state that an older version of the adapter left."""

    def read_state(self, state: Json, version: int) -> Json:
        """The state as `ownership.state_version` has it. Raises: ValueError for one that it cannot read."""
        ...


@runtime_checkable
class HandleNaming(Protocol):
    """An ability: to see that a caller's message names a conversation of the backend, in the backend's own words."""

    def named_handle(self, message: Message) -> str | None: ...


@runtime_checkable
class HandleChecking(Protocol):
    """An ability: to tell from its form that a text cannot be a handle of these settings."""

    def check_handle(self, handle: str) -> None:
        """Asks nobody. Raises: ValueError that says what it is instead, and what the settings need."""
        ...


class Fate(StrEnum):
    """What became of a service call whose end nobody heard. `RUNNING`: or the backend lost it; some say so for ever."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class Fetched:
    """`events` are what `call` would have given, to CallCompleted with the confirmed handle; only of what COMPLETED."""

    fate: Fate
    events: tuple[AdapterEvent, ...] = ()


@runtime_checkable
class Fetching(Protocol):
    """An ability, of a rotating handle: to look up what became of a call, by the pending handle that it had."""

    async def fetch(self, pending: str) -> Fetched:
        """Changes nothing at the backend. Raises: AdapterError when it could not be asked."""
        ...


@runtime_checkable
class Resuming(Protocol):
    """An ability, of a rotating handle: its calls go on at the backend when nobody listens, and can be listened to again."""

    def resume(self, request: ServiceRequest, pending: str) -> AsyncGenerator[AdapterEvent, None]:
        """The call that has this pending handle, told from its beginning, as `call` tells it; it is not made again.

        `request` is that call's. Raises: AdapterError; UNREACHABLE, TIMED_OUT and INTERRUPTED where it may be resumed
        later, BACKEND_FAILED where the backend says that it has failed or is gone.
        """
        ...


@runtime_checkable
class Cancelling(Protocol):
    """An ability: to end a call that goes on at the backend when nobody listens."""

    async def cancel(self, pending: str) -> bool:
        """Whether the backend confirmed that it does not go on. Raises: AdapterError when it could not be asked."""
        ...


@dataclass(frozen=True, slots=True)
class Tail:
    """What a conversation holds of a request, behind the end of the last completed call.

    `held`: so many of the request's items, from the first on, are there: they must not be sent again. `answer`: what the
    backend added behind them, as `call` would have given it, to CallCompleted; empty when it added nothing.
    """

    held: int
    answer: tuple[AdapterEvent, ...] = ()


@runtime_checkable
class TailListing(Protocol):
    """An ability, of a static handle: to see what of a call whose end nobody heard is in the conversation."""

    async def tail(self, request: ServiceRequest) -> Tail | None:
        """`request` is that call's, or the next one's: handle and state of the thread, the items that are due.

        None: the backend's list does not reach back to the last completed call. A response that still runs leaves
        nothing before it ends: behind LOCKED this has to be asked again. Raises: AdapterError when it could not be
        asked, HANDLE_NOT_FOUND when the conversation is gone.
        """
        ...
