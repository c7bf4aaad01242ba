"""The Adapter port: its request, events and errors. Law: an adapter needs only this module and the packages below; its optional
abilities are in `capabilities`."""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from gateway.a2a.model import Artifact, Json, Message, Part
from gateway.ports.conversation import HandleKind, Item, OpaqueItem, Ownership, ReasoningItem, StorageOwner
from gateway.ports.tools import ToolDeclaration


class ServiceRequest(msgspec.Struct, frozen=True):
    """One request to the backend, with the content that the core decides.

    `items` depend on the owner of the conversation: with owner BACKEND they are the items that the backend's chain does
    not hold, with owner GATEWAY the whole view. The last item is a UserItem, or an OutputItem when the call continues
    after tools ran; a UserItem may follow the outputs of open calls. `tools` are the tools that the model may call in
    addition to the backend's own; every call carries them, like the instructions. `handle` is None on the first call of
    a chain and with owner GATEWAY. `state` is the adapter's own JSON from its last completed call, `secret` that which is
    sealed in the database; it is None again where it cannot be opened, and after an import. `so_far` is that of the call's
    last AnswerPaused, where its next request is made again: only what follows is given then. `context_id` is an opaque
    label. `answer` is the id under which callers get the artifact with the answer of this turn; `shown` are the ids of the
    other artifacts that the turn has shown, in a request whose call is listened to again. `deadline` is a time of the
    monotonic clock, in seconds. `owner` is the owner of this conversation if it differs from the adapter's `ownership`, which
    only happens to an adapter that declares `either`.
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
    secret: Json = None
    so_far: Json = None
    answer: str = ""
    shown: frozenset[str] = frozenset()


class CallStarted(msgspec.Struct, frozen=True):
    """The backend has taken the request; `handle` is pending, and used for cancel, fetch and delete only.

    A new static handle is announced before the request is sent: the call continues when the handle is stored. `run` is
    the backend's name for this very call where the handle does not name it, such as the run of a thread. It may come
    later than the handle, in an event of its own.
    """

    handle: str | None = None
    run: str | None = None


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    text: str


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    text: str


class MessageReady(msgspec.Struct, frozen=True):
    """The end of a message of the answer: the next TextDelta begins another message, which callers see as a part of its own.

    `text` is the complete message, and what was shown of the message becomes this text. `key` is the id of the message
    within its call, if it has one; an event that names an earlier message again replaces the text of that message. An
    adapter whose answers are one message each may omit this event.
    """

    text: str
    key: str = ""


class PartReady(msgspec.Struct, frozen=True):
    """A part of the answer that came whole: a file, data."""

    part: Part


class AnswerReplaced(msgspec.Struct, frozen=True):
    """What the call has said of its answer becomes these parts: texts, files, data. The next TextDelta continues the last of
    them if it is a text. With `of_turn`, what earlier calls of the turn have said of the answer goes as well."""

    parts: tuple[Part, ...]
    of_turn: bool = False


class ArtifactReady(msgspec.Struct, frozen=True):
    """An artifact of its own, beside the answer. `append` and `last_chunk` as in TaskArtifactUpdateEvent.

    The answer of an earlier turn of the task is one too, by the `answer` of that turn's request. A text behind it is another
    message; with `within_text` it continues the text of the answer before it.
    """

    artifact: Artifact
    append: bool = False
    last_chunk: bool = False
    within_text: bool = False


class StartedOver(msgspec.Struct, frozen=True):
    """The backend starts its answer again: the earlier output of this call is void, and is repeated."""


class AnswerPaused(msgspec.Struct, frozen=True):
    """The backend has paused in its answer: what came of it stands, and the adapter continues it with another request.

    `so_far` is all that the adapter needs to make that request: where it fails before it has brought anything, and a call that
    has brought nothing would be made again, the call is made again with `ServiceRequest.so_far`. CallStarted follows when that
    request is accepted.
    """

    so_far: Json


class Progress(msgspec.Struct, frozen=True):
    """A line on the agent's present work; neither part of the answer nor kept for the model."""

    text: str


