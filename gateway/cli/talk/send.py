"""From what was typed to an A2A message. Law: what cannot be sent is said before anything is sent.

`send` and `stream`: one message to an agent, and what it says. Law: the task is the agent's; losing the terminal, the
connection or patience never stops it, and the user is told how to find it again.
"""

import asyncio
import base64
import json
import mimetypes
import os
import shlex
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn

from gateway.cli.console.connect import Reach, connected, looking_for, stop
from gateway.cli.console.exits import ExitCode, Stop
from gateway.cli.console.parameters import Approve, Output
from gateway.cli.console.terminal import Screen, json_text, program
from gateway.cli.talk.approvals import Question, answer, approving, declaring, question
from gateway.cli.talk.render import Standing, TextView
from gateway.client.client import ENDED, WAITING, Client
from gateway.client.transport import ClientError, Refused, text_at

Json = Any


def build_message(
    text: str, *, files: Sequence[Path], data: str | None, context: str | None, task: str | None
) -> dict[str, Json]:
    """A message of the user as A2A 1.0 JSON. Raises: Stop (2)."""
    said = _standard_input() if text == "-" else text
    if not said.isascii():
        said = _utf8(said)
    parts: list[Json] = [{"text": said}] if said else []
    parts += [file_part(path, "--file") for path in files]
    if data is not None:
        parts.append({"data": _json(data)})
    if not parts:
        raise Stop(ExitCode.USAGE, "there is nothing to send: TEXT is empty; give a text, --file or --data")
    return compose(parts, context=context, task=task)


def compose(parts: list[Json], *, context: str | None, task: str | None) -> dict[str, Json]:
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts}
    return message | {key: value for key, value in (("contextId", context), ("taskId", task)) if value is not None}


def _utf8(said: str) -> str:
    """The same, also where it came through a locale that is not UTF-8: a shell's words are bytes. Raises: Stop (2)."""
    try:
        said.encode()
    except UnicodeEncodeError:
        try:
            return os.fsencode(said).decode()
        except UnicodeError:
            raise Stop(ExitCode.USAGE, "TEXT is not UTF-8; send it as a file: --file PATH") from None
    return said


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Stop(ExitCode.USAGE, "standard input is not UTF-8; send it as a file: --file PATH") from None


def file_part(path: Path, option: str) -> Json:
    """The part that holds a file; `option` is what its path was typed behind. Raises: Stop (2)."""
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "not readable").lower()
        raise Stop(ExitCode.USAGE, f"{option} {str(path)!r} cannot be read: {reason}") from error
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return {"raw": base64.b64encode(content).decode(), "filename": path.name, "mediaType": kind}


def _json(text: str) -> Json:
    try:
        return json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError) as error:
        raise Stop(ExitCode.USAGE, f"--data is not JSON: {error}; quote it as in --data '{{\"a\": 1}}'") from error


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"there is no {name} in JSON")


@dataclass(frozen=True, slots=True)
class Order:
    """What was typed."""

    command: Literal["send", "stream"]
    text: str
    there: Reach
    context: str | None
    task: str | None
    files: Sequence[Path]
    data: str | None
    idempotency_key: str | None
    output: Output
    timeout: float | None


def talk(order: Order, approve: Approve | None = None, tools: Mapping[str, Sequence[str]] | None = None) -> int:
    """`approve` None: a person is asked, if there is one. Raises: Stop."""
    message = build_message(order.text, files=order.files, data=order.data, context=order.context, task=order.task)
    tools = tools or {}
    talking = _Talk(order, declaring(message, tools), Screen(sys.stdout, sys.stderr))
    try:
        with looking_for(order.there, order.task) if order.task is not None else nullcontext():
            asyncio.run(talking.perform())
        if order.command == "stream":
            if talking.asked:
                answer(talking, approve, tools)
            asyncio.run(talking.print_whole())
    except KeyboardInterrupt:
        talking.leave("interrupted")
        return ExitCode.INTERRUPTED
    except TimeoutError:
        talking.leave(f"no end within {order.timeout:g} s")
        return ExitCode.TIMED_OUT
    except ClientError as error:
        talking.screen.end_line()
        reason = stop(error)
        if not talking.heard:
            raise Stop(reason.code, "\n".join([reason.text, *in_the_way(order.there, error)])) from error
        talking.leave(reason.text)
        return reason.code
    return talking.end()


