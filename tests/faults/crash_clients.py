"""Callers of gateways that are killed again and again. A caller repeats, looks up or resumes what broke off, at any of them, as
a careful client does.

The streams of one task are joined over all kills, and everything that was acknowledged is recorded.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import httpx2

from gateway.a2a.tool_calls import URI
from tests.a2a_client import A2A, Frame, Json, Refused, Stream, streamed_text, text_of, user_message
from tests.faults.crash_world import KINDS
from tests.support.fork_server import Forked
from tests.support.polling import interval

_PUSHED = 5
"""The events of the task of the first message are posted, and of every so many behind it."""

FINAL = frozenset({"TASK_STATE_COMPLETED", "TASK_STATE_FAILED", "TASK_STATE_CANCELED"})
WAITING = "TASK_STATE_INPUT_REQUIRED"

_WAYS = ("all", "all", "none", "some", "one by one", "one by one", "cancel", "words", "away")
"""What becomes of a question."""


class Line:
    """The way to the gateways that live now. `replicas`: there may be several, so that a request that broke off may arrive
    later than another one of the same client."""

    def __init__(self, *, replicas: bool = False) -> None:
        self.replicas = replicas
        self._up = asyncio.Event()
        self._open: dict[int, tuple[Forked, httpx2.AsyncClient]] = {}
        self._died = asyncio.Event()
        self.deaths = 0

    async def http(self, chance: random.Random) -> httpx2.AsyncClient:
        """To any of them."""
        while not self._open:
            await self._up.wait()
        return chance.choice([http for _, http in self._open.values()])

    def open(self, gateway: Forked, http: httpx2.AsyncClient) -> None:
        self._open[gateway.pid] = gateway, http
        self._up.set()

    def close(self, gateway: Forked) -> None:
        self._open.pop(gateway.pid, None)
        if not self._open:
            self._up.clear()

    @property
    def gateways(self) -> list[Forked]:
        return [gateway for gateway, _ in self._open.values()]

    async def kill(self, gateway: Forked) -> None:
        self.close(gateway)
        await gateway.kill()
        self.died()

    def died(self) -> None:
        self.deaths += 1
        died, self._died = self._died, asyncio.Event()
        died.set()

    async def deaths_to_come(self, number: int) -> None:
        for _ in range(number):
            await self._died.wait()


@dataclass(slots=True)
class ClientLog:
    """Counts of one run, and the acknowledged tasks, by the text of their message."""

    acked: dict[str, str] = field(default_factory=dict)
    never: set[str] = field(default_factory=set)
    """Texts that broke off and were not there when it was looked for them, or were refused: they must never appear."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Requests that were refused for the time being, by what was said."""
    pushed: dict[str, str] = field(default_factory=dict)
    """The paths to which the events of tasks are to be posted, by the task."""
    cuts: int = 0
    resumes: int = 0
    repeats: int = 0
    found: int = 0
    cancels: set[str] = field(default_factory=set)
    """The tasks that were to be cancelled."""
    canceled: int = 0
    decided: Counter[str] = field(default_factory=Counter)
    allowed: dict[str, bool] = field(default_factory=dict)
    """What a decision that was acknowledged said of each thing."""