class ToolCallAnnounced(msgspec.Struct, frozen=True):
    """The model begins a tool call. `handled` and `server` as in ToolCallReady, as far as they are known by then."""

    call_id: str
    name: str
    handled: bool | None = None
    server: str | None = None


class ToolCallArguments(msgspec.Struct, frozen=True, gc=False):
    call_id: str
    delta: str


class ToolCallReady(msgspec.Struct, frozen=True):
    """The arguments of a tool call are complete (raw text). `handled` says that the backend runs the call or has
    answered it, or is None when that is not known.

    Without `handled`, and without a ToolResultReady before CallCompleted, the gateway answers the call. `server` is the
    executor of the tool if it is known, for example `mcp:weather` or `web_search`. `question` is the `call_id` of the
    ApprovalAsked that was approved. `opaque` comes back with the CallItem.
    """

    call_id: str
    name: str
    arguments: str
    handled: bool | None = None
    server: str | None = None
    provider_id: str | None = None
    question: str | None = None
    opaque: Json = None


class ToolResultReady(msgspec.Struct, frozen=True):
    """The outcome of a call that the backend ran. An empty output is an outcome.

    It follows its ToolCallReady, in whatever order the backend sent the two. A result without a call comes last, right before
    CallCompleted.
    """

    call_id: str
    output: Json
    error: bool = False


class ApprovalAsked(msgspec.Struct, frozen=True):
    """The backend asks whether it may run a tool of its own (of `server`, as `wx`), and ends its answer with the question.

    It is stored as `CallItem(call_id, name, arguments, asking=server)`, a call with executor `backend` that is open until
    somebody decides. The decision is its outcome: `OutputItem(call_id, reason, approved=...)` among the items of the next
    request, which the adapter translates for the backend. A request on that handle carries a decision on every question that
    is open there; a question that is void gets a rejection. The run of an approved tool is a call with a new id:
    ToolCallReady with `handled` and, where the backend says so, `question` = this `call_id`, and its ToolResultReady. A
    backend may ask again, under a new id.
    """

    call_id: str
    name: str
    arguments: str
    server: str
    provider_id: str | None = None


class ConsentAsked(msgspec.Struct, frozen=True):
    """The backend ends its answer because the user has to consent at a third party first, on the page at `url`.

    The task waits as AUTH_REQUIRED for its next message. That message goes to the backend like any other message, and
    the backend checks the consent. `server` names the party that needs the consent, for example `mcp:mail`; `text` is
    the reason.
    """

    url: str
    server: str = ""
    text: str = ""


class ItemReady(msgspec.Struct, frozen=True):
    """An item to store with the thread, in its place among the others."""

    item: ReasoningItem | OpaqueItem
    provider_id: str | None = None


class DirectReply(msgspec.Struct, frozen=True):
    """The whole answer as a bare message, without a task. Only as the first event, or behind CallStarted, where the agent
    allows it, and where the caller knows of no task yet.

    `state` replaces the adapter's JSON unless it is None. `handle` is the confirmed handle, as in CallCompleted; a
    rotating one stays where it was without it.
    """

    parts: tuple[Part, ...]
    state: Json = None
    handle: str | None = None


class Ending(StrEnum):
    """The state of the task after a completed call."""

    COMPLETED = "completed"
    INPUT_REQUIRED = "input-required"
    AUTH_REQUIRED = "auth-required"
    REJECTED = "rejected"


class CallCompleted(msgspec.Struct, frozen=True):
    """The only event that advances the thread, and the last event of a call.

    `handle` is the confirmed handle. It is required for owner BACKEND; for owner GATEWAY it is None, unless the backend
    kept the call although it should not. `message` explains an ending other than COMPLETED; it is a part of the conversation as
    the last words of the answer, once also where the answer ends with them. `finish` is the backend's
    reason for an incomplete answer (`max_output_tokens`, `content_filter`), without secrets, else None; callers are told
    only names that are known, and no call of such an answer runs.
    `state` replaces the adapter's JSON unless it is None, `secret` likewise, which is sealed in the database and in no export:
    the place for a token. `stored` is the backend's report that it kept (True) or did not
    keep (False) this call. `usage` is the backend's report of tokens, in one of the forms that
    `gateway.core.usage` reads; its input tokens calibrate `history.max_tokens`.
    """

    handle: str | None = None
    ending: Ending = Ending.COMPLETED
    message: tuple[Part, ...] | None = None
    usage: Json = None
    finish: str | None = None
    state: Json = None
    stored: bool | None = None
    secret: Json = None


