"""One agent behind its binding: what is said to it, and how its tasks are followed. Law: a task that cannot be listened to is
looked at again and again, until its reader has the end.

A2A 0.3 gives who subscribes again no record of what was missed, and its reference server stores what a second listener hears
twice: there a task is only looked at. Source: a2a-sdk 0.3.26.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from adapters.a2a.binding import Binding, Events
from adapters.a2a.card import Endpoint
from adapters.a2a.failures import CANNOT, GONE, OVER, A2AFailures, Refused
from gateway.a2a import model
from gateway.a2a.model import TERMINAL, Message, StreamResponse, Task
from gateway.ports.adapter import ErrorClass

_LISTED = 20
_SAID = 100
"""Tasks, and messages of each."""


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
            request = model.SubscribeToTaskRequest(id=task, tenant=self._tenant)
            try:
                async with aclosing(self.binding.stream(request)) as batches:
                    async for batch in batches:
                        yield batch
            except Refused as error:
                if error.reason not in CANNOT | GONE:
                    raise
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

    async def tasks(self, context: str) -> tuple[Task, ...] | None:
        """The latest tasks of a context, the latest first; None where the agent does not list any. Raises: AdapterError."""
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
            ended = await self.binding.task(model.CancelTaskRequest(id=task, tenant=self._tenant))
        except Refused as error:
            if error.reason in OVER | GONE:
                return True
            raise
        return ended.status.state in TERMINAL

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

    async def _watch(self, task: str) -> AsyncGenerator[list[StreamResponse], None]:
        """Raises: AdapterError (BACKEND_FAILED) where the agent does not know the task any more."""
        while True:
            found = await self.task(task)
            if found is None:
                raise self.failures.error(ErrorClass.BACKEND_FAILED, "the agent does not know the task any more")
            yield [StreamResponse(task=found)]
            await asyncio.sleep(self.poll)

    @property
    def _tenant(self) -> str | None:
        return self.endpoint.interface.tenant