@dataclass(slots=True)
class JoinedStream:
    """All that the streams of one task have shown, as if there had been one."""

    agent: str
    id: str
    first: int | None = None
    """The number of the event before its first one; None: not known yet."""
    frames: list[Frame] = field(default_factory=list)
    status: Json = field(default_factory=dict)
    asked_at: int = -1
    """The number of the latest question."""
    resumes: int = 0
    task: Json = field(default_factory=dict)
    """As it was read when it had ended."""
    done: asyncio.Event = field(default_factory=asyncio.Event)
    _grown: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def last(self) -> int:
        number = self.frames[-1].number if self.frames else self.first
        assert number is not None
        return number

    @property
    def ended(self) -> bool:
        return bool(self.status) and self.status["state"] in FINAL

    @property
    def waits(self) -> bool:
        return bool(self.status) and self.status["state"] == WAITING

    def take(self, frame: Frame, *, opens: bool) -> None:
        if opens:
            self._open(frame)
        else:
            assert frame.number == self.last + 1, f"{self.id}: {frame.number} came behind {self.last}"
            assert not self.ended, f"{self.id}: {frame} came behind the end"
            self.frames.append(frame)
            update = frame.event.get("statusUpdate")
            if update is not None:
                self.status = update["status"]
                if self.waits:
                    self.asked_at = self.last
        grown, self._grown = self._grown, asyncio.Event()
        grown.set()

    def _open(self, frame: Frame) -> None:
        """The Task that begins every stream; one that resumes shows it as the caller has seen it."""
        task = frame.event["task"]
        assert task["id"] == self.id
        if self.first is None:
            assert frame.number is not None
            self.first, self.status = frame.number, task["status"]
        else:
            assert frame.number is None or frame.number == self.last
            if self.first == 0:
                assert text_of(task) == streamed_text(self.frames), f"{self.id}: another Task than what was shown"

    async def asks_or_ends(self, behind: int = -1) -> None:
        """With a question that is a later event than this one."""
        while not (self.ended or (self.waits and self.asked_at > behind)):
            await self._grown.wait()

    async def listen(self, stream: Stream, most: int | None = None) -> None:
        """To the end of the stream, or of the patience of who listens."""
        seen = 0
        while not (self.ended or (most is not None and seen >= most)):
            fresh = (await stream.read(seen + 1))[seen:]
            if not fresh:
                return
            for frame in fresh:
                self.take(frame, opens=seen == 0)
                seen += 1


