"""One agent behind its binding: what is said to it, and how its tasks are followed. Law: a task that cannot be listened to is
looked at again and again, until its reader has the end.

A2A 0.3 gives who subscribes again no record of what was missed, and its reference server stores what a second listener hears
twice: there a task is only looked at. Source: a2a-sdk 0.3.26.
"""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from adapters.a2a.binding import Binding, Events
from adapters.a2a.card import Endpoint
from adapters.a2a.failures import CANNOT, GONE, OVER, A2AFailures, Refused
from gateway.a2a import model
from gateway.a2a.model import TERMINAL, Message, StreamResponse, Task
from gateway.foundation.tracebacks import drop_tracebacks
from gateway.ports.adapter import AdapterError, ErrorClass

_LISTED = 20
_SAID = 100
"""Tasks, and messages of each."""

_UNREADABLE = 3
"""Answers in a row to looks at a task that cannot be read: a proxy may give such a one while the agent starts again."""

_PASSING = frozenset({ErrorClass.BACKEND_FAILED, ErrorClass.NOT_SERVED, ErrorClass.REJECTED, ErrorClass.UNKNOWN})
"""Failures of a request that only looks at a task: they say nothing of the task."""


class Gone(AdapterError):
    """The task is not there any more."""


@dataclass(frozen=True, slots=True)
class Agent:
    """`poll` is the pause between two looks, in seconds."""

    endpoint: Endpoint
    binding: Binding
    failures: A2AFailures
    poll: float

    def say(self, message: Message, modes: tuple[str, ...], *, handle: str | None) -> Events:
        """Sends the message, and gives what the agent answers; `modes` are the media types that the answer may have."""
        configuration = model.SendMessageConfiguration(accepted_output_modes=modes or None)
        request = model.SendMessageRequest(tenant=self._tenant, message=message, configuration=configuration)
        if self.endpoint.streaming:
            return self.binding.stream(request, handle=handle)
        return self._ask(request, handle)

    async def listen(self, task: str) -> Events:
        """What the agent says of a task from its beginning on."""
        if self.endpoint.streaming and self.endpoint.version == "1.0":
            begun = False
            try:
                async with aclosing(self._subscribe(task)) as batches:
                    async for batch in batches:
                        begun = True
                        yield batch
                # The subscription has ended, and its listener has not heard the end of the task.
                yield [await self._look(task)]
            except AdapterError as error:
                if not _cannot_be_listened_to(error, begun=begun):
                    with _looking():
                        raise
                drop_tracebacks(error)
            else:
                return
        async with aclosing(self._watch(task)) as batches:
            async for batch in batches:
                yield batch

    async def task(self, task: str, *, handle: str | None = None, brief: bool = False) -> Task | None:
        """The task as it is now, if `brief` with little of its history; None where the agent does not know it. Raises:
        AdapterError."""
        # To 0.3 a length of 0 says that there is no limit.
        length = None if not brief else 0 if self.endpoint.version == "1.0" else 1
        request = model.GetTaskRequest(id=task, tenant=self._tenant, history_length=length)
        try:
            return await self.binding.task(request, handle=handle)
        except Refused as error:
            if error.reason in GONE:
                return None
            raise

    async def tasks(self, context: str | None) -> tuple[Task, ...] | None:
        """The latest tasks of a context, or of all that it has of this caller, the latest first; None where the agent does not
        list any. Raises: AdapterError."""
        if self.endpoint.version != "1.0":
            return None
        request = model.ListTasksRequest(
            tenant=self._tenant, context_id=context, page_size=_LISTED, history_length=_SAID
        )
        try:
            return await self.binding.tasks(request)
        except Refused as error:
            if error.reason in CANNOT:
                return None
            raise

    async def cancel(self, task: str) -> bool:
        """Whether the task has ended. Raises: AdapterError."""
        try:
            ended: Task | None = await self.binding.task(model.CancelTaskRequest(id=task, tenant=self._tenant))
        except Refused as error:
            if error.reason not in OVER | GONE:
                raise
            # It says so of a task that has ended, and of one that it does not want to end.
            ended = await self.task(task, brief=True)
        return ended is None or ended.status.state in TERMINAL

    async def _ask(self, request: model.SendMessageRequest, handle: str | None) -> Events:
        configuration = model.SendMessageConfiguration(
            accepted_output_modes=request.configuration.accepted_output_modes if request.configuration else None,
            return_immediately=True,
        )
        asked = model.SendMessageRequest(tenant=request.tenant, message=request.message, configuration=configuration)
        found = await self.binding.send(asked, handle=handle)
        yield [found]
        if found.task is not None:
            async with aclosing(self._watch(found.task.id)) as batches:
                async for batch in batches:
                    yield batch

    async def _subscribe(self, task: str) -> Events:
        """A subscription, which begins with the whole task. Raises: AdapterError; CONTRACT_BROKEN where something else comes
        first, because what was said before it would be lost."""
        begun = False
        async with aclosing(self.binding.stream(model.SubscribeToTaskRequest(id=task, tenant=self._tenant))) as batches:
            async for batch in batches:
                if batch and not begun and batch[0].task is None:
                    raise self.failures.error(ErrorClass.CONTRACT_BROKEN, "a subscription that begins without its task")
                begun = begun or bool(batch)
                if begun:
                    yield batch

    async def _watch(self, task: str) -> Events:
        unreadable = 0
        while True:
            try:
                found = await self._look(task)
            except AdapterError as error:
                unreadable += 1
                if error.kind is not ErrorClass.CONTRACT_BROKEN or unreadable == _UNREADABLE:
                    with _looking():
                        raise
                drop_tracebacks(error)
            else:
                unreadable = 0
                yield [found]
            await asyncio.sleep(self.poll)

    async def _look(self, task: str) -> StreamResponse:
        """Raises: AdapterError; Gone where the agent does not know the task any more."""
        found = await self.task(task)
        if found is None:
            raise Gone(ErrorClass.BACKEND_FAILED, "the agent does not know the task any more")
        return StreamResponse(task=found)

    @property
    def _tenant(self) -> str | None:
        return self.endpoint.interface.tenant


def _cannot_be_listened_to(error: AdapterError, *, begun: bool) -> bool:
    """Whether the task has to be looked at, because a subscription is refused or does not work."""
    if isinstance(error, Refused) and error.reason in CANNOT | GONE:
        return True
    return not begun and (error.kind in _PASSING or error.kind is ErrorClass.CONTRACT_BROKEN)


@contextmanager
def _looking() -> Iterator[None]:
    """Surrounds a failure of a look at a task: it may be looked at again."""
    try:
        yield
    except AdapterError as error:
        if error.kind not in _PASSING or isinstance(error, Gone):
            raise
        raise error.as_kind(ErrorClass.INTERRUPTED) from error
