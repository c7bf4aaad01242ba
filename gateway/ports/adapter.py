"""The Adapter port and what crosses it. Law: an adapter needs this module and the ones below it; what it may be able to do
besides is in `abilities`."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gateway.a2a.model import Artifact, Json, Message, Part
from gateway.ports.conversation import Item, OpaqueItem, Ownership, ReasoningItem, StorageOwner
from gateway.ports.tools import ToolDeclaration

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


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
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


class ToolCallArguments(msgspec.Struct, frozen=True, gc=False):
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


class ConsentAsked(msgspec.Struct, frozen=True):
    """The backend cannot go on before its user has consented to something at a third party, on the page at `url`, and ends
    its answer with it. The task waits as AUTH_REQUIRED for its next message, which goes upstream as any other: whether the
    consent was given is for the backend to see. `server` is for whom it is, as `mcp:mail`; `text` says why.
    """

    url: str
    server: str = ""
    text: str = ""


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
    | ConsentAsked
    | ItemReady
    | DirectReply
    | CallCompleted
)


class ErrorClass(StrEnum):
    """Why a service call failed; `MEANINGS` says what follows from each class."""

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

    @property
    def meaning(self) -> "ErrorMeaning":
        return MEANINGS[self]


class Processed(Enum):
    """Whether the backend processed a request. MAYBE: it may also be still at work on it. YES: it is over."""

    NO = "no"
    MAYBE = "maybe"
    YES = "yes"


class ErrorMeaning(msgspec.Struct, frozen=True):
    """`transient`: the same request may succeed later. `handle_lost`: the backend does not know the handle (any more).
    `backend_down`: no backend answered. `conclusive`: a look-up of an earlier call that fails so never succeeds.
    """

    processed: Processed
    transient: bool = False
    handle_lost: bool = False
    backend_down: bool = False
    conclusive: bool = False


MEANINGS: Mapping[str, ErrorMeaning] = {
    ErrorClass.UNREACHABLE: ErrorMeaning(Processed.NO, transient=True, backend_down=True),
    ErrorClass.REJECTED: ErrorMeaning(Processed.NO, conclusive=True),
    ErrorClass.RATE_LIMITED: ErrorMeaning(Processed.NO, transient=True),
    ErrorClass.LOCKED: ErrorMeaning(Processed.NO, transient=True),
    ErrorClass.UNAUTHORISED: ErrorMeaning(Processed.NO),
    ErrorClass.HANDLE_NOT_FOUND: ErrorMeaning(Processed.NO, handle_lost=True, conclusive=True),
    ErrorClass.HANDLE_EXPIRED: ErrorMeaning(Processed.NO, handle_lost=True, conclusive=True),
    ErrorClass.STORAGE_DISABLED: ErrorMeaning(Processed.NO),
    ErrorClass.OVERFLOW: ErrorMeaning(Processed.NO),
    ErrorClass.TIMED_OUT: ErrorMeaning(Processed.MAYBE, transient=True, backend_down=True),
    ErrorClass.INTERRUPTED: ErrorMeaning(Processed.MAYBE, transient=True),
    ErrorClass.BACKEND_FAILED: ErrorMeaning(Processed.YES, transient=True),
    ErrorClass.CONTRACT_BROKEN: ErrorMeaning(Processed.YES, conclusive=True),
    ErrorClass.UNKNOWN: ErrorMeaning(Processed.MAYBE, transient=True),
}
"""What an ErrorClass means: the only place that says so. Keyed by text, since stored calls name classes of the gateway too."""

NOT_PROCESSED = frozenset(kind for kind in ErrorClass if kind.meaning.processed is Processed.NO)
HANDLE_LOST: frozenset[str] = frozenset(kind for kind in ErrorClass if kind.meaning.handle_lost)


class AdapterError(Exception):
    """A service call failed. `detail` is for the operator's log and never reaches a caller.

    `retry_after` is in seconds, where the backend named a time. `backend_down`: a proxy before the backend said so
    (502, 503, 504).
    """

    def __init__(
        self, kind: ErrorClass, detail: str, *, retry_after: float | None = None, backend_down: bool = False
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after
        self.backend_down = backend_down


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


AnyAdapterFactory = AdapterFactory[Any]
