"""Talks to an agent as an agent of Strands. Needs: pip install 'strands-agents[a2a]'.

python examples/clients/strands_client.py http://127.0.0.1:8080/a2a/trips "I go to Oslo"
"""

import asyncio
import sys

from strands.agent.a2a_agent import A2AAgent


async def main(agent: str, texts: list[str]) -> None:
    remote = A2AAgent(endpoint=agent)
    for text in texts:  # each is a conversation of its own
        result = await remote.invoke_async(text)
        print("".join(block["text"] for block in result.message["content"]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
