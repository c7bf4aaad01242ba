"""Answers to what a task waits for: decisions on calls, results of tools that run here, and consent given elsewhere.

Law: only a person approves a call, or `--approve yes` on the command line; only the commands that the user named run
(`--tool NAME=COMMAND`), and data of an agent reaches them on their standard input alone.
"""

import asyncio
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

from gateway.a2a.tool_calls import URI
from gateway.cli.console.output import ExitCode, Screen, Stop, json_text, one_line
from gateway.cli.console.parameters import Approve
from gateway.cli.talk.display import TaskDisplay
from gateway.cli.talk.line_input import LineInput
from gateway.cli.talk.message import compose
from gateway.cli.talk.tool_calls import Question
from gateway.client.transport import Json, json_at

Ask: TypeAlias = Callable[[str], str | None]
"""Shows a prompt and gives the line that was typed; None where nobody answers."""

Tools: TypeAlias = Mapping[str, Sequence[str]]
"""Commands by the names of tools."""

_ERROR_LENGTH = 2000
"""Characters of a command's standard error that the agent gets."""
_CONSENT_PROMPT = "press Enter when that is done, or type a message: "
_CONSENT_GIVEN = "That is done. Please go on."


def answer_questions(
    display: TaskDisplay,
    send: Callable[[dict[str, Json]], Coroutine[Any, Any, None]],
    approve: Approve | None,
    tools: Tools,
) -> None:
    """Answers as long as the task waits for an answer that this command can give. No event loop may run, because a
    prompt would block it.

    `send` shows the events that follow the message. When `approve` is None, the command asks on the terminal. Raises:
    KeyboardInterrupt, and the errors of `send`.
    """
    conversation = display.conversation
    with ExitStack() as stack:
        if approve is None and sys.stdin.isatty():
            approve = "ask"
        asks = approve == "ask"
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
    """Composes answers. When `approve` is None, no call is decided."""

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
            # Only a person knows whether the consent was given: no option answers this.
            line = self._ask(_CONSENT_PROMPT) if self._approve == "ask" else None
            return None if line is None else [{"text": sendable_text(line) if line.strip() else _CONSENT_GIVEN}]
        ids = {call["id"] for call in (*question.approvals, *question.calls)}
        # An agent that repeats a question did not understand the answer. A second answer could lead to an endless
        # exchange.
        decisions = None if ids <= self._answered else self._decisions(question.approvals)
        if decisions is None:
            return None
        self._answered |= ids
        decided = [{"data": {"approvals": decisions}}] if decisions else []
        return [*decided, *(run_tool(call, self._tools, self._screen) for call in question.calls)]

    def _decisions(self, calls: Sequence[Json]) -> list[Json] | None:
        if self._approve != "ask":
            return list(decisions_on(calls, approved=self._approve == "yes")["approvals"])
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
        if line.strip().lower() in {"y", "yes"}:
            return {"id": call["id"], "approved": True}
        reason = self._ask("why not? (nothing for no reason) ")
        given = {"reason": sendable_text(reason.strip())} if reason and reason.strip() else {}
        return {"id": call["id"], "approved": False, **given}


def read_tools(given: Sequence[str] | None) -> dict[str, list[str]]:
    """Commands by the names of tools, from `NAME=COMMAND`. Raises: Stop (2)."""
    tools: dict[str, list[str]] = {}
    for tool in given or ():
        name, _, command = tool.partition("=")
        try:
            words = shlex.split(command)
        except ValueError as error:
            raise Stop(ExitCode.USAGE, f"--tool {name}: {error}") from error
        if not words or not name.replace("-", "").replace("_", "").isalnum() or not name.isascii() or len(name) > 64:
            raise Stop(ExitCode.USAGE, f"--tool must look like 'clock=date -u', not {tool!r}")
        if name in tools:
            raise Stop(ExitCode.USAGE, f"--tool {name!r} is given twice")
        tools[name] = words
    return tools


def with_tools(message: dict[str, Json], tools: Tools) -> dict[str, Json]:
    """The message with a declaration of the tools."""
    if not tools:
        return message
    declared = [
        {"name": name, "description": f"Runs {Path(command[0]).name} on the user's machine."}
        for name, command in tools.items()
    ]
    return {**message, "metadata": {**(message.get("metadata") or {}), URI: {"tools": declared}}}


def run_tool(call: Json, tools: Tools, screen: Screen) -> Json:
    """The part that answers the call `{id, name, args}`. Raises: KeyboardInterrupt."""
    command = tools.get(call["name"])
    response = _error(f"There is no tool {call['name']!r} here.") if command is None else _run(command, call, screen)
    data = {"id": call["id"], "name": call["name"], "response": response}
    return {"data": data, "metadata": {"adk_type": "function_response", "type": "function_response"}}


def _run(command: Sequence[str], call: Json, screen: Screen) -> Json:
    screen.note(f"tool: {call['name']} runs {shlex.join(command)}")
    try:
        done = subprocess.run(  # noqa: S603  # the user named the command, and no shell reads it
            command, input=json.dumps(call.get("args") or {}).encode(), capture_output=True, check=False
        )
    except OSError as error:
        screen.note(f"tool: {call['name']} cannot be run: {error.strerror}")
        return _error("The tool could not be run.")
    if done.returncode != 0:
        reason = done.stderr.decode(errors="replace").strip()
        screen.note(f"tool: {call['name']} ended with {done.returncode}")
        return _error(sendable_text(reason[-_ERROR_LENGTH:]) or f"The tool ended with {done.returncode}.")
    return {"result": _sendable(_value(done.stdout.decode(errors="replace")))}


def _value(text: str) -> Json:
    """The JSON of an object or a list; any other output as text, without its last line end."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict | list) else text.removesuffix("\n")


def _sendable(value: Json) -> Json:
    """The value without characters that a message cannot hold: a tool may print anything."""
    if isinstance(value, str):
        return sendable_text(value)
    if isinstance(value, list):
        return [_sendable(each) for each in value]
    return {sendable_text(key): _sendable(each) for key, each in value.items()} if isinstance(value, dict) else value


def sendable_text(text: str) -> str:
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _error(message: str) -> Json:
    return {"error": {"code": "failed", "message": message}}
