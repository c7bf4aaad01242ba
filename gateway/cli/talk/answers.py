"""Answers to what a task waits for: decisions on calls, results of tools that run here, and consent given elsewhere.

Law: only a person approves a call, or `--approve yes` on the command line.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from typing import Any, TypeAlias

from gateway.cli.console.parameters import Approve
from gateway.cli.console.terminal import Screen, json_text, one_line
from gateway.cli.talk.display import TaskDisplay
from gateway.cli.talk.line_input import LineInput
from gateway.cli.talk.local_tools import Tools, run_tool, sendable_text, with_tools
from gateway.cli.talk.message import compose
from gateway.cli.talk.tool_calls import Question
from gateway.client.transport import Json, json_at

Ask: TypeAlias = Callable[[str], str | None]
"""Shows a prompt and gives the line that was typed; None where nobody answers."""

_YES = {"y", "yes"}
_CONSENT_PROMPT = "press Enter when that is done, or type a message: "
_CONSENT_GIVEN = "That is done. Please go on."


def answer_questions(
    display: TaskDisplay,
    send: Callable[[dict[str, Json]], Coroutine[Any, Any, None]],
    approve: Approve | None,
    tools: Tools,
) -> None:
    """Answers for as long as the task waits for what can be answered here. No event loop may run: a prompt would block it.

    `send` shows what follows the message. `approve` None: asks on a terminal.
    Raises: KeyboardInterrupt, and the errors of `send`.
    """
    conversation = display.conversation
    with ExitStack() as stack:
        if approve is None and sys.stdin.isatty():
            approve = Approve.ask
        asks = approve is Approve.ask
        lines = stack.enter_context(LineInput(sys.stdin, sys.stdout, sys.stderr)) if asks else None
        responder = Responder(approve, tools, lines.read_fresh if lines else lambda _: None, display.screen)
        display.pause()
        while (parts := responder.answer(display.question)) is not None:
            answer = compose(parts, context=conversation.context, task=conversation.task)
            asyncio.run(send(with_tools(answer, tools)))
            display.pause()


def decisions_on(calls: Sequence[Json], *, approved: bool) -> Json:
    """The data that decides all of these calls alike."""
    return {"approvals": [{"id": call["id"], "approved": approved} for call in calls]}


class Responder:
    """Composes answers. `approve` None: decides no call."""

    def __init__(self, approve: Approve | None, tools: Tools, ask: Ask, screen: Screen) -> None:
        self._approve = approve
        self._tools = tools
        self._ask = ask
        self._screen = screen
        self._answered: set[str] = set()

    def answer(self, question: Question | None) -> list[Json] | None:
        """The parts of the answer; None where there is no question, or it has to be answered in another way."""
        if not question or (question.approvals and self._approve is None) or (question.calls and not self._tools):
            return None
        if question.consent:
            return self._consent()
        ids = {call["id"] for call in (*question.approvals, *question.calls)}
        # An agent that repeats a question did not understand the answer: a second answer would be the first of endless ones.
        decisions = None if ids <= self._answered else self._decisions(question.approvals)
        if decisions is None:
            return None
        self._answered |= ids
        decided = [{"data": {"approvals": decisions}}] if decisions else []
        return [*decided, *(run_tool(call, self._tools, self._screen) for call in question.calls)]

    def _consent(self) -> list[Json] | None:
        """Only a person knows whether the consent was given: no option answers this."""
        line = self._ask(_CONSENT_PROMPT) if self._approve is Approve.ask else None
        return None if line is None else [{"text": sendable_text(line) if line.strip() else _CONSENT_GIVEN}]

    def _decisions(self, calls: Sequence[Json]) -> list[Json] | None:
        if self._approve is not Approve.ask:
            return list(decisions_on(calls, approved=self._approve is Approve.yes)["approvals"])
        decisions = []
        for call in calls:
            decision = self._decision(call)
            if decision is None:
                return None
            decisions.append(decision)
        return decisions

    def _decision(self, call: Json) -> Json | None:
        # The model chose the arguments: the person has to see all of them.
        line = self._ask(f"allow {one_line(str(json_at(call, 'name')))} {json_text(json_at(call, 'args'))}? [y/N] ")
        if line is None:
            return None
        if line.strip().lower() in _YES:
            return {"id": call["id"], "approved": True}
        reason = self._ask("why not? (nothing for no reason) ")
        given = {"reason": sendable_text(reason.strip())} if reason and reason.strip() else {}
        return {"id": call["id"], "approved": False, **given}
