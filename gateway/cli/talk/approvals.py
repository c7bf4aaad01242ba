"""Tool calls as lines on a terminal: what is called, how far it is, what came of it and how long it took.

Law: the wire's JSON is a stranger's. Source: the tool-calls/v1 extension; its parts are Google ADK's, too.

What an agent's task waits for, answered: calls that need a yes, tools that run on this machine, and what a person has to do
elsewhere first.

Law: only a person's yes is a yes, or that of who started the command with `--approve yes`; only the commands that were
named run, and what an agent says reaches them on their standard input alone.
"""

import asyncio
import json
import shlex
import subprocess
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from gateway.a2a.tool_calls import URI
from gateway.cli.console.exits import ExitCode, Stop
from gateway.cli.console.parameters import Approve
from gateway.cli.console.terminal import Screen, json_text, one_line
from gateway.cli.talk.line_input import Lines
from gateway.client.transport import at, objects, text_at
from gateway.core.tools.answers import ADK_CONFIRMATION

Json = Any

_ENDS = {"failed": "failed:", "rejected": "rejected:", "cancelled": "cancelled:", "interrupted": "interrupted:"}


def tool_call(part: Json) -> str | None:
    """`function_call`, `function_response`, or None for anything but a tool call."""
    metadata = at(part, "metadata")
    kind = at(metadata, "adk_type") or at(metadata, "type")
    return kind if kind in ("function_call", "function_response") else None


def is_said_twice(part: Json, message: Json) -> bool:
    """Is the part a question for a yes, in Google ADK's form, beside which the message asks in ours?"""
    return text_at(part, "data", "name") == ADK_CONFIRMATION and at(message, "metadata", URI, "approval") is not None


def call_line(part: Json) -> str:
    """The line of a part that is a tool call or its outcome."""
    data, facts = at(part, "data"), at(part, "metadata", URI)
    name = f"tool: {at(data, 'name')}"
    if tool_call(part) == "function_call":
        return name if at(facts, "exposure") == "names" else f"{name} {json_text(at(data, 'args'))}"
    response = at(data, "response")
    failure = at(response, "error")
    if failure is None:
        hidden = at(facts, "exposure") in ("names", "args")
        line = f"{name} is done" if hidden else f"{name} gave {json_text(response)}"
    else:
        said = at(failure, "message") if facts is not None else None
        word = _ENDS.get(str(at(failure, "code")), "failed:") if facts is not None else "failed:"
        line = f"{name} {word} {said if isinstance(said, str) else json_text(failure)}"
    return f"{line}{_taken(facts)}"


def moment_line(facts: Json) -> str | None:
    """The line of what happens between a call and its outcome, None for what is not worth one."""
    name = f"tool: {at(facts, 'name')}"
    match at(facts, "phase"):
        case "awaiting-approval":
            return f"{name} waits for a yes"
        case "progress" if text_at(facts, "text"):
            return f"{name} ... {at(facts, 'text')}"
        case _:
            return None


def about(part: Json) -> str | None:
    """The call whose last line this one may take the place of: the line of the call itself stays, with its arguments."""
    return text_at(part, "data", "id") if tool_call(part) == "function_response" else None


def _taken(facts: Json) -> str:
    """How long the call took, where both ends are told."""
    try:
        began, ended = (datetime.fromisoformat(at(facts, key)) for key in ("startedAt", "endedAt"))
        seconds = (ended - began).total_seconds()
    except (TypeError, ValueError):
        return ""
    return f" ({seconds:.1f} s)" if seconds >= 0 else ""


Ask = Callable[[str], str | None]
"""Shows a prompt and gives the line that was typed, None where nobody answers (any more)."""

_YES = {"y", "yes"}
_ELSEWHERE = "press Enter when that is done, or type a message: "
_IT_IS_DONE = "That is done. Please go on."
_WORDS = 2000
"""Characters of what a command said to standard error that the agent is told."""


@dataclass(frozen=True, slots=True)
class Question:
    """`approvals` need a yes, `calls` are to be run here; each is `{id, name, args}`. `elsewhere`: the user has to sign in or
    to consent somewhere else, and any message goes on then."""

    approvals: tuple[Json, ...]
    calls: tuple[Json, ...]
    elsewhere: bool = False

    def __bool__(self) -> bool:
        return bool(self.approvals or self.calls or self.elsewhere)


def question(event: Json) -> Question | None:
    """What this StreamResponse (or SendMessageResponse) says about what the task waits for, None where it says nothing.

    Empty: it has gone on, or waits for words. Source: the tool-calls/v1 extension.
    """
    status = at(event, "task", "status") or at(event, "statusUpdate", "status")
    if text_at(status, "state") is None:
        return None
    if text_at(status, "state") != "TASK_STATE_INPUT_REQUIRED":
        return Question((), (), elsewhere=text_at(status, "state") == "TASK_STATE_AUTH_REQUIRED")
    message = at(status, "message")
    asked = objects(at(message, "metadata", URI, "approval"), "tools")
    calls = (part["data"] for part in objects(message, "parts") if _is_ours(part))
    return Question(tuple(tool for tool in asked if text_at(tool, "id")), tuple(calls))


class Asked(Protocol):
    """Who watches a task that may wait for an answer."""

    screen: Screen
    asked: Question | None

    def pause(self) -> None:
        """What the agent asks is shown before it is answered."""
        ...

    def go_on(self, declared: dict[str, Json], parts: list[Json]) -> Coroutine[Any, Any, None]:
        """Sends this answer to the task, and watches on. `declared`: what else its message holds."""
        ...


