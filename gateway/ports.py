"""The two ports, Adapter and Ledger, and what crosses them. Law: a plug-in needs this module and the ones below it."""

from collections.abc import AsyncGenerator, Callable, Hashable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from gateway.api_keys import ApiKey
from gateway.commits import (
    AgedContext,
    AskedCall,
    Caller,
    CommitPoint,
    ContextRecord,
    Deletion,
    EarlierToolCall,
    EndedTask,
    IdempotencyKey,
    LatestCall,
    MeasuredCall,
    OpenTurn,
    Preferences,
    Replay,
    TaskFilter,
    TaskOwner,
    TaskRecord,
    ThreadRecord,
    ToolCallRecord,
    TurnRecord,
    UnfinishedTurn,
    UnheardCall,
    WaitingTurn,
)
from gateway.items import HistoryRecord, Item, OpaqueItem, Ownership, ReasoningItem, StorageOwner
from gateway.model import Artifact, Json, Message, Part
from gateway.portable import ContextDocument
from gateway.push_records import PushReads
from gateway.tool_port import ToolDeclaration

# --- what an adapter is asked -----------------------------------------------------------------------------------------


class ServiceRequest(msgspec.Struct, frozen=True):
    """One request to the backend, decided by the core.

    `items` are the ones to send: only what the backend's chain does not hold when the adapter's owner is BACKEND, the
    whole view when it is GATEWAY. The last one is a UserItem, or an OutputItem when the call goes on after tools ran;
    outputs of open calls may come with a UserItem behind them.
    `tools` are those that the model may call besides the backend's own; they go with every call, as instructions do.
    `handle` is None on the first call of a chain and for owner GATEWAY. `state` is the adapter's own JSON, as its last
    completed call left it. `context_id` is an opaque label. `deadline` is seconds of the monotonic clock. `owner` is who
    keeps this very conversation, where that is not who the adapter's `ownership` names: only for an adapter that says it
    can do `either`.
    """

    handle: str | None
    items: tuple[Item, ...]
    context_id: str
    task_id: str
    principal: str
    message: Message
    first_message: Message
    state: Json
    accepted_output_modes: tuple[str, ...]
    deadline: float
    owner: StorageOwner | None = None
    tools: tuple[ToolDeclaration, ...] = ()


# --- what an adapter answers ------------------------------------------------------------------------------------------


class CallStarted(msgspec.Struct, frozen=True):
    """The backend has taken the request; `handle` is the pending one, kept for cancel, fetch and delete only.

    A static handle that this call makes first comes before the request is sent: the call goes on when it is stored.
    """

    handle: str | None = None


class TextDelta(msgspec.Struct, frozen=True):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True):
    text: str


class PartReady(msgspec.Struct, frozen=True):
    """A part of the answer that came whole: a file, data."""

    part: Part


class ArtifactReady(msgspec.Struct, frozen=True):
    """An artifact of its own, beside the answer. `append` and `last_chunk` as in TaskArtifactUpdateEvent."""

    artifact: Artifact
    append: bool = False
    last_chunk: bool = False


class StartedOver(msgspec.Struct, frozen=True):
    """The backend begins its answer anew: what this call has said before is void, and follows once more."""


class Progress(msgspec.Struct, frozen=True):
    """A line on what the agent is doing; no part of the answer and not kept for the model."""

    text: str


class ToolCallAnnounced(msgspec.Struct, frozen=True):
    call_id: str
    name: str


class ToolCallArguments(msgspec.Struct, frozen=True):
    call_id: str
    delta: str


class ToolCallReady(msgspec.Struct, frozen=True):
    """All arguments are there (raw text). `handled`: the backend runs it or already answered it; None: not said.

    Without `handled` and without a ToolResultReady before CallCompleted the call is the gateway's to answer.
    `server` names who runs it where that is known, as `mcp:weather` or `web_search`. `question` is the `call_id` of the
    ApprovalAsked that was answered with a yes.
    """

    call_id: str
    name: str
    arguments: str
    handled: bool | None = None
    server: str | None = None
    provider_id: str | None = None
    question: str | None = None


