"""A service asks whether it may run its own tool: from the question to the caller's decision and the next message."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import AsyncExitStack

import pytest

from adapters.openai.responses import adapter as openai_responses
from gateway.a2a.model import Message, Part, Role, SendMessageRequest, Task, TaskState
from gateway.core.agents import Agent
from gateway.testing.serving import serve
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Ask, Conversation, Say, ServerTool, Step, in_rounds
from tests.support.core import CARD, Core, query
from tests.support.core import answer as shown


def outcome(conversation: Conversation) -> Iterable[Step]:
    for question, approved in conversation.decisions.items():
        if approved:
            yield ServerTool("mcp", "pay", {"to": "a"}, "paid", question=question)
    yield Say(f"{conversation.decisions}")


ASKS = in_rounds([Ask("pay", {"to": "a"}, "mcpr_1"), Ask("pay", {"to": "b"}, "mcpr_2")], outcome)


class Asking:
    """A task that waits for two decisions."""

    def __init__(self, core: Core, server: ResponsesServer, task: Task) -> None:
        self.core, self.server, self.task = core, server, task
        self.calls = [row[0] for row in query(core.path, "SELECT id FROM tool_call ORDER BY sequence")]

    async def decide(self, *calls: str, approved: bool) -> Task:
        data = {"approvals": [{"id": call, "approved": approved} for call in calls]}
        message = Message(
            message_id=f"m {calls}",
            context_id=self.task.context_id,
            task_id=self.task.id,
            role=Role.USER,
            parts=(Part(data=data),),
        )
        answer = await self.core.operations.send_message(self.core.call(), SendMessageRequest(message=message))
        assert answer.task is not None
        return answer.task

    def sent(self) -> list[bool]:
        """The decisions in the last request."""
        items = self.server.requests[-1]["input"]
        return [item["approve"] for item in items if item["type"] == "mcp_approval_response"]


@pytest.fixture(params=["backend", "gateway"])
async def asking(core: Core, request: pytest.FixtureRequest) -> AsyncGenerator[Asking, None]:
    server = ResponsesServer(ASKS)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(serve(server.app))
        values = {"model": "m", "base_url": f"{url}/v1", "history": {"owner": request.param}}
        adapter = openai_responses.factory.build(openai_responses.factory.settings.model_validate(values))
        stack.push_async_callback(adapter.aclose)
        core.default = Agent(name="payer", card=CARD, adapter=adapter)
        core.agents.append(core.default)
        task = await core.send("Pay")
        assert task.status.state is TaskState.INPUT_REQUIRED
        yield Asking(core, server, task)


async def test_a_yes_lets_the_service_run_it(asking: Asking) -> None:
    task = await asking.decide(*asking.calls, approved=True)
    assert (task.status.state, shown(task)) == (TaskState.COMPLETED, "{'mcpr_1': True, 'mcpr_2': True}")
    assert asking.sent() == [True, True]


async def test_a_no_is_told_to_the_service(asking: Asking) -> None:
    task = await asking.decide(*asking.calls, approved=False)
    assert (task.status.state, shown(task)) == (TaskState.COMPLETED, "{'mcpr_1': False, 'mcpr_2': False}")
    assert asking.sent() == [False, False]


async def test_nothing_is_said_before_everything_is_decided(asking: Asking) -> None:
    first = await asking.decide(asking.calls[0], approved=True)
    assert (first.status.state, len(asking.server.requests)) == (TaskState.INPUT_REQUIRED, 1)
    second = await asking.decide(asking.calls[1], approved=False)
    assert (second.status.state, asking.sent()) == (TaskState.COMPLETED, [True, False])


async def test_a_message_instead_of_a_decision_is_a_no_where_the_service_waits_for_one(asking: Asking) -> None:
    asking.server.script = in_rounds([Say("Hello")])
    task = await asking.core.send("never mind", context=asking.task.context_id, task=asking.task.id)
    assert (task.status.state, shown(task)) == (TaskState.COMPLETED, "Hello")
    chained = asking.server.requests[-1]["store"]
    assert asking.sent() == ([False, False] if chained else [])
