"""a2a-sdk's client of A2A 1.0 in front of one agent."""
# mypy: ignore-errors

import asyncio
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import CancelTaskRequest, GetTaskRequest, Message, Part, Role, SendMessageRequest, TaskState
from a2a.utils.errors import A2AError
from google.protobuf.json_format import MessageToDict, ParseDict
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
        *_, last = responses = [one async for one in self.streaming.send_message(request("one two three"))]
        pieces = [text([one.artifact_update.artifact]) for one in responses if one.HasField("artifact_update")]
        return {"pieces": pieces, "state": state(last.status_update)}

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
        return {"parts": [MessageToDict(part) for artifact in task.artifacts for part in artifact.parts]}

    async def cancel(self):
        stream = self.streaming.send_message(request("hold"))
        task = (await anext(stream)).task
        seen = text([(await anext(stream)).artifact_update.artifact])
        cancelled = await self.blocking.cancel_task(CancelTaskRequest(id=task.id))
        *_, last = [one async for one in stream]
        return {"seen": seen, "state": state(cancelled), "streamed": state(last.status_update)}

    async def failure(self):
        task = await self._sent("fail")
        return {"state": state(task), "message": text([task.status.message])}

    async def error(self):
        try:
            await self.blocking.get_task(GetTaskRequest(id="unknown"))
        except A2AError as error:
            return {"error": type(error).__name__}
        return {"error": None}

    async def refusal(self):
        try:
            [one async for one in self.streaming.send_message(request("one", task_id="unknown"))]
        except A2AError as error:
            return {"error": type(error).__name__}
        return {"error": None}

    async def _sent(self, said, parts=(), **where):
        (only,) = [one async for one in self.blocking.send_message(request(said, parts, **where))]
        return only.task


def request(said, parts=(), **where):
    content = [Part(text=said), *(ParseDict(part, Part()) for part in parts)]
    return SendMessageRequest(message=Message(role=Role.ROLE_USER, message_id=str(uuid4()), parts=content, **where))


def text(holders):
    return "".join(part.text for holder in holders for part in holder.parts)


def state(task):
    return TaskState.Name(task.status.state).removeprefix("TASK_STATE_").lower().replace("_", "-")


async def main():
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        card = await A2ACardResolver(http, asked.url).get_agent_card()

        def client(*, streaming):
            config = ClientConfig(streaming, httpx_client=http, supported_protocol_bindings=[asked.transport])
            if asked.transport == "GRPC":
                from grpc.aio import insecure_channel

                config.grpc_channel_factory = insecure_channel
            return ClientFactory(config).create(card)

        await report(Checks(card, client(streaming=True), client(streaming=False)))


if __name__ == "__main__":
    asyncio.run(main())