class ToolResultReady(msgspec.Struct, frozen=True):
    """The outcome of a call that the backend ran. An empty output is one.

    It comes behind its ToolCallReady, in whatever order the backend gave the two. One whose `call_id` nobody called
    comes last, right before CallCompleted.
    """

    call_id: str
    output: Json
    error: bool = False


class ApprovalAsked(msgspec.Struct, frozen=True):
    """The backend asks whether it may run a tool of its own (`server` names whose, as `wx`), and ends its answer with it.

    To be remembered as `CallItem(call_id, name, arguments, asking=server)`, a call with executor `backend` that is open
    until somebody decides. The decision is its outcome: `OutputItem(call_id, reason, approved=...)` among the items of
    the next request, which the adapter says in the backend's own form. A request on that handle brings a decision on
    every question that is open there; what is not wanted any more is a no. What an approved tool does then comes as a
    call of its own, of a new id: ToolCallReady with `handled` and `question` = this `call_id` where the backend says so,
    and its ToolResultReady. A backend may ask again, under a new id.
    """

    call_id: str
    name: str
    arguments: str
    server: str
    provider_id: str | None = None


class ItemReady(msgspec.Struct, frozen=True):
    """Something to remember with the thread, in its place among the other items."""

    item: ReasoningItem | OpaqueItem
    provider_id: str | None = None


class DirectReply(msgspec.Struct, frozen=True):
    """The whole answer as a bare message, without a task. First event only, and only where the agent allows it.

    `state` replaces the adapter's JSON where it is not None.
    """

    parts: tuple[Part, ...]
    state: Json = None


class Ending(StrEnum):
    """How a completed call leaves its task."""

    COMPLETED = "completed"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    REJECTED = "rejected"


class CallCompleted(msgspec.Struct, frozen=True):
    """The one event that moves the thread on; the last one of a call.

    `handle` is the confirmed one: required for owner BACKEND, None for GATEWAY unless the backend kept the call although
    it should not. `message` is what the agent says with
    an ending other than COMPLETED. `finish` is the backend's own word when the answer is not whole (`max_output_tokens`,
    `content_filter`), else None. `state` replaces the adapter's JSON where it is not None. `stored`: the backend says
    that it kept (True) or did not keep (False) this call. `usage` is the backend's own; a whole number in it under
    `input_tokens` or `prompt_tokens` calibrates `history.max_tokens`.
    """

    handle: str | None = None
    ending: Ending = Ending.COMPLETED
    message: tuple[Part, ...] | None = None
    usage: Json = None
    finish: str | None = None
    state: Json = None
    stored: bool | None = None


AdapterEvent = (
    CallStarted
    | TextDelta
    | ReasoningDelta
    | PartReady
    | ArtifactReady
    | StartedOver
    | Progress
    | ToolCallAnnounced
    | ToolCallArguments
    | ToolCallReady
    | ToolResultReady
    | ApprovalAsked
    | ItemReady
    | DirectReply
    | CallCompleted
)


class ErrorClass(StrEnum):
    """Why a service call failed. The first eight: the backend did not process the request."""

    UNREACHABLE = "unreachable"
    REJECTED = "rejected-before-processing"
    RATE_LIMITED = "rate-limited"
    LOCKED = "locked"
    UNAUTHORISED = "unauthorised"
    HANDLE_NOT_FOUND = "handle-not-found"
    HANDLE_EXPIRED = "handle-expired"
    STORAGE_DISABLED = "storage-disabled"
    OVERFLOW = "overflow"
    TIMED_OUT = "timed-out"
    INTERRUPTED = "interrupted"
    BACKEND_FAILED = "backend-failed"
    CONTRACT_BROKEN = "contract-broken"
    UNKNOWN = "unknown"


class AdapterError(Exception):
    """A service call failed. `detail` is for the operator's log and never reaches a caller.

    `retry_after` is in seconds, where the backend named a time. `down`: not the backend said so, but whoever stands before it
    (502, 503, 504).
    """

    def __init__(self, kind: ErrorClass, detail: str, *, retry_after: float | None = None, down: bool = False) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after
        self.down = down