AdapterEvent = (
    CallStarted
    | TextDelta
    | MessageReady
    | ReasoningDelta
    | PartReady
    | AnswerReplaced
    | ArtifactReady
    | StartedOver
    | AnswerPaused
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
    UNSENDABLE = "not-sendable"
    RATE_LIMITED = "rate-limited"
    LOCKED = "locked"
    UNAUTHORISED = "unauthorised"
    NOT_SERVED = "not-served"
    HANDLE_NOT_FOUND = "handle-not-found"
    HANDLE_EXPIRED = "handle-expired"
    STORAGE_DISABLED = "storage-disabled"
    OVERFLOW = "overflow"
    POLICY = "refused-by-policy"
    TIMED_OUT = "timed-out"
    INTERRUPTED = "interrupted"
    BACKEND_FAILED = "backend-failed"
    CONTRACT_BROKEN = "contract-broken"
    REPLAY_MISSING = "replay-missing"
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
    """The meaning of a class of errors. `transient`: the same request may succeed later. `handle_lost`: the backend
    does not know the handle, or has deleted it. `backend_down`: no backend answered. `conclusive`: after this error,
    later look-ups of the same earlier call fail too. `refuses_content`: the cause is the content that the request
    carried, and not the state or the settings of the backend, so that the same content would be refused again. Without `sent`
    the backend was asked nothing."""

    processed: Processed
    transient: bool = False
    handle_lost: bool = False
    backend_down: bool = False
    conclusive: bool = False
    refuses_content: bool = False
    sent: bool = True


MEANINGS: Mapping[str, ErrorMeaning] = {
    ErrorClass.UNREACHABLE: ErrorMeaning(Processed.NO, transient=True, backend_down=True),
    ErrorClass.REJECTED: ErrorMeaning(Processed.NO, conclusive=True, refuses_content=True),
    ErrorClass.UNSENDABLE: ErrorMeaning(Processed.NO, conclusive=True, refuses_content=True, sent=False),
    ErrorClass.RATE_LIMITED: ErrorMeaning(Processed.NO, transient=True),
    ErrorClass.LOCKED: ErrorMeaning(Processed.NO, transient=True),
    ErrorClass.UNAUTHORISED: ErrorMeaning(Processed.NO),
    ErrorClass.NOT_SERVED: ErrorMeaning(Processed.NO, conclusive=True),
    ErrorClass.HANDLE_NOT_FOUND: ErrorMeaning(Processed.NO, handle_lost=True, conclusive=True),
    ErrorClass.HANDLE_EXPIRED: ErrorMeaning(Processed.NO, handle_lost=True, conclusive=True),
    ErrorClass.STORAGE_DISABLED: ErrorMeaning(Processed.NO),
    ErrorClass.OVERFLOW: ErrorMeaning(Processed.NO, conclusive=True, refuses_content=True),
    ErrorClass.POLICY: ErrorMeaning(Processed.NO, conclusive=True, refuses_content=True),
    ErrorClass.TIMED_OUT: ErrorMeaning(Processed.MAYBE, transient=True, backend_down=True),
    ErrorClass.INTERRUPTED: ErrorMeaning(Processed.MAYBE, transient=True),
    ErrorClass.BACKEND_FAILED: ErrorMeaning(Processed.YES, transient=True),
    ErrorClass.CONTRACT_BROKEN: ErrorMeaning(Processed.YES, conclusive=True),
    ErrorClass.REPLAY_MISSING: ErrorMeaning(Processed.NO, conclusive=True),
    ErrorClass.UNKNOWN: ErrorMeaning(Processed.MAYBE, transient=True),
}
"""What an ErrorClass means: the only place that says so. Keyed by text, since stored calls name classes of the gateway too."""

NOT_PROCESSED = frozenset(kind for kind in ErrorClass if kind.meaning.processed is Processed.NO)
HANDLE_LOST: frozenset[str] = frozenset(kind for kind in ErrorClass if kind.meaning.handle_lost)


class AdapterError(Exception):
    """A service call failed. `detail` is for the operator's log and never reaches a caller.

    `retry_after` is in seconds; it is set when the backend named a time. `backend_down` says that a proxy in front of
    the backend reported it as down (502, 503, 504). `stale_connection` says that the request went on a kept connection
    that ended before any byte of an answer: the backend may have closed it before the request came. `usage` is the
    report of tokens that a failed call brought, as in CallCompleted. `hint` is what callers are told besides the text of the
    class: the gateway's own words, and none of a backend.
    """

    hint = ""

    def __init__(
        self,
        kind: ErrorClass,
        detail: str,
        *,
        retry_after: float | None = None,
        backend_down: bool = False,
        stale_connection: bool = False,
        usage: Json = None,
    ) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind = kind
        self.detail = detail
        self.retry_after = retry_after
        self.backend_down = backend_down
        self.stale_connection = stale_connection
        self.usage = usage

    def as_kind(self, kind: ErrorClass) -> "AdapterError":
        """The same failure where it means something else: with another class, and all else that it says."""
        return AdapterError(
            kind,
            self.detail,
            retry_after=self.retry_after,
            backend_down=self.backend_down,
            stale_connection=self.stale_connection,
            usage=self.usage,
        )


class Adapter(Protocol):
    """The client of one backend. It never stores, retries, runs the gateway's tools, or sees another context."""

    @property
    def ownership(self) -> Ownership: ...

    def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        """One service call. It ends by returning after CallCompleted (or DirectReply); closing the generator cancels it.

        Raises: AdapterError when it fails; returning without CallCompleted or DirectReply is CONTRACT_BROKEN.
        """

    async def aclose(self) -> None: ...


S = TypeVar("S")


class StateKind(msgspec.Struct, frozen=True):
    """One way in which agents of a type keep their conversations. Its adapters are of the class `adapter`, whose optional
    abilities are read off it. `setting` is the setting that chooses it, as `conversation: true`; empty for the default."""

    owner: StorageOwner
    handle: HandleKind
    adapter: type[Adapter]
    setting: str = ""


@dataclass(frozen=True, slots=True)
class AdapterFactory(Generic[S]):
    """A type of agents. An entry point of the group `a2a_gateway.adapters` names one factory.

    `settings` is a pydantic model (frozen, extra keys forbidden) of the agent's own keys. `build` makes the adapter
    without network and raises ValueError for contradictory settings. `summary` names the service in one line. `states` are
    all kinds of state that an adapter of this type may have. `input_modes` and `output_modes` are the media types for a
    card that names none. `direct_replies` says whether the given settings let the agent answer with a message without a
    task, `approvals` whether
    they let the service ask before it runs a tool of its own; None stands for never. If `tools` is false, the adapter ignores
    the tools of a request, and tools of an agent of this type are an error of the configuration. If `streaming` is false,
    an answer comes in one piece.
    """

    settings: type[S]
    build: Callable[[S], Adapter]
    summary: str
    states: tuple[StateKind, ...]
    input_modes: tuple[str, ...] = ("text/plain", "application/json")
    output_modes: tuple[str, ...] = ("text/plain", "application/json")
    direct_replies: Callable[[S], bool] = field(default=lambda _settings: False)
    approvals: Callable[[S], bool] | None = None
    tools: bool = True
    streaming: bool = True

    def asks(self, settings: S) -> bool:
        """Whether these settings let the service ask before it runs a tool of its own."""
        return self.approvals is not None and self.approvals(settings)


AnyAdapterFactory = AdapterFactory[Any]
