"""The conversation of a chat, in the event loop: what is said to the agent, what it says, and where the two stand. Law: what
breaks ends a message, not the conversation.

Tasks of the wire as something to read. Law: the wire's JSON is a stranger's.
"""

import asyncio
import shlex
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any

from gateway.cli.console.connect import Reach, connected, stop
from gateway.cli.console.parameters import Output
from gateway.cli.console.terminal import Screen, json_text, visible
from gateway.cli.talk.approvals import Question, declaring, is_said_twice, question, tool_call
from gateway.cli.talk.render import Standing, TextView, described, described_file, is_text
from gateway.cli.talk.send import compose, goes_on, in_the_way
from gateway.client.client import ENDED, WAITING, Client, Retry
from gateway.client.transport import ClientError, Refused, at, objects, text_at

Json = Any

PATIENCE = Retry(tries=10)
"""About half a minute: a gateway that starts anew is back by then."""


class Chat:
    """The conversation with the agent."""

    def __init__(
        self,
        there: Reach,
        screen: Screen,
        context: str | None,
        output: Output,
        tools: Mapping[str, Sequence[str]],
    ) -> None:
        self.standing = Standing(context=context)
        self.asked: Question | None = None
        """What the task waits for, as far as it can be answered here."""
        self.output = output
        self._tools = tools
        self._there = there
        self._screen = screen
        self._view = TextView(screen)
        self._lost = False
        self._talks = False
        self._cancels = False
        self._client: Client

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Connected with the agent, for as long as the block lasts. Raises: ClientError."""
        async with connected(self._there, PATIENCE, self._pause) as client:
            self._client = client
            yield

    async def _pause(self, seconds: float) -> None:
        if not self._lost:
            self._screen.note("the connection is lost; waiting for the agent to come back")
        self._lost = True
        await asyncio.sleep(seconds)

    async def say(self, parts: list[Json]) -> None:
        """Sends a message, to the task that waits for one if any, and shows the answer. Raises: ClientError."""
        before, self._lost, self._talks, self._cancels = self.standing, False, True, False
        task = before.task if before.state in WAITING else None
        if task is None:
            self._view = TextView(self._screen)
        else:
            self._view.go_on()
        message = declaring(compose(parts, context=before.context, task=task), self._tools)
        self.asked = None
        self.standing = Standing(context=before.context, task=task)
        event: Json = None
        try:
            async with aclosing(self._client.said(message)) as events:
                async for event in events:
                    self._receive(event)
                    if self._cancels and self.standing.task is not None:
                        await self.cancel()
        except ClientError:
            if event is None:
                self.standing = before
            raise
        finally:
            self._talks = False
            self._screen.end_line()
        await self._finish(event)

    def _receive(self, event: Json) -> None:
        if self._lost:
            self._screen.note("connected again")
        self._lost = False
        self.standing.note(event)
        asked = question(event)
        self.asked = self.asked if asked is None else asked
        match self.output:
            case Output.text:
                self._view.receive(event)
            case Output.jsonl:
                self._screen.line(json_text(event))
            case Output.json:
                pass

    async def _finish(self, last: Json) -> None:
        standing = self.standing
        if self.output is Output.text:
            self._view.finish()
        elif self.output is Output.json:
            task = standing.task
            result = last if standing.replied or task is None else {"task": await self._client.get_task(task)}
            self._screen.line(json_text(result, indent=2))
        if standing.state in WAITING and not self.asked:
            self.tell_waiting()
        elif standing.state == "TASK_STATE_CANCELED":
            self._screen.note("(canceled)")

    def tell_waiting(self) -> None:
        word, asked = self.standing.word, self.asked
        if asked and asked.calls and not self._tools:
            tools = " ".join(shlex.join(["--tool", f"{name}=COMMAND"]) for name in _names(asked))
            self._screen.note(
                f"({word}: with {tools} this chat can run what is asked for; a message withdraws the call)"
            )
        elif asked and not asked.elsewhere:
            self._screen.note(f"({word}: /answer asks again; a message withdraws the call)")
        else:
            self._screen.note(f"({word}: the next line goes to the same task)")

    async def come_back(self) -> None:
        """Takes up the conversation where it stands. Raises: ClientError."""
        where = {"contextId": self.standing.context}
        try:
            async with aclosing(self._client.tasks(where, 1)) as tasks:
                last = text_at(await anext(tasks, None), "id")
            if last is None:
                self._screen.note("(nothing was said yet in the conversation of this id)")
            else:
                await self.look(last)
        except Refused as error:
            # Not every agent lists its tasks. What was said is continued all the same.
            if error.temporary or error.status in {401, 403}:
                raise

    async def look(self, name: str) -> None:
        """What this task waits for, if it does. Raises: ClientError."""
        task = await self._client.get_task(name)
        event = {"task": task}
        self.standing.note(event)
        self.asked = question(event)
        if self.standing.state not in WAITING:
            if self.standing.state not in ENDED:
                follow = self._there.command("tasks", "watch", argument=name)
                self._screen.tell(f"(at work on an earlier message; to follow it: {follow})")
            return
        self._view = TextView(self._screen)
        if self.output is Output.text:
            self._view.ask_again(task)
        else:
            self._screen.line(json_text(event, indent=2 if self.output is Output.json else None))
        if not self.asked:
            self.tell_waiting()

    async def cancel(self) -> None:
        """Cancels the task that runs or waits, as soon as the agent has named it. What goes wrong is told here."""
        standing = self.standing
        self._cancels = self._talks and standing.task is None
        if self._cancels:
            self._screen.note("(it is canceled as soon as the agent names its task)")
            return
        if standing.task is None or standing.state in ENDED:
            self._screen.note("(there is no task to cancel)")
            return
        unseen = not self._talks
        try:
            found = await self._client.cancel_task(standing.task)
        except ClientError as error:
            self._screen.tell(stop(error).text)
            return
        if unseen:
            standing.state = text_at(found, "status", "state")
            self._screen.note(f"({standing.word})")

    def begin_anew(self) -> None:
        self.standing, self.asked = Standing(), None
        self._screen.note("(a new conversation)")

    def farewell(self) -> Iterator[str]:
        """How to come back."""
        if self.standing.context is None:
            return
        there = self._there
        target = [] if there.agent is None else [there.agent]
        words = replace(there, agent=None).command("chat", *target, "--context", self.standing.context)
        yield f"next: {words}"

    def left_behind(self) -> list[str]:
        """How to find the task again that nobody watches any more."""
        standing = self.standing
        if standing.task is None or standing.state in ENDED | WAITING:
            return []
        return goes_on(self._there, standing.task)

    def ways_on(self, error: ClientError) -> list[str]:
        """How to go on behind a message that did not arrive, or whose answer did not."""
        return [*in_the_way(self._there, error), *self.left_behind()]


def _names(asked: Question) -> list[str]:
    """Of the tools that are to be run here."""
    return list(dict.fromkeys(str(call["name"]) for call in asked.calls))


_SPEAKERS = {"ROLE_USER": "you", "ROLE_AGENT": "agent"}


def word(state: Json) -> str:
    """A task's state as a person would write it."""
    return str(state or "").removeprefix("TASK_STATE_").lower().replace("_", " ")