class Adapter(Protocol):
    """Speaks to one backend. It never stores, retries, runs the gateway's tools, or sees another context."""

    @property
    def ownership(self) -> Ownership: ...

    def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        """One service call. Returning after CallCompleted (or DirectReply) ends it, closing it cancels it.

        Raises: AdapterError when it fails; returning without CallCompleted or DirectReply is CONTRACT_BROKEN.
        """
        ...

    async def aclose(self) -> None: ...


# --- what an adapter may be able to do besides ---


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


S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class AdapterFactory(Generic[S]):
    """What an entry point of the group `a2a_gateway.adapters` names.

    `settings` is a pydantic model (frozen, extra keys forbidden) of the agent's own keys; `build` makes the adapter
    without touching the network and raises ValueError for settings that contradict each other. `input_modes` and
    `output_modes` are the media types of a card that says nothing itself. `direct_replies` tells whether these settings
    let the agent answer with a bare message. `tools` False: the adapter ignores the tools of a request, so that to give
    an agent of this type some is an error of the configuration.
    """

    settings: type[S]
    build: Callable[[S], Adapter]
    input_modes: tuple[str, ...] = ("text/plain", "application/json")
    output_modes: tuple[str, ...] = ("text/plain", "application/json")
    direct_replies: Callable[[S], bool] = field(default=lambda _settings: False)
    tools: bool = True


# --- the ledger ---


