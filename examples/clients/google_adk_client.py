"""Talks to an agent as a remote agent of Google ADK. Needs: pip install 'google-adk[a2a]'.

python examples/clients/google_adk_client.py http://127.0.0.1:8080/a2a/trips "I go to Oslo" "And tomorrow?"
"""

import asyncio
import sys

from google.adk.agents.remote_a2a_agent import RemoteA2aAgent
from google.adk.runners import InMemoryRunner
from google.genai import types


async def main(agent: str, texts: list[str]) -> None:
    remote = RemoteA2aAgent(name="trips", agent_card=f"{agent}/.well-known/agent-card.json")
    runner = InMemoryRunner(agent=remote, app_name="app")
    # The session goes on with the context of its last answer.
    session = await runner.session_service.create_session(app_name="app", user_id="ada")
    for text in texts:
        message = types.Content(role="user", parts=[types.Part(text=text)])
        async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=message):
            if event.error_message:
                sys.exit(event.error_message)
            for part in event.content.parts if event.content else []:
                print("" if part.thought else part.text or "", end="", flush=True)
        print()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
