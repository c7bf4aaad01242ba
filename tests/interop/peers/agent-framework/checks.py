"""Agent Framework's `A2AAgent` in front of one agent: a session goes on with its context, and with a task that waits."""
# mypy: ignore-errors

import asyncio
import base64
import json

import httpx
from a2a.client import A2ACardResolver
from a2a.types import TaskState
from a2a.utils.errors import A2AError
from agent_framework import AgentSession, Content, Message
from agent_framework_a2a import A2AAgent, A2AContinuationToken
from reporting import asked, report


class Checks:
    def __init__(self, about, agent):
        self.about, self.agent = about, agent

    async def card(self):
        return {
            "name": self.agent.name,
            "description": self.agent.description,
            "skills": [skill.id for skill in self.about.skills],
            "streaming": self.about.capabilities.streaming,
        }

    async def send(self):
        session = AgentSession()
        response = await self.agent.run("one", session=session)
        return {"text": response.text, "state": state(session)}

    async def stream(self):
        session = AgentSession()
        updates = [update async for update in self.agent.run("one two three", stream=True, session=session)]
        return {"pieces": [update.text for update in updates if update.text], "state": state(session)}

    async def turns(self):
        session = AgentSession()
        first = await self.agent.run("one", session=session)
        before = dict(session.service_session_id)
        second = await self.agent.run("two", session=session)
        after = session.service_session_id
        return {
            "texts": [response.text for response in (first, second)],
            "same_context": before["context_id"] == after["context_id"],
            "same_task": before["task_id"] == after["task_id"],
        }

    async def question(self):
        session = AgentSession()
        waiting = await self.agent.run("ask", session=session)
        (question,) = waiting.user_input_requests
        before, waits = dict(session.service_session_id), state(session)
        answered = await self.agent.run("Oslo", session=session)
        return {
            "question": question.text,
            "waiting": waits,
            "text": answered.text,
            "state": state(session),
            "same_task": before["task_id"] == session.service_session_id["task_id"],
        }

    async def sent(self):
        contents = [Content.from_text("sent"), *(content(part) for part in asked.parts if "data" not in part)]
        return {"echo": (await self.agent.run(Message("user", contents))).text}

    async def given(self):
        response = await self.agent.run("given")
        return {"parts": [shown(content) for message in response.messages for content in message.contents]}

    async def failure(self):
        session = AgentSession()
        updates = [update async for update in self.agent.run("fail", stream=True, session=session)]
        return {"state": state(session), "message": "".join(update.text for update in updates)}

    async def error(self):
        try:
            await self.agent.poll_task(A2AContinuationToken(task_id="unknown", context_id="unknown"))
        except A2AError as error:
            return {"error": type(error).__name__}
        return {"error": None}

    async def refusal(self):
        session = AgentSession(service_session_id={"context_id": "", "task_id": "unknown", "task_state": WAITING})
        try:
            [update async for update in self.agent.run("one", stream=True, session=session)]
        except A2AError as error:
            return {"error": type(error).__name__}
        return {"error": None}


WAITING = TaskState.TASK_STATE_INPUT_REQUIRED


def content(part):
    if "raw" in part:
        return Content.from_data(base64.b64decode(part["raw"]), part["mediaType"])
    return Content.from_uri(part["url"], media_type=part["mediaType"])


def shown(content):
    """The content as A2A 1.0 writes a part; data has become text."""
    if content.type == "text":
        return {"data": json.loads(content.text)}
    about = {"mediaType": content.media_type}
    return {"url": content.uri, **about} if content.type == "uri" else {"raw": content.uri.partition(",")[2], **about}


def state(session):
    name = TaskState.Name(session.service_session_id["task_state"])
    return name.removeprefix("TASK_STATE_").lower().replace("_", "-")


async def main():
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        about = await A2ACardResolver(http, asked.url).get_agent_card()
        agent = A2AAgent(agent_card=about, http_client=http, supported_protocol_bindings=[asked.transport])
        await report(Checks(about, agent))


if __name__ == "__main__":
    asyncio.run(main())