class Ledger(PushReads, Protocol):
    """Durable state. Every read names its caller: another caller's row is not there."""

    async def commit(self, *points: CommitPoint) -> None:
        """All points in one transaction; returns when it is durable. Raises: Conflict, LedgerUnavailable."""
        ...

    def submit(self, points: tuple[CommitPoint, ...], done: Callable[[Exception | None], None]) -> None:
        """As `commit`, without waiting: `done` is called in the event loop, in the order of submission."""
        ...

    async def context(self, caller: Caller, public_id: str, agent: str) -> ContextRecord | None: ...

    async def thread(self, thread_id: str) -> ThreadRecord | None: ...

    async def task(self, caller: Caller, agent: str, task_id: str) -> TaskRecord | None: ...

    async def whole_task(
        self, caller: Caller, agent: str, task_id: str
    ) -> tuple[TaskRecord, tuple[TurnRecord, ...]] | None:
        """A task and its turns in order, artifacts included, as one moment has them."""
        ...

    async def waiting(self, context: str) -> tuple[TaskRecord, ...]:
        """The public tasks of a context (its row) that wait for their caller, of all agents."""
        ...

    async def replay(self, caller: Caller, agent: str, key: IdempotencyKey) -> Replay | None: ...

    async def turns(self, task_ids: tuple[str, ...], artifacts: bool) -> dict[str, tuple[TurnRecord, ...]]: ...

    async def first_message(self, task_id: str) -> Message | None: ...

    async def events(self, task_id: str, after: int) -> tuple[tuple[int, bytes], ...]:
        """(number, A2A 1.0 JSON) of the events behind number `after`, in order."""
        ...

    async def tasks(
        self, caller: Caller, agent: str, where: TaskFilter, limit: int
    ) -> tuple[tuple[TaskRecord, ...], int]:
        """A page, latest status first, and how many tasks match in all."""
        ...

    async def history(self, thread_id: str, *, unsent_only: bool) -> tuple[HistoryRecord, ...]:
        """Items of a thread in order of turns, then positions."""
        ...

    async def recent_history(
        self, thread_id: str, turn_id: str, *, messages: int | None, weight: int | None, opaque: bool
    ) -> tuple[HistoryRecord, ...]:
        """As `history`, from its end: whole turns, until those up to this one have so many messages or so much weight.

        `opaque`: reasoning and opaque items count. However long the thread is, no more of it is read.
        """
        ...

    async def measured(self, thread_id: str) -> tuple[MeasuredCall, ...]:
        """The latest few completed service calls of a thread, the last one first."""
        ...

    async def unfinished(self, now: int, process: str = "") -> tuple[UnfinishedTurn, ...]:
        """What dead processes left, and all that has not ended of the process that asks."""
        ...

    async def open_turns(self, context: str) -> tuple[OpenTurn, ...]:
        """The turns of a context (its row) that have not ended, of all agents and processes."""
        ...

    async def open_tool_calls(self, turn: str) -> tuple[ToolCallRecord, ...]:
        """Those of a turn that have no outcome, in the order in which they were made."""
        ...

    async def latest_call(self, turn: str) -> LatestCall | None: ...

    async def preferences(self, turn: str) -> Preferences:
        """Of the message that opened the turn."""
        ...

    async def process_of(self, turn: str) -> str | None:
        """The process that has a turn which has not ended."""
        ...

    async def unheard(self, thread_id: str) -> UnheardCall | None:
        """What made a thread `unsynced`."""
        ...

    async def earlier_tool_call(self, thread_id: str, external_id: str, than: str) -> EarlierToolCall | None:
        """The latest one of this thread with that external id which has ended, but for the call `than`."""
        ...

    async def waiting_turn(self, task: str) -> WaitingTurn | None:
        """The turn of this task that waits for its caller."""
        ...

    async def waiting_task(self, thread: str) -> str | None:
        """The task whose turn waits on this thread."""
        ...

    async def asked_calls(self, task: str) -> tuple[AskedCall, ...]:
        """Those of a task that its caller has decided, or has to run, in whatever turn."""
        ...

    async def due_turns(self, now: int, answered_before: int, limit: int) -> tuple[tuple[TaskOwner, str], ...]:
        """The tasks whose turns wait in vain: everything was answered then, or the time for it is over."""
        ...

    async def standing_approvals(self, context: str, principal: str) -> frozenset[tuple[str | None, str]]:
        """The tools, as (server, name), that the principal allowed for as long as the context lasts, by its row's id."""
        ...

    async def turn_base(self, turn: str) -> tuple[str | None, ...]:
        """The handle at which a turn began, or the chain that it began itself; nothing where it made no call."""
        ...

    async def cancels_asked(self, process: str) -> tuple[str, ...]:
        """The tasks whose turns this process was asked to cancel."""
        ...

    async def version(self) -> int:
        """A number that changes with every commit, whichever process has made it."""
        ...

    async def latest_events(self, tasks: tuple[str, ...]) -> dict[str, int]:
        """The number of the last event of each of these tasks; a task that is gone is left out."""
        ...

    async def deletions(self, limit: int) -> tuple[Deletion, ...]:
        """The next ones, due or not, but for those that were given up."""
        ...

    async def next_owner(self, after: TaskOwner) -> TaskOwner | None:
        """All who have public tasks, one after the other."""
        ...

    async def ended_tasks(
        self, owner: TaskOwner, before: int, after: tuple[int, str], limit: int
    ) -> tuple[EndedTask, ...]:
        """Those whose state is older than `before`, the oldest first. `after` is (status_at, id) of the last one read."""
        ...

    async def aged_contexts(self, idle_before: int, after: str, limit: int) -> tuple[AgedContext, ...]:
        """Contexts in the order in which they were made. `after` is the id of the last one read."""
        ...

    async def left(self, context: str) -> bool:
        """Is there anything to purge yet of a buried context?"""
        ...

    async def export(self, caller: Caller, public_id: str) -> ContextDocument | None:
        """A context as it is at one moment; None when there is none or it is buried.

        Raises: Conflict while a turn waits or runs in it.
        """
        ...

    async def api_key(self, digest: bytes) -> ApiKey | None:
        """In force or not. Every call asks the database: another process may have revoked it."""
        ...

    async def api_keys(self) -> tuple[ApiKey, ...]:
        """All that were ever made, the oldest first."""
        ...

    async def secret(self, name: str) -> bytes:
        """32 random bytes that stay the same for the life of the database, made on first use."""
        ...

    async def ready(self) -> None:
        """Raises: LedgerUnavailable when it cannot read, its schema is not ours, or it has not taken writes of late and
        does not now."""
        ...


@dataclass(frozen=True, slots=True)
class LedgerFactory:
    """What an entry point of the group `a2a_gateway.ledgers` names; the entry's name is the URL's scheme."""

    open: Callable[[str, bool], AbstractAsyncContextManager[Ledger]]


AnyAdapterFactory = AdapterFactory[Any]
