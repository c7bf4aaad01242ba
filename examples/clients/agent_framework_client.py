"""Talks to an agent as an agent of Microsoft's Agent Framework. Needs: pip install --pre agent-framework-a2a.

python examples/clients/agent_framework_client.py http://127.0.0.1:8080/a2a/trips "What do I pack?" "Oslo"
"""

import asyncio
import sys

import httpx
from a2a.client import A2ACardResolver
from agent_framework import AgentSession
from agent_framework_a2a import A2AAgent


async def main(agent: str, texts: list[str]) -> None:
    async with httpx.AsyncClient(timeout=httpx.Timeout(10, read=60)) as http:
        card = await A2ACardResolver(http, agent).get_agent_card()
        remote = A2AAgent(agent_card=card, http_client=http)
        # The session goes on with its context, and with a task that waits.
        session = AgentSession()
        for text in texts:
            response = await remote.run(text, session=session)
            # Behind the answer comes a message for each artifact beside it.
            print(response.messages[0].text or "".join(request.text for request in response.user_input_requests))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
