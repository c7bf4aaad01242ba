"""Microsoft's client of Copilot Studio: `client.py URL TOKEN TEXT...`, for the environment that .ci/peers.sh makes. Prints a JSON
line for each activity, first of the start, then of each turn."""
# mypy: ignore-errors
# The packages it imports are absent from the project's environment on purpose.

import asyncio
import json
import sys

from microsoft_agents.copilotstudio.client import ConnectionSettings, CopilotClient


def show(turn, activity):
    print(json.dumps({"turn": turn, "type": activity.type, "text": activity.text, "id": activity.conversation.id}))


async def talk(url, token, *texts):
    client = CopilotClient(ConnectionSettings("", "", direct_connect_url=url), token)
    async for activity in client.start_conversation():
        show(0, activity)
    for turn, text in enumerate(texts, 1):
        async for activity in client.ask_question(text):
            show(turn, activity)


asyncio.run(talk(*sys.argv[1:]))
