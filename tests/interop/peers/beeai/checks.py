"""BeeAI's `A2AAgent` in front of one agent: every run is streamed, and goes on with the context of the run before."""
# mypy: ignore-errors

import asyncio
from uuid import uuid4

from a2a.types import DataPart, FilePart, FileWithBytes, FileWithUri, Message, Part, Role, TaskArtifactUpdateEvent, TextPart
from beeai_framework.adapters.a2a.agents import A2AAgent
from beeai_framework.agents import AgentError
from beeai_framework.memory import UnconstrainedMemory
from reporting import asked, report


class Checks:
    async def card(self):
        agent = an_agent()
        await agent.check_agent_exists()
        about = agent.agent_card
        return {
            "name": agent.meta.name,
            "description": agent.meta.description,
            "skills": [skill.id for skill in about.skills],
            "streaming": about.capabilities.streaming,
        }

    async def send(self):
        output = await an_agent().run("one")
        return {"text": output.last_message.text, "state": state(output)}

    async def stream(self):
        pieces = []

        def keep(data, _):
            if isinstance(data.value, tuple) and isinstance(data.value[1], TaskArtifactUpdateEvent):
                pieces.append(text([data.value[1].artifact]))

        output = await an_agent().run("one two three").on("update", keep)
        return {"pieces": pieces, "state": state(output)}

    async def turns(self):
        agent = an_agent()
        first = await agent.run("one")
        second = await agent.run("two")
        return {
            "texts": [output.last_message.text for output in (first, second)],
            "same_context": task(first).context_id == task(second).context_id,
            "same_task": task(first).id == task(second).id,
        }

    async def question(self):
        agent = an_agent()
        waiting = await agent.run("ask")
        answered = await agent.run("Oslo")
        return {
            "question": text([task(waiting).status.message]),
            "waiting": state(waiting),
            "text": answered.last_message.text,
            "state": state(answered),
            "same_task": task(waiting).id == task(answered).id,
        }

    async def sent(self):
        content = [Part(root=TextPart(text="sent")), *(Part(root=part_of(part)) for part in asked.parts)]
        output = await an_agent().run(Message(role=Role.user, message_id=str(uuid4()), parts=content))
        return {"echo": output.last_message.text}

    async def given(self):
        output = await an_agent().run("given")
        return {"parts": [shown(part.root) for artifact in task(output).artifacts for part in artifact.parts]}

    async def failure(self):
        output = await an_agent().run("fail")
        return {"state": state(output), "message": text([task(output).status.message])}

    async def refusal(self):
        try:
            await an_agent().run("one", task_id="unknown")
        except AgentError as error:
            return {"error": type(error.get_cause()).__name__}
        return {"error": None}

def an_agent():
    return A2AAgent(url=asked.url, memory=UnconstrainedMemory())


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


def task(output):
    return output.event[0]


def state(output):
    return task(output).status.state.value


def text(holders):
    return "".join(part.root.text for holder in holders for part in holder.parts)


if __name__ == "__main__":
    asyncio.run(report(Checks()))
