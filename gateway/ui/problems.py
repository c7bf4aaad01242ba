"""Problems in words. Law: pure; each leads to the page of the row that shows why."""

from collections.abc import Iterable, Iterator
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from gateway.core.diagnosis.problems import Problem, ProblemKind
from gateway.ui.words import many, took


class Told(msgspec.Struct, frozen=True):
    """`what` is a sentence of the gateway's own, `about` text that others have written. `to` is the page that shows more, and
    `since` the time since which it has been so, where that is known. `like` are problems that are the same of other rows, the
    oldest first; `number` counts them and this one."""

    what: str
    to: str
    about: str = ""
    since: int | None = None
    like: "tuple[Told, ...]" = ()
    number: int = 1


_NAMED = 20
"""Problems of one kind that are told one by one."""


def grouped(problems: Iterable[Problem]) -> Iterator[Told]:
    """One for all problems that say the same of an agent, at the place of the first: a backend that fails does so in many
    conversations."""
    groups: dict[tuple[ProblemKind, str, str], list[Problem]] = {}
    for problem in problems:
        groups.setdefault((problem.kind, problem.agent, _same(problem)), []).append(problem)
    for group in groups.values():
        oldest = min(group, key=lambda problem: (problem.since is None, problem.since or 0))
        first, others = told(oldest), [told(problem) for problem in group if problem is not oldest]
        yield replace(first, like=tuple(others[:_NAMED]), number=len(group))


def _same(problem: Problem) -> str:
    """What problems of one kind and agent have to have in common."""
    if problem.kind is ProblemKind.FAILING:
        return problem.detail or ""
    return problem.subject if problem.kind in _BY_SUBJECT else ""


_BY_SUBJECT = frozenset({ProblemKind.BREAKER, ProblemKind.SLOW, ProblemKind.STOPPED, ProblemKind.BEHIND})
"""Kinds that are told of a backend, a tool or a receiver, and not of a conversation."""


def told(problem: Problem) -> Told:
    failure = f"correlation id {problem.correlation_id}" if problem.correlation_id else ""
    about = [problem.subject, problem.detail or "", failure]
    return Told(f"{problem.agent}: {_what(problem)}", _page(problem), " · ".join(filter(None, about)), problem.since)


def task_page(task: str, turn: str = "") -> str:
    return f"/ui/tasks/{quote(task, safe='')}" + (f"#turn-{quote(turn, safe='')}" if turn else "")


def context_page(context: str) -> str:
    return f"/ui/contexts/{quote(context, safe='')}"


def _what(problem: Problem) -> str:
    number = problem.number
    match problem.kind:
        case ProblemKind.BREAKER:
            again = f"in {took(problem.took)}" if problem.took else "with the next request"
            return f"the backend was not there several times in a row, and is asked again {again}."
        case ProblemKind.STUCK:
            return "a turn has ended several processes and is put aside; its conversation is blocked."
        case ProblemKind.LOST:
            return "the backend has forgotten a conversation."
        case ProblemKind.FAILING:
            return f"{number} turns of a conversation have failed in a row within the last hour."
        case ProblemKind.SILENT:
            return f"nothing has come of {_calls(problem)} to the backend for {took(problem.took)}."
        case ProblemKind.SLOW:
            usual = "" if problem.usual is None else f", usually at most {took(problem.usual)}"
            return f"a tool runs for {took(problem.took)}{usual}."
        case ProblemKind.TRIED:
            return f"the process of a turn has died; others have tried to go on with it {many(number, 'time')}."
        case ProblemKind.UNSYNCED:
            return "what became of a call to the backend is not known."
        case ProblemKind.STOPPED:
            return f"a receiver of notifications is not told any more, {_behind(problem)}."
        case ProblemKind.BEHIND:
            return f"a receiver of notifications takes nothing, {_behind(problem)}."
        case ProblemKind.GIVEN_UP:
            return f"{many(number, 'deletion')} of conversations at the backend were given up."


def _behind(problem: Problem) -> str:
    least = "at least " if problem.least else ""
    return f"{least}{many(problem.number, 'event')} behind in {many(problem.deliveries, 'delivery', 'deliveries')}"


def _calls(problem: Problem) -> str:
    return "a call" if problem.number <= 1 else f"{problem.number} calls"


def _page(problem: Problem) -> str:
    match problem.kind:
        case ProblemKind.SILENT if not problem.task:
            return f"/ui/contexts?agent={quote(problem.agent, safe='')}&standing=working"
        case ProblemKind.BREAKER:
            return f"/ui/agents/{quote(problem.agent.partition(',')[0])}"
        case ProblemKind.LOST | ProblemKind.UNSYNCED | ProblemKind.FAILING:
            return context_page(problem.context)
        case ProblemKind.STOPPED | ProblemKind.BEHIND:
            return "/ui/deliveries?show=stuck"
        case ProblemKind.GIVEN_UP:
            return "/ui/deliveries?show=deletions"
        case _:
            return task_page(problem.task, problem.turn)