class _Talk:
    def __init__(self, order: Order, message: dict[str, Json], screen: Screen) -> None:
        self.screen = screen
        self.standing = Standing(context=order.context, task=order.task)
        self._order = order
        self._idempotency_key = order.idempotency_key
        self._message = message
        self._sent = False
        self.heard = False
        """Has the agent taken the message?"""
        self.asked: Question | None = None
        """What the task waits for, as far as it can be answered here."""
        self._last: Json = None
        self._view = TextView(screen)

    async def perform(self) -> None:
        """Raises: ClientError, TimeoutError."""
        order = self._order
        async with asyncio.timeout(order.timeout), connected(order.there) as client:
            self._sent = True
            if order.task is not None and order.output is Output.text:
                self._view.skip(await client.get_task(order.task))
            await (self._send(client) if order.command == "send" else self._stream(client))

    def pause(self) -> None:
        """What the agent asks is shown before it is answered."""
        if self._order.output is Output.text and self.asked:
            self._view.finish()
            self._view.go_on()

    async def go_on(self, declared: dict[str, Json], parts: list[Json]) -> None:
        """Sends what the task waits for. Raises: ClientError, TimeoutError."""
        standing = self.standing
        self._message = declared | compose(parts, context=standing.context, task=standing.task)
        self._idempotency_key = None
        async with asyncio.timeout(self._order.timeout), connected(self._order.there) as client:
            await self._stream(client)

    # --- send

    async def _send(self, client: Client) -> None:
        request: dict[str, Json] = {"message": self._message}
        if self._order.task is None:
            # The id of a new task is needed at once, to wait for it whatever happens to this connection.
            request["configuration"] = {"returnImmediately": True}
        result = await client.send(request, self._idempotency_key)
        self._note(result)
        task = text_at(result, "task", "id")
        if task and text_at(result, "task", "status", "state") not in ENDED | WAITING:
            result = {"task": await client.wait(task)}
            self._note(result)
        if self._order.output is Output.text:
            self._view.receive(result)
        else:
            self._print(result)

    # --- stream

    async def _stream(self, client: Client) -> None:
        if not client.endpoint.streaming:
            raise Stop(ExitCode.USAGE, "this agent does not stream, as its card says; use send instead of stream")
        async with aclosing(client.stream({"message": self._message}, self._idempotency_key)) as events:
            async for event in events:
                self._note(event)
                self._receive(event)

    async def print_whole(self) -> None:
        """The result as one document, once nothing more comes. Raises: ClientError."""
        if self._order.output is not Output.json:
            return
        task, result = self.standing.task, self._last
        if task and not self.standing.replied:
            async with connected(self._order.there) as client:
                result = {"task": await client.get_task(task)}
        self._print(result)

    def _note(self, event: Json) -> None:
        self.heard = True
        self._last = event
        self.standing.note(event)
        asked = question(event)
        self.asked = self.asked if asked is None else asked

    def _receive(self, event: Json) -> None:
        match self._order.output:
            case Output.text:
                self._view.receive(event)
            case Output.jsonl:
                self._print(event)
            case Output.json:
                pass

    def _print(self, value: Json) -> None:
        self.screen.line(json_text(value, indent=2 if self._order.output is Output.json else None))

    # --- the end

    def end(self) -> int:
        """The exit code of a task that has ended or waits."""
        if self._order.output is Output.text:
            self._view.finish()
            for line in self._farewell():
                self.screen.tell(line)
        return self.standing.exit_code

    def _farewell(self) -> Iterator[str]:
        standing = self.standing
        named = (("context", standing.context), ("task", standing.task))
        ids = [f"{name} {value}" for name, value in named if value]
        if ids:
            yield "  ".join((*ids, *([standing.word] if standing.word else [])))
        if self.asked and self.asked.approvals and standing.task:
            yield f"ask again: {how_to_answer(self._order.there, standing.task, self.asked)}"
        if standing.context or standing.task:
            yield f"next: {self._next()}"

    def _next(self) -> str:
        order, standing = self._order, self.standing
        words = [order.command, *order.there.words]
        if self.asked and self.asked.calls and standing.task:
            return how_to_answer(order.there, standing.task, self.asked)
        if self.asked and self.asked.approvals and standing.task:
            decision = json_text(approving(self.asked.approvals, approved=True))
            return f"{program()} {shlex.join([*words, '--task', standing.task, '--data', decision, ''])}"
        if standing.state in WAITING and standing.task:
            words += ["--task", standing.task]
        elif standing.context:
            words += ["--context", standing.context]
        return f"{program()} {shlex.join(words)} 'your next message'"

    def leave(self, why: str) -> None:
        """The user goes, the task goes on: how to follow it and how to cancel it."""
        self.screen.end_line()
        lines = [why]
        if not self._sent:
            lines = [f"{why}; nothing was sent"]
        elif self.standing.task is None:
            lines = [f"{why}; the agent may work on the message, but it has not named a task yet"]
        elif self.standing.state in WAITING:
            lines += waits(self._order.there, self.standing.task, self.asked)
        else:
            lines += goes_on(self._order.there, self.standing.task)
        self.screen.tell("\n".join(lines))


def waits(there: Reach, task: str, asked: Question | None) -> list[str]:
    """How to answer a task that its user leaves waiting."""
    return [
        f"The task {task} waits for an answer.",
        f"answer: {how_to_answer(there, task, asked)}",
        f"cancel: {there.command('tasks', 'cancel', argument=task)}",
    ]


def in_the_way(there: Reach, error: ClientError) -> list[str]:
    """How to answer the task for which a message was refused, where it was for one."""
    if not isinstance(error, Refused) or error.task is None:
        return []
    return [
        f"answer: {there.command('tasks', 'watch', argument=error.task)}",
        f"cancel: {there.command('tasks', 'cancel', argument=error.task)}",
    ]


def how_to_answer(there: Reach, task: str, asked: Question | None) -> str:
    """The command that answers what the task waits for, or asks for the answer."""
    if not asked:
        return there.command("stream", "--task", task, argument="your answer")
    tools = dict.fromkeys(f"{call['name']}=COMMAND" for call in asked.calls)
    return there.command("tasks", "watch", *(word for tool in tools for word in ("--tool", tool)), argument=task)


def goes_on(there: Reach, task: str) -> list[str]:
    """How to find a task again that nobody watches any more."""
    return [
        f"The task {task} goes on.",
        f"follow: {there.command('tasks', 'watch', argument=task)}",
        f"cancel: {there.command('tasks', 'cancel', argument=task)}",
    ]
