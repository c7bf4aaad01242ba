"""What is wrong now, out of an overview. Law: a problem names the rows that show it; what is slow is measured against what was
usual, and never against a wish."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec
from msgspec.structs import replace

from gateway.core.diagnosis.health import silent_since
from gateway.core.diagnosis.tool_times import usual_times
from gateway.ledger.admin.upkeep import FailureFact, OpenToolFacts, OpenTurnFacts, Overview, StuckReceiver
from gateway.ledger.leases import TRIES
from gateway.ledger.push import PushState
from gateway.ledger.states import ToolCallStatus

SLOW = 3
"""A tool call is slow when it runs for so many times as long as is usual for its tool."""

_UNMEASURED = 30_000
"""Milliseconds after which the call of a tool is slow of which nothing usual is known."""

_LEAST = 1_000
"""Milliseconds for which any tool may run."""

_IN_A_ROW = 3
"""So many failures of a thread in an hour, and no later turn, are a problem of the thread and not of one message."""


class ProblemKind(StrEnum):
    """In the order in which they are told. STUCK: a turn that was tried too often and is put aside, with its context. TRIED:
    a turn whose process died and that others try to end. FAILING: the latest turns of a thread have all failed."""

    BREAKER = "breaker-open"
    STUCK = "turn-put-aside"
    LOST = "thread-lost"
    FAILING = "thread-failing"
    SILENT = "call-silent"
    SLOW = "tool-slow"
    TRIED = "turn-tried"
    UNSYNCED = "thread-unsynced"
    STOPPED = "delivery-stopped"
    BEHIND = "delivery-behind"
    GIVEN_UP = "deletion-given-up"


class OpenBreaker(msgspec.Struct, frozen=True):
    """A backend that counts as down since a time, and that a process leaves alone for `rest` milliseconds more, and the agents
    on it."""

    backend: str
    agents: tuple[str, ...]
    rest: int
    since: int


class Problem(msgspec.Struct, frozen=True):
    """`subject` is the backend, tool, receiver or handle; `number` counts failures, tries, events behind, or rows of the same
    kind. Of a receiver, `number` are the events behind in so many `deliveries`; `least`: there may be more of both. `since` is
    the time since which it has been so, where that is known; `took` and `usual` are milliseconds. The rest are the rows that
    show it."""

    kind: ProblemKind
    agent: str = ""
    subject: str = ""
    number: int = 0
    deliveries: int = 0
    least: bool = False
    since: int | None = None
    took: int | None = None
    usual: int | None = None
    detail: str | None = None
    correlation_id: str | None = None
    context: str = ""
    thread: str = ""
    task: str = ""
    turn: str = ""
    row: str = ""


def problems(found: Overview, breakers: Iterable[OpenBreaker] = ()) -> tuple[Problem, ...]:
    """The problems, those of more than one conversation first, and of a kind the oldest first."""
    told = [
        *map(_of_breaker, breakers),
        *_of_turns(found.turns, found.now),
        *slow_calls(found.tools, usual_times(found.tool_times), found.now),
        *_of_failures(found.failures),
        *_of_threads(found),
        *_of_deliveries(found.stuck),
        *_of_deletions(found),
    ]
    order = [*ProblemKind]
    return tuple(sorted(told, key=lambda problem: (order.index(problem.kind), problem.since or 0)))


def _of_breaker(breaker: OpenBreaker) -> Problem:
    return Problem(
        ProblemKind.BREAKER, ", ".join(breaker.agents), breaker.backend, number=len(breaker.agents), since=breaker.since,
        took=breaker.rest,
    )  # fmt: skip


def _of_turns(turns: Sequence[OpenTurnFacts], now: int) -> Iterator[Problem]:
    for turn in turns:
        kind, since = _trouble(turn, now)
        if kind is ProblemKind.SILENT:
            told = Problem(kind, turn.agent, since=since, took=now - since, row=turn.call or "")
        elif kind is not None:
            told = Problem(kind, turn.agent, turn.process, turn.tries, since)
        else:
            continue
        yield replace(told, context=turn.context, task=turn.task, turn=turn.turn)


def _trouble(turn: OpenTurnFacts, now: int) -> tuple[ProblemKind | None, int]:
    """What is wrong with a turn, and since when."""
    if turn.tries:
        return (ProblemKind.STUCK if turn.tries >= TRIES else ProblemKind.TRIED), turn.accepted_at
    since = silent_since(turn, now)
    return (None, now) if since is None else (ProblemKind.SILENT, since)


def slow_calls(tools: Sequence[OpenToolFacts], usual: Mapping[tuple[str, str], int], now: int) -> Iterator[Problem]:
    """The calls that run for too long. `usual` are the `usual_times`."""
    for tool in tools:
        if tool.status is not ToolCallStatus.RUNNING or tool.started_at is None:
            continue
        took, known = now - tool.started_at, usual.get((tool.agent, tool.name))
        if took >= (_UNMEASURED if known is None else max(_LEAST, SLOW * known)):
            yield Problem(
                ProblemKind.SLOW, tool.agent, tool.name, since=tool.started_at, took=took, usual=known,
                context=tool.context, task=tool.task, turn=tool.turn, row=tool.id,
            )  # fmt: skip


def _of_failures(failures: Sequence[FailureFact]) -> Iterator[Problem]:
    """`failures` are ordered, the latest first."""
    of_thread: dict[str, list[FailureFact]] = defaultdict(list)
    for failure in failures:
        of_thread[failure.thread].append(failure)
    for failed in of_thread.values():
        latest = failed[0]
        in_a_row = [each for at, each in enumerate(failed) if each.number == latest.number - at]
        if latest.latest and len(in_a_row) >= _IN_A_ROW:
            yield Problem(
                ProblemKind.FAILING, latest.agent, number=len(in_a_row), since=in_a_row[-1].ended_at,
                detail=latest.failure_class, correlation_id=latest.correlation_id, context=latest.context,
                thread=latest.thread, task=latest.task,
            )  # fmt: skip


def _of_threads(found: Overview) -> Iterator[Problem]:
    for thread in found.broken:
        kind = ProblemKind.LOST if thread.state == "lost" else ProblemKind.UNSYNCED
        yield Problem(
            kind, thread.agent, thread.handle or "", since=thread.since, context=thread.context,
            thread=thread.thread, task=thread.task or "", turn=thread.turn or "",
        )  # fmt: skip


def _of_deliveries(stuck: Sequence[StuckReceiver]) -> Iterator[Problem]:
    """One for each receiver and kind: one that is down takes no event of any task."""
    of_receiver: dict[tuple[ProblemKind, str], list[StuckReceiver]] = defaultdict(list)
    for each in stuck:
        kind = ProblemKind.BEHIND if each.oldest.state is PushState.ACTIVE else ProblemKind.STOPPED
        of_receiver[kind, each.oldest.receiver].append(each)
    for (kind, receiver), alike in of_receiver.items():
        first = min((each.oldest for each in alike), key=lambda delivery: delivery.created_at)
        yield Problem(
            kind, first.agent, receiver, number=sum(each.behind for each in alike),
            deliveries=sum(each.deliveries for each in alike), least=not all(each.whole for each in alike),
            detail=first.last_error, context=first.context, task=first.task, row=first.id,
        )  # fmt: skip


def _of_deletions(found: Overview) -> Iterator[Problem]:
    of_agent = Counter(deletion.agent for deletion in found.given_up)
    for agent, number in of_agent.items():
        first = next(deletion for deletion in found.given_up if deletion.agent == agent)
        yield Problem(
            ProblemKind.GIVEN_UP,
            agent,
            first.handle,
            number=number,
            context=first.context,
            thread=first.thread,
            row=first.job,
        )
