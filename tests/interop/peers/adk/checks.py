"""Google ADK's `RemoteA2aAgent` in front of one agent, by its runner: a session goes on with its context."""
# mypy: ignore-errors

import asyncio
import base64
import json

import httpx
from a2a.client import ClientConfig, ClientFactory
from google.adk.a2a.converters.part_converter import A2A_DATA_PART_END_TAG, A2A_DATA_PART_START_TAG
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types
from reporting import asked, report


class Checks:
    def __init__(self, http):
        self.http = http

    async def card(self):
        chat = await self._chat()
        await chat.say("one")
        return {"name": None, "description": chat.agent.description, "skills": None, "streaming": None}

    async def send(self):
        (event,) = await (await self._chat()).say("one")
        return {"text": text(event), "state": state(event)}

    async def stream(self):
        events = await (await self._chat(streaming=True)).say("one two three")
        return {"pieces": [text(event) for event in events if text(event)], "state": state(events[-1])}

    async def turns(self):
        chat = await self._chat()
        (first,), (second,) = await chat.say("one"), await chat.say("two")
        return {
            "texts": [text(first), text(second)],
            "same_context": told(first)["contextId"] == told(second)["contextId"],
            "same_task": told(first)["id"] == told(second)["id"],
        }

    async def question(self):
        chat = await self._chat()
        (waiting,) = await chat.say("ask")
        (call,) = waiting.get_function_calls()
        reply = types.FunctionResponse(id=call.id, name=call.name, response={"result": "Oslo"})
        (answered,) = await chat.send(types.Part(function_response=reply))
        return {
            "question": call.args["input_required"],
            "waiting": state(waiting),
            "text": text(answered),
            "state": state(answered),
            "same_task": told(waiting)["id"] == told(answered)["id"],
        }

    async def sent(self):
        chat = await self._chat()
        (event,) = await chat.send(types.Part(text="sent"), *(part_of(part) for part in asked.parts))
        return {"echo": text(event)}

    async def given(self):
        (event,) = await (await self._chat()).say("given")
        return {"parts": [shown(part) for part in event.content.parts]}

    async def failure(self):
        (event,) = await (await self._chat()).say("fail")
        return {"state": state(event), "message": text(event)}

    async def refusal(self):
        chat = await self._chat(streaming=True)
        (event,) = await chat.send(types.Part(inline_data=types.Blob(data=b"x", mime_type="image/png")))
        return {"error": event.error_message}

    async def _chat(self, *, streaming=False):
        config = ClientConfig(streaming=streaming, httpx_client=self.http, supported_protocol_bindings=[asked.transport])
        card = f"{asked.url}/.well-known/agent-card.json"
        agent = RemoteA2aAgent(name="remote", agent_card=card, a2a_client_factory=ClientFactory(config))
        runner = InMemoryRunner(agent=agent, app_name="app")
        session = await runner.session_service.create_session(app_name="app", user_id="user")
        return Chat(agent, runner, session.id)


class Chat:
    def __init__(self, agent, runner, session):
        self.agent, self.runner, self.session = agent, runner, session

    async def say(self, said):
        return await self.send(types.Part(text=said))

    async def send(self, *parts):
        message = types.Content(role="user", parts=parts)
        return [event async for event in self.runner.run_async(user_id="user", session_id=self.session, new_message=message)]


def part_of(part):
    if "raw" in part:
        raw = base64.b64decode(part["raw"])
        return types.Part(inline_data=types.Blob(data=raw, mime_type=part["mediaType"], display_name=part["filename"]))
    if "url" in part:
        return types.Part(file_data=types.FileData(file_uri=part["url"], mime_type=part["mediaType"], display_name=part["filename"]))
    data = json.dumps(part["data"]).encode()
    tagged = A2A_DATA_PART_START_TAG + data + A2A_DATA_PART_END_TAG
    return types.Part(inline_data=types.Blob(data=tagged, mime_type="text/plain"))


def shown(part):
    """The part as A2A 1.0 writes it."""
    if part.file_data:
        return {"url": part.file_data.file_uri, "filename": part.file_data.display_name, "mediaType": part.file_data.mime_type}
    content = part.inline_data.data
    if content.startswith(A2A_DATA_PART_START_TAG):
        return {"data": json.loads(content.removeprefix(A2A_DATA_PART_START_TAG).removesuffix(A2A_DATA_PART_END_TAG))}
    about = {"filename": part.inline_data.display_name, "mediaType": part.inline_data.mime_type}
    return {"raw": base64.b64encode(content).decode(), **about}


def told(event):
    return event.custom_metadata["a2a:response"]


def state(event):
    return told(event)["status"]["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")


def text(event):
    return "".join(part.text or "" for part in (event.content.parts or [])) if event.content else ""


async def main():
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        await report(Checks(http))


if __name__ == "__main__":
    asyncio.run(main())
