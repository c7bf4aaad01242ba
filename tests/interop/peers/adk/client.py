"""Google ADK in front of one agent: `client.py CARD_URL TEXT...` sends the texts in one session, one after another.

`--whole` asks without streaming. Prints one JSON line for each event that the runner yields, and one for each that the
session remembers at the end.
"""
# mypy: ignore-errors
# The package it imports is absent from the project's environment on purpose.

import asyncio
import json
import sys

import httpx
from a2a.client import ClientConfig, ClientFactory
from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.events.event import Event
from google.adk.runners import InMemoryRunner
from google.genai import types


def line(where: str, event: Event) -> None:
    parts = (event.content.parts or []) if event.content else []
    calls = [part.function_call for part in parts if part.function_call]
    responses = [part.function_response for part in parts if part.function_response]
    print(
        json.dumps(
            {
                "where": where,
                "author": event.author,
                "partial": bool(event.partial),
                "error": event.error_message,
                "text": "".join(part.text or "" for part in parts if not part.thought),
                "thoughts": [part.text for part in parts if part.thought and part.text],
                "calls": [{"id": call.id, "name": call.name, "args": call.args} for call in calls],
                "responses": [{"id": one.id, "name": one.name, "response": one.response} for one in responses],
            }
        )
    )


async def talk(card: str, texts: list[str], *, streaming: bool) -> None:
    async with httpx.AsyncClient(timeout=30, trust_env=False) as http:
        factory = ClientFactory(ClientConfig(streaming=streaming, httpx_client=http))
        agent = RemoteA2aAgent(name="remote", agent_card=card, a2a_client_factory=factory)
        runner = InMemoryRunner(agent=agent, app_name="app")
        session = await runner.session_service.create_session(app_name="app", user_id="user")
        for text in texts:
            message = types.Content(role="user", parts=[types.Part(text=text)])
            async for event in runner.run_async(user_id="user", session_id=session.id, new_message=message):
                line("stream", event)
        kept = await runner.session_service.get_session(app_name="app", user_id="user", session_id=session.id)
        for event in kept.events if kept else ():
            line("session", event)


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--whole"]
    asyncio.run(talk(arguments[0], arguments[1:], streaming="--whole" not in sys.argv))
