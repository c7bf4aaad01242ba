"""Talks to an agent with the official client of A2A 0.3. Needs: pip install 'a2a-sdk>=0.3.26,<1'.

python examples/clients/a2a_sdk_0_3.py http://127.0.0.1:8080/a2a/trips "What do I pack?" "Oslo"
"""

import asyncio
import sys
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, TaskArtifactUpdateEvent, TaskState, TaskStatusUpdateEvent, TextPart

WAITS = (TaskState.input_required, TaskState.auth_required)


async def main(agent: str, texts: list[str]) -> None:
    async with httpx.AsyncClient(timeout=httpx.Timeout(10, read=60)) as http:
        card = await A2ACardResolver(http, agent).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create(card)
        context, task = None, None
        for text in texts:
            message = Message(message_id=str(uuid4()), role=Role.user, parts=[Part(root=TextPart(text=text))])
            # One context is one conversation; the task is named only while it waits for this answer.
            message.context_id, message.task_id = context, task
            async for told, update in client.send_message(message):
                context, task = told.context_id, told.id
                if isinstance(update, TaskArtifactUpdateEvent):
                    show(update.artifact.parts)
                elif isinstance(update, TaskStatusUpdateEvent) and update.status.state in WAITS:
                    show(update.status.message.parts)
                elif isinstance(update, TaskStatusUpdateEvent) and update.final:
                    task = None
            print()


def show(parts: list[Part]) -> None:
    print("".join(part.root.text for part in parts if isinstance(part.root, TextPart)), end="", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
