"""Strands' `A2AAgent` in front of one agent: every call is streamed."""
# mypy: ignore-errors

import asyncio

from a2a.client import A2AClientError
from a2a.types import DataPart, FileWithBytes, TaskArtifactUpdateEvent
from reporting import asked, report
from strands.agent.a2a_agent import A2AAgent


class Checks:
    def __init__(self):
        self.agent = A2AAgent(endpoint=asked.url)

    async def card(self):
        about = await self.agent.get_agent_card()
        return {
            "name": self.agent.name,
            "description": self.agent.description,
            "skills": [skill.id for skill in about.skills],
            "streaming": about.capabilities.streaming,
        }

    async def send(self):
        return answer(await self.agent.invoke_async("one"))

    async def stream(self):
        pieces, result = [], None
        async for event in self.agent.stream_async("one two three"):
            if "result" in event:
                result = event["result"]
            elif isinstance(event["event"][1], TaskArtifactUpdateEvent):
                parts = event["event"][1].artifact.parts
                pieces.append("".join(part.root.text for part in parts))
        return {"pieces": pieces, "state": answer(result)["state"]}

    async def question(self):
        result = await self.agent.invoke_async("ask")
        seen = answer(result)
        unanswered = {"text": None, "state": None, "same_task": None}
        return {"question": seen["text"], "waiting": seen["state"], **unanswered}

    async def given(self):
        task = None
        async for event in self.agent.stream_async("given"):
            if "event" in event:
                task, _ = event["event"]
        return {"parts": [shown(part.root) for artifact in task.artifacts for part in artifact.parts]}

    async def failure(self):
        seen = answer(await self.agent.invoke_async("fail"))
        return {"state": seen["state"], "message": seen["text"]}

    async def refusal(self):
        try:
            await self.agent.invoke_async([{"role": "user", "content": []}])
        except A2AClientError as error:
            return {"error": type(error).__name__}
        return {"error": None}


def answer(result):
    text = "".join(block["text"] for block in result.message["content"])
    return {"text": text, "state": result.state["a2a_task_state"]}


def shown(part):
    """The part as A2A 1.0 writes it."""
    if isinstance(part, DataPart):
        return {"data": part.data}
    content = {"raw": part.file.bytes} if isinstance(part.file, FileWithBytes) else {"url": part.file.uri}
    return {**content, "filename": part.file.name, "mediaType": part.file.mime_type}


if __name__ == "__main__":
    asyncio.run(report(Checks()))