def answer(watching: Asked, approve: Approve | None, tools: Mapping[str, Sequence[str]]) -> None:
    """As long as the task waits for what can be answered here. No event loop runs: a prompt would hold it up.

    `approve` None: a person is asked, if there is one. Raises: KeyboardInterrupt, and what `go_on` raises.
    """
    with ExitStack() as stack:
        ask: Ask = _nobody
        if approve is None and sys.stdin.isatty():
            approve = Approve.ask
        if approve is Approve.ask:
            ask = stack.enter_context(Lines(sys.stdin, sys.stdout, sys.stderr)).fresh
        answering = Answering(approve, tools, ask, watching.screen)
        watching.pause()
        while (parts := answering.parts(watching.asked)) is not None:
            asyncio.run(watching.go_on(declaring({}, tools), parts))
            watching.pause()


def _nobody(_: str) -> None:
    return None


def _is_ours(part: Json) -> bool:
    named = text_at(part, "data", "id") and text_at(part, "data", "name")
    return bool(named) and tool_call(part) == "function_call" and at(part, "metadata", URI, "origin") == "client"


def read_tools(given: Sequence[str]) -> dict[str, list[str]]:
    """Commands by the names of tools, from `NAME=COMMAND`. Raises: Stop (2)."""
    tools: dict[str, list[str]] = {}
    for tool in given:
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


def declaring(message: dict[str, Json], tools: Mapping[str, Sequence[str]]) -> dict[str, Json]:
    """The message with the tools that run here."""
    if not tools:
        return message
    listed = [
        {"name": name, "description": f"Runs {Path(command[0]).name} on the user's machine."}
        for name, command in tools.items()
    ]
    return {**message, "metadata": {**(message.get("metadata") or {}), URI: {"tools": listed}}}


def approving(asked: Sequence[Json], *, approved: bool) -> Json:
    """The data that decides all of these calls alike."""
    return {"approvals": [{"id": tool["id"], "approved": approved} for tool in asked]}


class Answering:
    """Answers what tasks wait for. `approve` None: decisions are left to another time."""

    def __init__(self, approve: Approve | None, tools: Mapping[str, Sequence[str]], ask: Ask, screen: Screen) -> None:
        self._approve = approve
        self._tools = tools
        self._ask = ask
        self._screen = screen
        self._answered: set[str] = set()

    def parts(self, asked: Question | None) -> list[Json] | None:
        """The parts of the answer; None where there is nothing to answer, or somebody else has to."""
        if not asked or (asked.approvals and self._approve is None) or (asked.calls and not self._tools):
            return None
        if asked.elsewhere:
            return self._done_elsewhere()
        ids = {call["id"] for call in (*asked.approvals, *asked.calls)}
        # An agent that asks the same again has not understood the answer, and would go on for ever.
        decided = None if ids <= self._answered else self._decisions(asked.approvals)
        if decided is None:
            return None
        self._answered |= ids
        decisions = [{"data": {"approvals": decided}}] if decided else []
        return [*decisions, *(self._result(call) for call in asked.calls)]

    def _done_elsewhere(self) -> list[Json] | None:
        """Only a person knows: no flag says it."""
        line = self._ask(_ELSEWHERE) if self._approve is Approve.ask else None
        return None if line is None else [{"text": _text(line) if line.strip() else _IT_IS_DONE}]

    def _decisions(self, asked: Sequence[Json]) -> list[Json] | None:
        if self._approve is not Approve.ask:
            return list(approving(asked, approved=self._approve is Approve.yes)["approvals"])
        decided = []
        for tool in asked:
            decision = self._decision(tool)
            if decision is None:
                return None
            decided.append(decision)
        return decided

    def _decision(self, tool: Json) -> Json | None:
        # The model chose the arguments: a person has to see all of them.
        line = self._ask(f"allow {one_line(str(at(tool, 'name')))} {json_text(at(tool, 'args'))}? [y/N] ")
        if line is None:
            return None
        if line.strip().lower() in _YES:
            return {"id": tool["id"], "approved": True}
        reason = self._ask("why not? (nothing for no reason) ")
        said = {"reason": _text(reason.strip())} if reason and reason.strip() else {}
        return {"id": tool["id"], "approved": False, **said}

    def _result(self, call: Json) -> Json:
        command = self._tools.get(call["name"])
        response = _error(f"There is no tool {call['name']!r} here.") if command is None else self._run(command, call)
        data = {"id": call["id"], "name": call["name"], "response": response}
        return {"data": data, "metadata": {"adk_type": "function_response", "type": "function_response"}}

    def _run(self, command: Sequence[str], call: Json) -> Json:
        """Raises: KeyboardInterrupt."""
        self._screen.note(f"tool: {call['name']} runs {shlex.join(command)}")
        try:
            done = subprocess.run(  # noqa: S603  # the user named the command, and no shell reads it
                command, input=json.dumps(call.get("args") or {}).encode(), capture_output=True, check=False
            )
        except OSError as error:
            self._screen.note(f"tool: {call['name']} cannot be run: {error.strerror}")
            return _error("The tool could not be run.")
        if done.returncode != 0:
            said = done.stderr.decode(errors="replace").strip()
            self._screen.note(f"tool: {call['name']} ended with {done.returncode}")
            return _error(_text(said[-_WORDS:]) or f"The tool ended with {done.returncode}.")
        return {"result": _sendable(_value(done.stdout.decode(errors="replace")))}


def _value(text: str) -> Json:
    """JSON where it is an object or a list, else the text as it is, without its last line end."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict | list) else text.removesuffix("\n")


def _sendable(value: Json) -> Json:
    """Without the characters that no message may have: a tool may print anything."""
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, list):
        return [_sendable(each) for each in value]
    return {_text(key): _sendable(each) for key, each in value.items()} if isinstance(value, dict) else value


def _text(text: str) -> str:
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _error(message: str) -> Json:
    return {"error": {"code": "failed", "message": message}}