@dataclass(slots=True)
class Client:
    """One caller of one context, who says one thing after another."""

    line: Line
    told: ClientLog
    group: asyncio.TaskGroup
    over: asyncio.Event
    agent: str
    name: str
    chance: random.Random
    hook: str = ""
    """Where the events of some tasks are to be posted; empty: of none."""
    room: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)
    """Entered for each round of messages, which are kept back until there is room."""
    said: list[str] = field(default_factory=list)
    """The texts that are part of the conversation, in order."""
    tasks: list[JoinedStream] = field(default_factory=list)
    _numbers: Any = field(default_factory=lambda: count(1))

    @property
    def context(self) -> str:
        return f"context-{self.name}"

    async def talk(self) -> None:
        while not self.over.is_set():
            async with self.room:
                await self._talk_once()

    async def _talk_once(self) -> None:
        kind = self.chance.choice(KINDS)
        if self.chance.random() < 0.1:
            both = [await self.say_at_once(self._text(kind)), await self.say_at_once(self._text("plain"))]
            tasks = [task for task in both if task is not None]
        else:
            ways = (self.say_streaming, self.say_streaming, self.say_blocking, self.say_at_once)
            task = await self.chance.choice(ways)(self._text(kind))
            tasks = [task] if task is not None else []
        if tasks and self.chance.random() < 0.15:
            await self.cancel(self.chance.choice(tasks))
        for task in tasks:
            await self.see_through(task)

    async def wait_for_the_last_kill(self) -> JoinedStream:
        """Sends a message that needs an approval, and gives it only when all kills are over."""
        while (task := await self._asks()) is None:
            pass
        await self.over.wait()
        await self.see_through(task, "all")
        return task

    async def _asks(self) -> JoinedStream | None:
        """A task that waits for an answer, if it does not end before."""
        task = await self.say_at_once(self._text("gated"))
        if task is not None:
            await task.asks_or_ends()
        return None if task is None or task.ended else task

    def _text(self, kind: str) -> str:
        return f"{self.name}.{next(self._numbers)} {kind}"

    # --- messages: each is known to be accepted, or known not to be, when one of these returns

    async def say_streaming(self, text: str) -> JoinedStream | None:
        """One who has seen the Task listens on beside everything else."""
        opened: asyncio.Future[JoinedStream | bool] = asyncio.get_running_loop().create_future()

        async def listen() -> None:
            caller, task, refused = await self._caller(), None, False
            try:
                async with caller.stream(text, self.context, self._push(text), messageId=text) as stream:
                    seen = await stream.read(1)
                    if seen:
                        task = self._accepted(text, seen[0].event["task"]["id"])
                        opened.set_result(task)
                        await task.listen(stream)
            except httpx2.TransportError:
                pass
            except Refused as error:
                self._check_passing(error)
                refused = _reason(error) != "UNANSWERED"
            if task is None:
                opened.set_result(refused)
            else:
                await self._follow(task)

        self.group.create_task(listen())
        task = await opened
        if task is True:
            return await self._put_off(text)
        return task or await self._unheard(text)

    async def say_blocking(self, text: str) -> JoinedStream | None:
        return await self._say(text, {})

    async def say_at_once(self, text: str) -> JoinedStream | None:
        return await self._say(text, {"returnImmediately": True})

    async def _say(self, text: str, configuration: Json) -> JoinedStream | None:
        message = user_message(text, self.context, messageId=text)
        caller = await self._caller()
        try:
            result = await caller.call("SendMessage", message=message, configuration=configuration | self._push(text))
        except httpx2.TransportError:
            return await self._unheard(text)
        except Refused as error:
            if _reason(error) == "UNANSWERED":
                return await self._unheard(text)
            if _is_passing(error):
                self._check_passing(error)
                return await self._put_off(text)
            self._check_refusal(text, error)
            return None
        return self._follow_from_the_start(text, result["task"]["id"])

    async def _put_off(self, text: str) -> JoinedStream | None:
        """It was refused for the time being: it is sent again, or given up, and then it must not be there."""
        if self.chance.random() < 0.5:
            return await self._repeat(text)
        self.told.never.add(text)
        return None

    async def _unheard(self, text: str) -> JoinedStream | None:
        """It broke off before anything was said of it: the message is sent again, or looked for."""
        self.told.cuts += 1
        if self.chance.random() < 0.5:
            return await self._repeat(text)
        listed = await self._sure("ListTasks", contextId=self.context, pageSize=100)
        for task in listed["tasks"]:
            if task["history"][0]["parts"] == [{"text": text}]:
                self.told.found += 1
                return self._follow_from_the_start(text, task["id"])
        if self.line.replicas:
            return await self._repeat(text)
        self.told.never.add(text)
        return None

    async def _repeat(self, text: str) -> JoinedStream | None:
        message = user_message(text, self.context, messageId=text)
        self.told.repeats += 1
        at_once = {"returnImmediately": True}
        try:
            result = await self._sure("SendMessage", message=message, configuration=at_once | self._push(text))
        except Refused as error:
            self._check_refusal(text, error)
            return None
        return self._follow_from_the_start(text, result["task"]["id"])

    def _push(self, text: str) -> Json:
        """The part of a message's configuration that says where the events of its task go."""
        number = int(text.partition(" ")[0].rpartition(".")[2])
        if not self.hook or number % _PUSHED != 1:
            return {}
        return {"taskPushNotificationConfig": {"id": "hook", "url": f"{self.hook}/{self.name}/{number}"}}

    def _check_refusal(self, text: str, error: Refused) -> None:
        """A message right after another one may only be refused because of a question that the first one led to."""
        [waiting] = [detail["metadata"]["taskId"] for detail in error.args[0]["data"] if "metadata" in detail]
        assert waiting in {task.id for task in self.tasks if not task.ended}
        self.told.never.add(text)

    def _follow_from_the_start(self, text: str, task_id: str) -> JoinedStream:
        task = self._accepted(text, task_id)
        task.first = 0
        self.group.create_task(self._follow(task))
        return task

    def _accepted(self, text: str, task_id: str) -> JoinedStream:
        assert task_id not in {task.id for task in self.tasks}
        self.told.acked[text] = task_id
        self.said.append(text)
        push = self._push(text)
        if push:
            self.told.pushed[task_id] = urlsplit(push["taskPushNotificationConfig"]["url"]).path
        task = JoinedStream(self.agent, task_id)
        self.tasks.append(task)
        return task

    async def _follow(self, task: JoinedStream) -> None:
        """To its end, over every death, and with a caller who goes away now and then."""
        while not task.ended:
            caller = await self._caller()
            task.resumes += 1
            most = self.chance.choice((None, None, self.chance.randint(1, 6)))
            try:
                async with caller.subscribe(task.id, after=task.last) as stream:
                    await task.listen(stream, most)
            except httpx2.TransportError:
                self.told.cuts += 1
            except Refused as error:
                self._check_passing(error)
                await interval()
        task.task = await self._sure("GetTask", id=task.id)
        assert task.task["status"] == task.status, f"{task.task} is not {task.status}"
        task.done.set()

    # --- what becomes of a task

    async def see_through(self, task: JoinedStream, way: str = "") -> None:
        """To its end, answering whatever is asked."""
        answered = -1
        while True:
            await task.asks_or_ends(answered)
            if task.ended:
                await task.done.wait()
                return
            answered = task.asked_at
            await self._answer(task, way or self.chance.choice(_WAYS))

    async def _answer(self, task: JoinedStream, way: str) -> None:
        calls = list(_asked(task))
        match way:
            case "all":
                await self._decide(task, dict.fromkeys(calls, True), "allowed")
            case "none":
                await self._decide(task, dict.fromkeys(calls, False), "rejected")
            case "some":
                await self._decide(task, {call: not number for number, call in enumerate(calls)}, "mixed")
            case "one by one":
                await self._decide(task, {min(calls): self.chance.random() < 0.7}, "one by one")
            case "cancel":
                await self.cancel(task)
            case "words":
                await self._say_something_else(task)
            case "away":
                self.told.decided["left waiting"] += 1
                await self._stay_away()
                await self._answer(task, "all")

    async def cancel(self, task: JoinedStream) -> None:
        self.told.cancels.add(task.id)
        try:
            canceled = await self._sure("CancelTask", id=task.id)
        except Refused as error:  # it has ended, perhaps by a cancel whose answer was lost
            if _reason(error) != "TASK_NOT_CANCELABLE":
                raise
            await task.done.wait()
            return
        assert canceled["status"]["state"] == "TASK_STATE_CANCELED"
        self.told.canceled += 1
        await task.done.wait()
        assert task.status["state"] == "TASK_STATE_CANCELED"

    async def _say_something_else(self, task: JoinedStream) -> None:
        """No decision: the calls are cancelled, and the task continues with the next turn."""
        text = self._text("plain")
        message = user_message(text, None, messageId=text, taskId=task.id)
        await self._sure("SendMessage", message=message, configuration={"returnImmediately": True})
        self.told.acked[text] = task.id
        self.said.append(text)
        self.told.decided["abandoned"] += 1

    async def _stay_away(self) -> None:
        """For some kills, or until all are over."""
        waits = (self.line.deaths_to_come(self.chance.randint(1, 6)), self.over.wait())
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_wait(wait)) for wait in waits]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for each in tasks:
                each.cancel()

    async def _decide(self, task: JoinedStream, decisions: dict[str, bool], kind: str) -> None:
        approvals = [{"id": call, "approved": yes} for call, yes in decisions.items()]
        things = _asked(task)
        message = {
            "messageId": f"{task.id} {task.asked_at}",
            "role": "ROLE_USER",
            "taskId": task.id,
            "parts": [{"data": {"approvals": approvals}}],
        }
        at_once = {"returnImmediately": True} if self.chance.random() < 0.5 else {}
        await self._sure("SendMessage", message=message, configuration=at_once)
        self.told.decided[kind] += 1
        self.told.allowed |= {things[call]: yes for call, yes in decisions.items()}

    async def _sure(self, method: str, **params: Any) -> Json:
        """Asks until there is an answer. Raises: Refused."""
        while True:
            caller = await self._caller()
            try:
                return await caller.call(method, **params)
            except httpx2.TransportError:
                self.told.cuts += 1
            except Refused as error:
                if not _is_passing(error):
                    raise
                self._check_passing(error, method)
                await interval()

    async def _caller(self) -> A2A:
        return A2A(await self.line.http(self.chance), self.agent)

    def _check_passing(self, error: Refused, method: str = "") -> None:
        """Where one gateway has its database to itself, nothing is refused for the time being, except for a cancel of what a
        dead one has left: for a while, it might live."""
        assert self.line.replicas or method == "CancelTask", error
        assert _is_passing(error), error
        self.told.refusals[error.error["message"]] += 1


def _is_passing(error: Refused) -> bool:
    """The same may succeed later. Nothing was stored of a message that is refused as BUSY; one that is UNANSWERED may be
    stored."""
    return _reason(error) in {"BUSY", "UNANSWERED"}


def _reason(error: Refused) -> str:
    reasons = [detail["reason"] for detail in error.error.get("data", ()) if "reason" in detail]
    return reasons[0] if reasons else ""


def _asked(task: JoinedStream) -> dict[str, str]:
    """What is to be allowed, by the id of the call."""
    approval = task.status["message"]["metadata"][URI]["approval"]
    return {tool["id"]: tool["args"]["what"] for tool in approval["tools"]}


async def _wait(wait: Awaitable[object]) -> None:
    await wait
