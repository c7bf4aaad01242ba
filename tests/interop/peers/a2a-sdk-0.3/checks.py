"""a2a-sdk's client of A2A 0.3 in front of one agent."""
# mypy: ignore-errors

import asyncio
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, A2AClientError, ClientConfig, ClientFactory
from a2a.types import (
    DataPart,
    FilePart,
    FileWithBytes,
    FileWithUri,
    Message,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskIdParams,
    TaskQueryParams,
    TextPart,
)
from reporting import asked, report


class Checks:
    def __init__(self, card, streaming, blocking):
        self.about, self.streaming, self.blocking = card, streaming, blocking

    async def card(self):
        return {
            "name": self.about.name,
            "description": self.about.description,
            "skills": [skill.id for skill in self.about.skills],
            "streaming": self.about.capabilities.streaming,
        }

    async def send(self):
        task = await self._sent("one")
        return {"text": text(task.artifacts), "state": state(task)}

    async def stream(self):
        pieces, last = [], None
        async for _, update in self.streaming.send_message(message("one two three")):
            if isinstance(update, TaskArtifactUpdateEvent):
                pieces.append(text([update.artifact]))  # at once: the client itself makes the whole answer of the first piece
            last = update
        return {"pieces": pieces, "state": state(last)}

    async def turns(self):
        first = await self._sent("one")
        second = await self._sent("two", context_id=first.context_id)
        return {
            "texts": [text(task.artifacts) for task in (first, second)],
            "same_context": first.context_id == second.context_id,
            "same_task": first.id == second.id,
        }

    async def question(self):
        waiting = await self._sent("ask")
        answered = await self._sent("Oslo", task_id=waiting.id, context_id=waiting.context_id)
        return {
            "question": text([waiting.status.message]),
            "waiting": state(waiting),
            "text": text(answered.artifacts),
            "state": state(answered),
            "same_task": waiting.id == answered.id,
        }

    async def sent(self):
        return {"echo": text((await self._sent("sent", asked.parts)).artifacts)}

    async def given(self):
        task = await self._sent("given")
        return {"parts": [shown(part.root) for artifact in task.artifacts for part in artifact.parts]}

    async def cancel(self):
        stream = self.streaming.send_message(message("hold"))
        task, _ = await anext(stream)
        _, update = await anext(stream)
        cancelled = await self.blocking.cancel_task(TaskIdParams(id=task.id))
        *_, (_, last) = [one async for one in stream]
        return {"seen": text([update.artifact]), "state": state(cancelled), "streamed": state(last)}

    async def failure(self):
        task = await self._sent("fail")
        return {"state": state(task), "message": text([task.status.message])}

    async def error(self):
        try:
            await self.blocking.get_task(TaskQueryParams(id="unknown"))
        except A2AClientError as error:
            return {"error": type(error).__name__}
        return {"error": None}

    async def refusal(self):
        try:
            [one async for one in self.streaming.send_message(message("one", task_id="unknown"))]
        except A2AClientError as error:
            return {"error": type(error).__name__}
        return {"error": None}

    async def _sent(self, said, parts=(), **where):
        ((task, _),) = [one async for one in self.blocking.send_message(message(said, parts, **where))]
        return task


def message(said, parts=(), **where):
    content = [Part(root=TextPart(text=said)), *(Part(root=part_of(part)) for part in parts)]
    return Message(role=Role.user, message_id=str(uuid4()), parts=content, **where)


def part_of(part):
    if "data" in part:
        return DataPart(data=part["data"])
    about = {"name": part["filename"], "mime_type": part["mediaType"]}
    return FilePart(file=FileWithBytes(bytes=part["raw"], **about) if "raw" in part else FileWithUri(uri=part["url"], **about))


def shown(part):
    """The part as A2A 1.0 writes it."""
    if isinstance(part, DataPart):
        return {"data": part.data}
    content = {"raw": part.file.bytes} if isinstance(part.file, FileWithBytes) else {"url": part.file.uri}
    return {**content, "filename": part.file.name, "mediaType": part.file.mime_type}


def text(holders):
    return "".join(part.root.text for holder in holders for part in holder.parts)


def state(task):
    return task.status.state.value


async def main():
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        card = await A2ACardResolver(http, asked.url).get_agent_card()

        def client(*, streaming):
            config = ClientConfig(streaming, httpx_client=http, supported_transports=[asked.transport])
            return ClientFactory(config).create(card)

        await report(Checks(card, client(streaming=True), client(streaming=False)))


if __name__ == "__main__":
    asyncio.run(main())
