"""Problems in words. Law: pure; each leads to the page of the row that shows why."""

from urllib.parse import quote

import msgspec

from gateway.core.diagnosis.problems import Problem, ProblemKind
from gateway.ui.words import many, took


class Told(msgspec.Struct, frozen=True):
    """`what` is a sentence of the gateway's own, `about` text that others have written. `to` is the page that shows more."""

    what: str
    to: str
    about: str = ""


def told(problem: Problem) -> Told:
    what, to, about = _what(problem), _page(problem), [problem.subject, problem.detail or ""]
    return Told(f"{problem.agent}: {what}", to, " · ".join(filter(None, about)))


def task_page(task: str, turn: str = "") -> str:
    return f"/ui/tasks/{quote(task, safe='')}" + (f"#turn-{quote(turn, safe='')}" if turn else "")


def context_page(context: str) -> str:
    return f"/ui/contexts/{quote(context, safe='')}"


def _what(problem: Problem) -> str:
    number = problem.number
    match problem.kind:
        case ProblemKind.BREAKER:
            wait = took(problem.took)
            return f"the backend was not there several times in a row, and is asked again in {wait}."
        case ProblemKind.STUCK:
            return "a turn has ended several processes and is put aside; its conversation is blocked."
        case ProblemKind.LOST:
            return "the backend has forgotten a conversation."
        case ProblemKind.FAILING:
            return f"the latest {number} turns of a conversation have failed."
        case ProblemKind.SILENT:
            return f"nothing has come of a call to the backend for {took(problem.took)}."
        case ProblemKind.SLOW:
            usual = "" if problem.usual is None else f", usually {took(problem.usual)}"
            return f"a tool runs for {took(problem.took)}{usual}."
        case ProblemKind.TRIED:
            return f"the process of a turn has died; others have tried to go on with it {many(number, 'time')}."
        case ProblemKind.UNSYNCED:
            return "what became of a call to the backend is not known."
        case ProblemKind.STOPPED:
            return f"a receiver of notifications is not told any more, {many(number, 'event')} behind."
        case ProblemKind.BEHIND:
            return f"a receiver of notifications takes nothing, {many(number, 'event')} behind."
        case ProblemKind.GIVEN_UP:
            return f"{many(number, 'deletion')} of conversations at the backend were given up."


def _page(problem: Problem) -> str:
    match problem.kind:
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
