"""What is wrong, late or given up, for operators. Law: as in `contexts`."""

from enum import StrEnum
from urllib.parse import urlsplit

import msgspec

from gateway.a2a.model import TaskState
from gateway.ledger.backlog import Backlog
from gateway.ledger.push import PushState
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus, TurnStatus


class DeliveryFilter(StrEnum):
    """STUCK: stopped, gone, or the latest attempt has failed. ACTIVE: all that are still tried."""

    STUCK = "stuck"
    ACTIVE = "active"


class DeliveryKey(msgspec.Struct, frozen=True, array_like=True):
    """The place of a delivery in its list: the latest configuration first."""

    created_at: int
    task: str
    id: str


class Delivery(msgspec.Struct, frozen=True):
    """A push configuration and its progress. `next_event` is delivered next, `last_event` is the latest of the task. `due_at`
    None: nothing is due. `last_error` is cut to 200 characters. `url` may hold secrets of the caller's: pages show the
    `receiver`."""

    task: str
    id: str
    context: str
    principal: str
    agent: str
    task_state: TaskState
    url: str
    state: PushState
    next_event: int
    last_event: int
    due_at: int | None
    attempts: int
    last_error: str | None
    created_at: int

    @property
    def receiver(self) -> str:
        """Host, port and path of the URL."""
        parts = urlsplit(self.url)
        return f"{parts.netloc.rpartition('@')[2]}{parts.path}"


class StuckReceiver(msgspec.Struct, frozen=True):
    """The stuck deliveries of one state to one receiver: how many there are, how many events they are behind together, and the
    oldest. `whole`: none was left out of the numbers."""

    oldest: Delivery
    deliveries: int
    behind: int
    whole: bool


class Deliveries(msgspec.Struct, frozen=True):
    """At most 100. `before` gives the next page; None: there is none."""

    deliveries: tuple[Delivery, ...]
    before: DeliveryKey | None


class DeletionKey(msgspec.Struct, frozen=True, array_like=True):
    """The place of a deletion in its list: by the time at which it is due, those that were given up (0) by their ids."""

    due_at: int
    job: str


class HandleDeletion(msgspec.Struct, frozen=True):
    """The deletion of a handle at the backend of `agent`. `due_at` None: it was given up after `attempts`."""

    job: str
    agent: str
    thread: str
    context: str
    principal: str
    handle: str
    due_at: int | None
    attempts: int


class HandleDeletions(msgspec.Struct, frozen=True):
    """At most 100. `after` gives the next page; None: there is none."""

    deletions: tuple[HandleDeletion, ...]
    after: DeletionKey | None


class OpenTurnFacts(msgspec.Struct, frozen=True):
    """A turn that has not ended, with its latest service call, where there is one. `tries` as in `TurnHead`. `answering`: the
    latest event of the task is a piece of an answer."""

    turn: str
    task: str
    context: str
    principal: str
    agent: str
    status: TurnStatus
    process: str
    tries: int
    accepted_at: int
    started_at: int | None
    call: str | None = None
    call_status: ServiceCallStatus | None = None
    round: int = 0
    attempt: int = 0
    prepared_at: int | None = None
    answering: bool = False


class OpenToolFacts(msgspec.Struct, frozen=True):
    """A tool call without an outcome, of a turn that has not ended."""

    id: str
    turn: str
    task: str
    context: str
    agent: str
    name: str
    executor: str
    status: ToolCallStatus
    asked_at: int | None
    started_at: int | None


class FailedTurn(msgspec.Struct, frozen=True):
    """A turn that failed; `call` is its last service call, and `error_class` the error of that. `correlation_id` is told to
    its caller, and names it in the log."""

    turn: str
    task: str
    context: str
    principal: str
    agent: str
    number: int
    failure_class: str | None
    call: str | None
    error_class: str | None
    accepted_at: int
    ended_at: int
    correlation_id: str | None


class FailureKey(msgspec.Struct, frozen=True, array_like=True):
    """The place of a failed turn in its list: the latest first."""

    ended_at: int
    turn: str


class Failures(msgspec.Struct, frozen=True):
    """At most `limit` turns that failed. `before` gives the next page; None: there is none. `searched_to` as in
    `ContextPage`."""

    turns: tuple[FailedTurn, ...]
    before: FailureKey | None
    searched_to: int | None = None


class BrokenThread(msgspec.Struct, frozen=True):
    """A live thread that is lost or unsynced; `turn` and `task` are its latest. `since` is the time at which the first of its
    turns failed because of the loss, at most 100 turns back, or at which the latest was accepted."""

    thread: str
    context: str
    principal: str
    agent: str
    state: str
    handle: str | None
    turn: str | None
    task: str | None
    since: int | None


class OpenCount(msgspec.Struct, frozen=True):
    """Of the turns of an agent that have not ended, or of those that have ended with a question; `oldest_at` is the time at
    which the oldest was accepted, or has asked."""

    agent: str
    status: TurnStatus
    turns: int
    oldest_at: int


class FailureFact(msgspec.Struct, frozen=True):
    """A turn that failed lately. `number` is its place in its thread; `latest`: there is no later one."""

    agent: str
    failure_class: str | None
    task: str
    thread: str
    context: str
    ended_at: int
    latest: bool
    number: int
    correlation_id: str | None


class CallTime(msgspec.Struct, frozen=True):
    """How long a recent service call has taken, in ms: to the first event of its answer, where it is known, and whole."""

    agent: str
    first: int | None
    whole: int


class ToolTime(msgspec.Struct, frozen=True):
    """How long a completed tool call has run, in ms."""

    agent: str
    name: str
    took: int


class ProcessFacts(msgspec.Struct, frozen=True):
    """A process that has queued turns, or holds leases or duties for all, and counts as alive until then. `duties` are those
    that it holds."""

    id: str
    alive_until: int
    duties: tuple[str, ...] = ()


class Overview(msgspec.Struct, frozen=True):
    """How things stand at `now`, by the ledger's clock.

    `open_counts` count all open turns; `question_counts`, as WAITING, the tasks that wait for their callers without one, as
    their turns have ended with a question. `turns` are those of them that run, were tried again or are put aside, the oldest
    first, at most 200; `tools` the open tool calls of these, at most 200. `failures` are those of the last hour, the latest
    first, at most 1,000. `broken` are at most 50 threads. `stuck` are at most 20 receivers, those that are the furthest
    behind, out of 5,000 deliveries that are tried and as many that are not. `given_up` are at most 20 deletions.
    `call_times` are of the latest turns, at most 500. `tool_times` are samples of at most 100 completed calls each: of the
    latest turns, and of the latest that are older than ten minutes, and than twice as long each time, up to 21 hours;
    samples may overlap. `backlog` and `processes`, at most 100, are of all tenants.
    """

    now: int
    open_counts: tuple[OpenCount, ...]
    question_counts: tuple[OpenCount, ...]
    turns: tuple[OpenTurnFacts, ...]
    tools: tuple[OpenToolFacts, ...]
    failures: tuple[FailureFact, ...]
    broken: tuple[BrokenThread, ...]
    stuck: tuple[StuckReceiver, ...]
    given_up: tuple[HandleDeletion, ...]
    call_times: tuple[CallTime, ...]
    tool_times: tuple[tuple[ToolTime, ...], ...]
    backlog: Backlog
    processes: tuple[ProcessFacts, ...]
