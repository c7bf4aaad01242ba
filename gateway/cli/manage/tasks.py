"""`tasks`: what an agent is and was at work on."""

import asyncio
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from gateway.cli.console.connect import Reach, connected, looking_for, stop, told_plainly
from gateway.cli.console.exits import ExitCode
from gateway.cli.console.parameters import Approve, Output, StateChoice
from gateway.cli.console.terminal import Screen, json_text, local_time, print_rows, visible
from gateway.cli.talk.approvals import Question, answer, question
from gateway.cli.talk.conversation import moment_of, opening, state_of, transcript
from gateway.cli.talk.render import Standing, TextView
from gateway.cli.talk.send import compose, goes_on, how_to_answer, waits
from gateway.client.client import WAITING, Client
from gateway.client.transport import ClientError, Refused, text_at

Json = Any


@dataclass(frozen=True, slots=True)
class Filters:
    """Which tasks. `limit` None: all."""

    context: str | None = None
    state: StateChoice | None = None
    limit: int | None = None

    @property
    def params(self) -> dict[str, Json]:
        """Those of ListTasks."""
        where: dict[str, Json] = {}
        if self.context is not None:
            where["contextId"] = self.context
        if self.state is not None:
            where["status"] = f"TASK_STATE_{self.state.name.upper()}"
        return where


async def listed(there: Reach, filters: Filters, more: dict[str, Json] | None = None) -> list[Json]:
    """Raises: ClientError."""
    async with (
        connected(there) as client,
        aclosing(client.tasks(filters.params | (more or {}), filters.limit)) as tasks,
    ):
        return [task async for task in tasks]


def print_json(values: list[Json], whole: Json, output: Output) -> None:
    """A line for each value, or all in one document."""
    lines = [json_text(value) for value in values] if output is Output.jsonl else [json_text(whole, indent=2)]
    sys.stdout.writelines(f"{line}\n" for line in lines)


# --- list -------------------------------------------------------------------------------------------------------------


def print_tasks(there: Reach, filters: Filters, output: Output) -> int:
    """Raises: Stop."""
    with told_plainly():
        tasks = asyncio.run(listed(there, filters))
    if output is not Output.text:
        print_json(tasks, {"tasks": tasks}, output)
        return ExitCode.OK
    rows = [
        (
            text_at(task, "id") or "",
            state_of(task),
            local_time(sys.stdout, moment_of(task)),
            text_at(task, "contextId") or "",
            opening(task),
        )
        for task in tasks
    ]
    if rows:
        print_rows(sys.stdout, ("TASK", "STATE", "SINCE", "CONTEXT", "BEGAN WITH"), rows)
    else:
        sys.stderr.write("there are no such tasks\n" if filters.params else "there are no tasks\n")
    return ExitCode.OK


# --- get, cancel ------------------------------------------------------------------------------------------------------


def print_task(there: Reach, task: str, output: Output) -> int:
    """Raises: Stop."""

    async def get() -> Json:
        async with connected(there) as client:
            return await client.get_task(task)

    with told_plainly(), looking_for(there, task):
        found = asyncio.run(get())
    if output is not Output.text:
        print_json([found], found, output)
        return ExitCode.OK
    head = f"{state_of(found)}  {local_time(sys.stdout, moment_of(found))}".rstrip()
    lines = [f"task     {text_at(found, 'id')}", f"context  {text_at(found, 'contextId')}", f"state    {head}"]
    sys.stdout.writelines(f"{visible(line)}\n" for line in lines)
    said = list(transcript(found))
    sys.stdout.writelines(f"{line}\n" for line in (["", *said] if said else []))
    return ExitCode.OK


def cancel(there: Reach, task: str, output: Output) -> int:
    """Raises: Stop."""

    async def ask() -> Json:
        async with connected(there) as client:
            return await client.cancel_task(task)

    with told_plainly(), looking_for(there, task):
        found = asyncio.run(ask())
    if output is Output.text:
        sys.stdout.write(f"{visible(f'task {task} is {state_of(found)}')}\n")
    else:
        print_json([found], found, output)
    return ExitCode.OK


