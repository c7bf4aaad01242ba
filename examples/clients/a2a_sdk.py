"""Talks to an agent with the official client. Needs: pip install 'a2a-sdk>=1.3'.

python examples/clients/a2a_sdk.py http://127.0.0.1:8080/a2a/trips "What do I pack?" "Oslo"
"""

import asyncio
import sys
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import Message, Part, Role, SendMessageRequest, TaskState

WAITS = (TaskState.TASK_STATE_INPUT_REQUIRED, TaskState.TASK_STATE_AUTH_REQUIRED)


async def main(agent: str, texts: list[str]) -> None:
    async with httpx.AsyncClient(timeout=httpx.Timeout(10, read=60)) as http:
        card = await A2ACardResolver(http, agent).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create(card)
        context, task = "", ""
        for text in texts:
            message = Message(message_id=str(uuid4()), role=Role.ROLE_USER, parts=[Part(text=text)])
            # One context is one conversation; the task is named only while it waits for this answer.
            message.context_id, message.task_id = context, task
            async for event in client.send_message(SendMessageRequest(message=message)):
                if event.HasField("task"):
                    context, task = event.task.context_id, event.task.id
                elif event.HasField("artifact_update"):
                    print("".join(part.text for part in event.artifact_update.artifact.parts), end="", flush=True)
                elif event.HasField("status_update"):
                    status = event.status_update.status
                    if status.state in WAITS:
                        print("".join(part.text for part in status.message.parts), end="")
                    else:
                        task = "" if status.state == TaskState.TASK_STATE_COMPLETED else task
            print()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