def state_of(task: Json) -> str:
    return word(text_at(task, "status", "state"))


def moment_of(task: Json) -> str:
    return text_at(task, "status", "timestamp") or ""


def opening(task: Json) -> str:
    """The text with which a task began, where the agent tells."""
    messages = (message for message in objects(task, "history") if message.get("role") == "ROLE_USER")
    return next((text for message in messages if (text := _text(objects(message, "parts")))), "")


def transcript(task: Json) -> Iterator[str]:
    """All that was said in a task, line by line: its messages, its artifacts, and what it ended with."""
    for message in objects(task, "history"):
        yield from _said(message)
    for artifact in objects(task, "artifacts"):
        name = text_at(artifact, "name")
        yield from _lines("agent" if name is None else f"agent, {visible(name)}", objects(artifact, "parts"))
    closing = at(task, "status", "message")
    known = {text_at(message, "messageId") for message in objects(task, "history")}
    if closing is not None and text_at(closing, "messageId") not in known:
        yield from _said(closing)
    if at(task, "metadata", "quarantined") is True:
        yield "put aside, because nobody could end it, and without what it had shown: cancel it, or delete its context"


def _said(message: Json) -> Iterator[str]:
    speaker = _SPEAKERS.get(str(at(message, "role")), "somebody")
    yield from _lines(speaker, [part for part in objects(message, "parts") if not is_said_twice(part, message)])


def _lines(speaker: str, parts: list[dict[str, Json]]) -> Iterator[str]:
    text = _text(parts)
    if text:
        yield f"{speaker}: {visible(text)}"
    for part in parts:
        if tool_call(part):
            yield f"{speaker}: {visible(described(part))}"
        elif not is_text(part):
            content = json_text(part["data"]) if "data" in part else described_file(part)
            yield f"{speaker}: {visible(content)}"


def _text(parts: Iterable[Json]) -> str:
    return "".join(part["text"] for part in parts if is_text(part))
