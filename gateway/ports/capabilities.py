"""The optional abilities of an adapter: one protocol each, found by `isinstance`."""

from collections.abc import AsyncGenerator, Hashable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

import msgspec

from gateway.a2a.model import AgentSkill, Json, Message
from gateway.ports.adapter import AdapterEvent, ServiceRequest
from gateway.ports.conversation import OutputItem


class ProbeReport(msgspec.Struct, frozen=True):
    """Findings about a backend. None stands for a finding that could not be determined. `notes` are more findings, in
    plain text.

    `model` says that the backend lists the model of the settings, `streams` that it sends an answer in pieces,
    `verifies_chain` that it refuses to continue from an unknown response.
    """

    model: bool | None = None
    streams: bool | None = None
    verifies_chain: bool | None = None
    notes: tuple[str, ...] = ()


@runtime_checkable
class CanProbe(Protocol):
    """Examines the backend before its first use. The requests leave no trace in a conversation."""

    async def probe(self) -> ProbeReport:
        """Raises: AdapterError when the backend cannot be used."""


class Description(msgspec.Struct, frozen=True):
    """An agent as its backend describes it. None and an empty tuple stand for what the backend does not say. The modes are
    media types."""

    name: str | None = None
    description: str | None = None
    version: str | None = None
    skills: tuple[AgentSkill, ...] = ()
    input_modes: tuple[str, ...] = ()
    output_modes: tuple[str, ...] = ()
    documentation_url: str | None = None
    icon_url: str | None = None


@runtime_checkable
class CanDescribe(Protocol):
    """Knows what the agent's card can say, as an agent with a card of its own does."""

    async def describe(self) -> Description:
        """Asked at the start and then now and then, in the background. Changes nothing at the backend. Raises: AdapterError
        when the backend gave no description."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The identity of a backend: equal for all adapters with this address and account."""

    address: str
    account: Hashable = field(default=None, repr=False)


@runtime_checkable
class HasBackend(Protocol):
    """Names its backend, so that agents with the same backend share one breaker."""

    @property
    def backend(self) -> Backend: ...


class Model(msgspec.Struct, frozen=True):
    """`provider` as OpenTelemetry names it in `gen_ai.provider.name`, `name` as the requests name the model, where they do."""

    provider: str
    name: str | None = None


@runtime_checkable
class HasModel(Protocol):
    """Knows whose model answers, and which."""

    @property
    def model(self) -> Model: ...


@runtime_checkable
class CanForget(Protocol):
    """Deletes a handle's conversation or response at the backend."""

    async def forget(self, handle: str) -> None:
        """Returns also when the backend does not know the handle (any more). Raises: AdapterError for any other answer."""


@runtime_checkable
class CanReadState(Protocol):
    """Reads the state of an older version of the adapter."""

    def read_state(self, state: Json, version: int) -> Json:
        """The state in the schema of `ownership.state_version`. Raises: ValueError for an unreadable state."""


@runtime_checkable
class CanNameHandle(Protocol):
    """Finds the handle of an existing conversation in a caller's message, where the message names one."""

    def named_handle(self, message: Message) -> str | None: ...


@runtime_checkable
class CanCheckHandle(Protocol):
    """Tells from its form that a text cannot be a handle of these settings."""

    def check_handle(self, handle: str) -> None:
        """Checks the form of a handle, without I/O. Raises: ValueError, with a text that says what the handle is
        instead and what form the settings need."""


class Fate(StrEnum):
    """The fate of a service call of unknown outcome. RUNNING: or lost by the backend; some report this for ever."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    GONE = "gone"


class Fetched(msgspec.Struct, frozen=True):
    """A call that was looked up at the backend. `events` are the events that `call` would have yielded, up to
    CallCompleted with the confirmed handle; they are present only for COMPLETED."""

    fate: Fate
    events: tuple[AdapterEvent, ...] = ()


class Ongoing(msgspec.Struct, frozen=True):
    """The names of a call that may be under way at the backend, as CallStarted gave them. `handle` is the pending handle, or
    the static handle of the conversation. `run` is the name of the call itself; None only where the handle rotates, and
    names the call."""

    handle: str | None = None
    run: str | None = None


@runtime_checkable
class CanFetch(Protocol):
    """Looks up the fate of a call by its names."""

    async def fetch(self, call: Ongoing) -> Fetched:
        """Changes nothing at the backend. Raises: AdapterError when the backend gave no answer."""


@runtime_checkable
class CanFind(Protocol):
    """For a static handle: finds a call by what it has said, where the stream broke, or the process died, before the backend
    had named anything."""

    async def find(self, request: ServiceRequest) -> Ongoing | None:
        """The names of the call of `request`, or of its first items; the handle too, where the call has begun the
        conversation. None where there is no such call, or the backend cannot tell. Changes nothing at the backend. Raises:
        AdapterError when the backend gave no answer.
        """


@runtime_checkable
class CanResume(Protocol):
    """Calls continue at the backend without a listener, and their events can be read again."""

    def resume(self, request: ServiceRequest, call: Ongoing) -> AsyncGenerator[AdapterEvent, None]:
        """The events of the call with these names, from its beginning, as `call` yields them; no new call is made.

        `request`: that of the call. Raises: AdapterError; UNREACHABLE, TIMED_OUT and INTERRUPTED where it may be resumed
        later, BACKEND_FAILED where the backend reports that the call has failed or is gone.
        """


@runtime_checkable
class CanCancel(Protocol):
    """Ends a call that continues at the backend without a listener."""

    async def cancel(self, call: Ongoing) -> bool:
        """Whether the backend confirmed that the call has ended. Raises: AdapterError when the backend gave no answer."""


@runtime_checkable
class CanWithdraw(Protocol):
    """A complete call may leave something waiting at the backend: a question, a decision on a tool call, results of tools."""

    async def withdraw(self, call: Ongoing, outcomes: Sequence[OutputItem]) -> None:
        """Ends what the call with these names has left waiting, because its caller has given up.

        `outcomes` are those of its tool calls that the backend was not told; none where no call has run. An answer to them is
        not wanted. May come again, and after the conversation has gone on: it changes nothing then. Raises: AdapterError when
        the backend gave no answer.
        """


class Tail(msgspec.Struct, frozen=True):
    """The part of a request that a conversation holds after the end of the last completed call.

    `held` is the number of the request's items, from the first on, that the conversation holds; they must not be sent
    again. `answer` are the events of the backend's answer after these items, up to CallCompleted, or empty when there
    is no answer.
    """

    held: int
    answer: tuple[AdapterEvent, ...] = ()


@runtime_checkable
class CanListTail(Protocol):
    """For a static handle: finds the part of a call of unknown outcome that is in the conversation."""

    async def tail(self, request: ServiceRequest) -> Tail | None:
        """Returns the part of `request` that the conversation holds. `request` is the request of the call or of the
        next call, with the handle and the state of the thread and the items that have to be sent.

        Returns None when the backend's list does not reach back to the last completed call; a call with a run then counts
        as held. A running response leaves no items before it ends, so after LOCKED the tail has to be read again; that of
        an earlier call, to which nobody listens, may be ended here.

        Raises: AdapterError when the backend gave no answer, HANDLE_NOT_FOUND when the conversation no longer exists.
        """
