"""CrewAI in front of one agent: an agent that delegates to it, with a script in the place of a model.

What the other agent said is what the events of the delegation tell.
"""
# mypy: ignore-errors

import asyncio
import json
import os

os.environ |= {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "CREWAI_TESTING": "true"}

from crewai import Agent, Task
from crewai.a2a import A2AClientConfig
from crewai.events.event_bus import crewai_event_bus
from crewai.events.types.a2a_events import (
    A2AAgentCardFetchedEvent,
    A2AArtifactReceivedEvent,
    A2ADelegationCompletedEvent,
    A2AResponseReceivedEvent,
)
from crewai.llms.base_llm import BaseLLM
from reporting import asked, report


ENDPOINT = f"{asked.url}/.well-known/agent-card.json"


class Script(BaseLLM):
    """Sends these messages to the agent, one after another, and is content with what comes."""

    messages: list[str]

    def call(self, *_, **__):
        said = {"message": self.messages.pop(0), "is_a2a": True} if self.messages else {"message": "done", "is_a2a": False}
        return json.dumps({"a2a_ids": [ENDPOINT], **said})


class Checks:
    async def card(self):
        events = await self._delegate("one")
        about = of(events, A2AAgentCardFetchedEvent)[0].agent_card
        return {
            "name": about["name"],
            "description": about["description"],
            "skills": [skill["id"] for skill in about["skills"]],
            "streaming": about["capabilities"]["streaming"],
        }

    async def send(self):
        (ended,) = of(await self._delegate("one"), A2ADelegationCompletedEvent)
        return {"text": ended.result, "state": ended.status}

    async def stream(self):
        events = await self._delegate("one two three")
        (ended,) = of(events, A2ADelegationCompletedEvent)
        return {"pieces": [event.size_bytes for event in of(events, A2AArtifactReceivedEvent)], "state": ended.status}

    async def turns(self):
        config = {}
        first, second = of(await self._delegate("one", "two", config=config), A2AResponseReceivedEvent)
        return {
            "texts": [first.response, second.response],
            "same_context": first.context_id == second.context_id,
            "same_task": len(config["reference_task_ids"]) == 1,
        }

    async def question(self):
        config = {}
        waiting, answered = of(await self._delegate("ask", "Oslo", config=config), A2ADelegationCompletedEvent)
        return {
            "question": waiting.error,
            "waiting": waiting.status,
            "text": answered.result,
            "state": answered.status,
            "same_task": len(config["reference_task_ids"]) == 1,
        }

    async def failure(self):
        (ended,) = of(await self._delegate("fail"), A2ADelegationCompletedEvent)
        return {"state": ended.status, "message": ended.error}

    async def refusal(self):
        (ended,) = of(await self._delegate("one", accepted_output_modes=["image/png"]), A2ADelegationCompletedEvent)
        return {"error": ended.error.split(": ")[1]}

    async def _delegate(self, *messages, config=None, **settings):
        """The events of one delegation, in their order; `config` gets the ids of the tasks that have ended."""
        events = []
        llm = Script(model="script", messages=list(messages))
        agent = Agent(role="r", goal="g", backstory="b", llm=llm, a2a=A2AClientConfig(endpoint=ENDPOINT, **settings))
        task = Task(description="d", expected_output="e", agent=agent)
        task.config = config
        with crewai_event_bus.scoped_handlers():
            for kind in KINDS:
                crewai_event_bus.on(kind)(lambda _, event: events.append(event))
            await agent.aexecute_task(task)
            crewai_event_bus.flush()
        return sorted(events, key=lambda event: event.emission_sequence)


KINDS = (
    A2AAgentCardFetchedEvent,
    A2AArtifactReceivedEvent,
    A2ADelegationCompletedEvent,
    A2AResponseReceivedEvent,
)


def of(events, kind):
    return [event for event in events if isinstance(event, kind)]


if __name__ == "__main__":
    asyncio.run(report(Checks()))
