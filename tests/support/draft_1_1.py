"""Calls of the draft of A2A 1.1."""

from typing import Any

from msgspec.structs import replace

from gateway.a2a.draft_1_1 import ConditionalConfiguration, ConditionalMessageRequest, NumberedTask
from gateway.a2a.model import Message, Task
from gateway.operations.call import OperationCall
from tests.support.core import Core, message


def draft(core: Core, principal: str = "ada", **more: Any) -> OperationCall:
    return replace(core.call(principal, **more), version="1.1")


def generation_of(task: Task | None) -> int:
    assert isinstance(task, NumberedTask)
    return int(task.generation)


def conditional(said: Message, generation: int, *, at_once: bool = False) -> ConditionalMessageRequest:
    configuration = ConditionalConfiguration(if_generation_match=generation, return_immediately=at_once)
    return ConditionalMessageRequest(message=said, configuration=configuration)


async def send_if(core: Core, generation: int, text: str, call: OperationCall | None = None, **where: Any) -> Task:
    """The task that a message for one generation leads to."""
    request = conditional(message(text, **where), generation)
    answer = await core.operations.send_message(call or draft(core), request)
    assert answer.task is not None
    return answer.task