# --- watch ------------------------------------------------------------------------------------------------------------


def watch(
    there: Reach,
    task: str,
    first: int | None,
    output: Output,
    approve: Approve | None = None,
    tools: Mapping[str, Sequence[str]] | None = None,
) -> int:
    """`approve` None: a person is asked, if there is one. Raises: Stop."""
    watching = _Watch(there, task, first, output, Screen(sys.stdout, sys.stderr))
    try:
        with looking_for(there, task):
            asyncio.run(watching.perform())
        if watching.asked:
            answer(watching, approve, tools or {})
        asyncio.run(watching.print_whole())
    except KeyboardInterrupt:
        watching.leave("interrupted")
        return ExitCode.INTERRUPTED
    except ClientError as error:
        reason = stop(error)
        if watching.standing.state is None:
            raise reason from error
        watching.leave(reason.text)
        return reason.code
    return watching.end()


class _Watch:
    def __init__(self, there: Reach, task: str, first: int | None, output: Output, screen: Screen) -> None:
        self.screen = screen
        self.standing = Standing(task=task)
        self.asked: Question | None = None
        """What the task waits for, as far as it can be answered here."""
        self._there = there
        self._task = task
        self._first = first or 1
        self._output = output
        self._view = TextView(screen)

    async def perform(self) -> None:
        """Raises: ClientError."""
        async with connected(self._there) as client:
            now = await client.get_task(self._task)
            async for event in self._events(client, now):
                if self.standing.state is None and self._first > 1:
                    self._view.skip(event.get("task"))
                self._receive(event)

    async def _events(self, client: Client, now: Json) -> AsyncIterator[Json]:
        if not client.endpoint.streaming:
            yield {"task": now}
            yield {"task": await client.wait(self._task)}
            return
        async with aclosing(client.follow(self._task, self._first - 1, moment_of(now))) as events:
            async for event in events:
                yield event

    def _receive(self, event: Json) -> None:
        self.standing.note(event)
        asked = question(event)
        self.asked = self.asked if asked is None else asked
        if self._output is Output.text:
            self._view.receive(event)
        elif self._output is Output.jsonl:
            self.screen.line(json_text(event))

    def pause(self) -> None:
        """What the agent asks is shown before it is answered."""
        if self._output is Output.text and self.asked:
            self._view.finish()
            self._view.go_on()

    async def go_on(self, declared: dict[str, Json], parts: list[Json]) -> None:
        """Sends the answer and watches on. Raises: ClientError."""
        message = declared | compose(parts, context=self.standing.context, task=self._task)
        self.asked = None
        async with connected(self._there) as client:
            try:
                await self._follow(client.said(message))
            except Refused as error:
                if error.temporary or error.status in {401, 403}:
                    raise
                # Others may have answered first: then it goes on all the same.
                self.screen.tell(stop(error).text)
                await self._follow(client.seen(self._task))

    async def _follow(self, events: AsyncGenerator[Json, None]) -> None:
        async with aclosing(events):
            async for event in events:
                self._receive(event)

    async def print_whole(self) -> None:
        """The task as one document, once nothing more comes. Raises: ClientError."""
        if self._output is Output.json:
            async with connected(self._there) as client:
                self.screen.line(json_text({"task": await client.get_task(self._task)}, indent=2))

    def end(self) -> int:
        """The exit code of a task that has ended or waits."""
        if self._output is Output.text:
            self._view.finish()
            self.screen.tell(f"context {self.standing.context}  task {self._task}  {self.standing.word}")
            if self.standing.state in WAITING:
                self.screen.tell(f"answer: {how_to_answer(self._there, self._task, self.asked)}")
        return self.standing.exit_code

    def leave(self, why: str) -> None:
        self.screen.end_line()
        waiting = self.standing.state in WAITING
        ways = waits(self._there, self._task, self.asked) if waiting else goes_on(self._there, self._task)
        self.screen.tell("\n".join([why, *ways]))
