"""Talks to an agent as an agent of BeeAI. Needs: pip install 'beeai-framework[a2a]'.

python examples/clients/beeai_client.py http://127.0.0.1:8080/a2a/trips "I go to Oslo" "And tomorrow?"
"""

import asyncio
import sys

from beeai_framework.adapters.a2a.agents import A2AAgent
from beeai_framework.memory import UnconstrainedMemory


async def main(agent: str, texts: list[str]) -> None:
    # The agent goes on with the context of its last answer, and with a task that waits.
    remote = A2AAgent(url=agent, memory=UnconstrainedMemory())
    for text in texts:
        output = await remote.run(text)
        task, _ = output.event  # with all artifacts; `output.last_message` is the last one
        print("".join(part.root.text for one in task.artifacts for part in one.parts if part.root.kind == "text"))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
