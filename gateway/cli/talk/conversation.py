"""The conversation of a chat, in an event loop in a thread beside the main thread, which waits for its user.

Law: a failure ends a message, not the conversation; what opens in the loop closes in it.
"""

import asyncio
import shlex
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, Self, TypeVar

from gateway.cli.console.address import AgentAddress
from gateway.cli.console.connect import open_client, stop_for
from gateway.cli.console.output import Output
from gateway.cli.talk.answers import Tools, with_tools
from gateway.cli.talk.display import ConversationState, TaskDisplay
from gateway.cli.talk.message import compose
from gateway.cli.talk.render import TextView
from gateway.client.client import ENDED, WAITING, Client, Retry
from gateway.client.transport import ClientError, Json, Refused, text_at

T = TypeVar("T")


class ChatSession(TaskDisplay):
    def __init__(self, address: AgentAddress, context: str | None, output: Output, tools: Tools) -> None:
        super().__init__(address, output, ConversationState(context=context))
        self.tools = tools
        self._disconnected = False
        self._streams = False
        """An answer is being received."""
        self._cancels = False
        """The task is to be canceled as soon as the agent names it."""
        self._client: Client

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Connected with the agent while the block runs. Raises: ClientError."""
        # Ten tries take about half a minute: a gateway that restarts is back by then.
        async with open_client(self.address, Retry(tries=10), self._pause_retry) as client:
            self._client = client
            yield

    async def _pause_retry(self, seconds: float) -> None:
        if not self._disconnected:
            self.screen.note("the connection is lost; waiting for the agent to come back")
        self._disconnected = True
        await asyncio.sleep(seconds)

    async def send(self, parts: list[Json]) -> None:
        """Sends a message, to the task that waits if one does, and shows the answer. Raises: ClientError."""
        before, self._disconnected, self._streams, self._cancels = self.conversation, False, True, False
        task = before.task if before.state in WAITING else None
        if task is None:
            self.view = TextView(self.screen)
        else:
            self.view.continue_task()
        message = with_tools(compose(parts, context=before.context, task=task), self.tools)
        self.question = None
        self.conversation = ConversationState(context=before.context, task=task)
        self.last_event = None
        try:
            async with aclosing(self._client.send_and_follow(message)) as events:
                async for event in events:
                    self.receive(event)
                    if self._cancels and self.conversation.task is not None:
                        await self.cancel()
        except ClientError:
            if self.last_event is None:
                self.conversation = before
            raise
        finally:
            self._streams = False
            self.screen.end_line()
        await self._finish()

    def receive(self, event: Json) -> None:
        if self._disconnected:
            self.screen.note("connected again")
        self._disconnected = False
        super().receive(event)

    async def get_task(self, task: str) -> Json:
        return await self._client.get_task(task)

    async def _finish(self) -> None:
        if self.output is Output.text:
            self.view.finish()
        await self.print_result()
        if self.conversation.state in WAITING and not self.question:
            self.show_waiting()
        elif self.conversation.state == "TASK_STATE_CANCELED":
            self.screen.note("(canceled)")

    def show_waiting(self) -> None:
        """Says how a task that waits continues."""
        words, question = self.conversation.words, self.question
        if question and question.calls and not self.tools:
            tools = shlex.join(question.tool_options)
            self.screen.note(
                f"({words}: with {tools} this chat can run what is asked for; a message withdraws the call)"
            )
        elif question and not question.consent:
            self.screen.note(f"({words}: /answer asks again; a message withdraws the call)")
        else:
            self.screen.note(f"({words}: the next line goes to the same task)")

    async def resume(self) -> None:
        """Continues a conversation of another time: shows what its last task waits for. Raises: ClientError."""
        where = {"contextId": self.conversation.context}
        try:
            async with aclosing(self._client.tasks(where, 1)) as tasks:
                last = text_at(await anext(tasks, None), "id")
            if last is None:
                self.screen.note("(nothing was said yet in the conversation of this id)")
            else:
                await self.show_question(last)
        except Refused as error:
            # An agent that does not list its tasks still continues the conversation.
            if error.temporary or error.status in {401, 403}:
                raise

    async def show_question(self, name: str) -> None:
        """Shows what this task waits for, if it does. Raises: ClientError."""
        task = await self.get_task(name)
        event = {"task": task}
        self.note(event)
        if self.conversation.state not in WAITING:
            if self.conversation.state not in ENDED:
                follow = self.address.command("tasks", "watch", argument=name)
                self.screen.report(f"(at work on an earlier message; to follow it: {follow})")
            return
        self.view = TextView(self.screen)
        if self.output is Output.text:
            self.view.show_question(task)
        else:
            self.print(event)
        if not self.question:
            self.show_waiting()

    async def cancel(self) -> None:
        """Cancels the task that runs or waits, as soon as the agent has named it. Shows errors instead of raising them."""
        conversation = self.conversation
        self._cancels = self._streams and conversation.task is None
        if self._cancels:
            self.screen.note("(it is canceled as soon as the agent names its task)")
            return
        if conversation.task is None or conversation.state in ENDED:
            self.screen.note("(there is no task to cancel)")
            return
        streams = self._streams
        try:
            found = await self._client.cancel_task(conversation.task)
        except ClientError as error:
            self.screen.report(stop_for(error).text)
            return
        if not streams:
            conversation.state = text_at(found, "status", "state")
            self.screen.note(f"({conversation.words})")

    def start_new(self) -> None:
        self.conversation, self.question = ConversationState(), None
        self.screen.note("(a new conversation)")

    def next_lines(self) -> Iterator[str]:
        """How to continue the conversation another time."""
        if self.conversation.context is None:
            return
        target = [] if self.address.agent is None else [self.address.agent]
        words = replace(self.address, agent=None).command("chat", *target, "--context", self.conversation.context)
        yield f"next: {words}"

    def running_lines(self) -> list[str]:
        """How to find a task that still runs."""
        return [] if self.conversation.state in ENDED | WAITING else self.open_task_lines()


class BackgroundLoop:
    """The loop runs while the block does, and the context of `opening` is open in it meanwhile."""

    def __init__(self, opening: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        self._opening = opening
        self._opened: Future[None] = Future()
        self._begun = threading.Event()
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="background")

    def __enter__(self) -> Self:
        """Raises: the errors of opening; KeyboardInterrupt."""
        self._thread.start()
        self._begun.wait()
        try:
            self._opened.result()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _end(self) -> None:
        if self._main is not None:
            with suppress(RuntimeError):  # the loop has ended by itself
                self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            asyncio.run(self._stay_open())

    async def _stay_open(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        self._begun.set()
        try:
            async with self._opening():
                self._opened.set_result(None)
                await asyncio.Event().wait()
        except Exception as error:  # noqa: BLE001 - raised in the main thread, which waits for `_opened`
            if not self._opened.done():
                self._opened.set_exception(error)
