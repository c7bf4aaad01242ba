"""Lets an agent of CrewAI delegate to an agent. Needs: pip install 'crewai[a2a]'.

python examples/clients/crewai_client.py http://127.0.0.1:8080/a2a/trips "I go to Oslo"
"""

import json
import sys
from contextlib import redirect_stdout
from typing import Any

from crewai import Agent, Task
from crewai.a2a import A2AClientConfig
from crewai.events.event_bus import crewai_event_bus
from crewai.events.types.a2a_events import A2ADelegationCompletedEvent
from crewai.llms.base_llm import BaseLLM


class Delegates(BaseLLM):
    """Stands in for a model: gives its message to the other agent, and is content with what comes."""

    card: str
    message: str

    def call(self, *_: Any, **__: Any) -> str:
        message, self.message = self.message, ""
        return json.dumps({"a2a_ids": [self.card], "message": message or "done", "is_a2a": bool(message)})


def main(agent: str, text: str) -> None:
    card = f"{agent}/.well-known/agent-card.json"
    planner = Agent(
        role="planner",
        goal="plan a trip",
        backstory="asks who knows",
        llm=Delegates(model="script", card=card, message=text),
        a2a=A2AClientConfig(endpoint=card),
    )
    told = []
    crewai_event_bus.on(A2ADelegationCompletedEvent)(lambda _, event: told.append(event.result))
    with redirect_stdout(sys.stderr):  # where CrewAI draws what it does
        planner.execute_task(Task(description=text, expected_output="what to pack", agent=planner))
        crewai_event_bus.flush()
    print(*told)


if __name__ == "__main__":
    main(*sys.argv[1:])
