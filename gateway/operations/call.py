"""What an operation is called with, and the stream that it may return. Law: no envelope and no HTTP."""

from collections.abc import AsyncIterator, Callable
from typing import Protocol

import msgspec

from gateway.a2a.draft_1_1 import numbered
from gateway.a2a.errors import A2AError, Busy
from gateway.a2a.model import Task
from gateway.a2a.tool_calls import Rendering, rendering
from gateway.a2a.wire import v1_1
from gateway.a2a.wire.v0_3 import json_rpc
from gateway.core.agents import Agent
from gateway.engine.turn_run import TurnRun
from gateway.ledger.events import Frame
from gateway.ledger.threads import Caller


class OperationCall(msgspec.Struct, frozen=True):
    """The caller of an operation, the agent, and the service parameters of the request.

    `extensions` are the activated extensions, which both the caller and the agent name. `named` are all extensions that
    the caller names; extensions of other vendors identify the kind of client. `trace` has the meaning that it has in Accept;
    `on_turn` is told of the turn that the request has brought or answered, `on_task` of the ids of the task and the context
    that a message is in, also where it is a repeated one, and `on_push` of a push configuration that came with a message and is
    stored: its id, its task and their context. `on_absent` is told that what is to be deleted was
    not there. `in_list` is the number of bytes that a task takes in a list; None: about as many as it is stored in.
    """

    agent: Agent
    caller: Caller
    extensions: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()
    idempotency_key: str | None = None
    last_event_id: int | None = None
    version: str = "1.0"
    in_list: Callable[[Task], int] | None = None
    trace: str | None = None
    on_turn: Callable[[TurnRun], None] | None = None
    on_task: Callable[[str, str], None] | None = None
    on_push: Callable[[str, str, str], None] | None = None
    on_absent: Callable[[], None] | None = None

    @property
    def rendering(self) -> Rendering:
        """What the caller sees of tool calls."""
        return rendering(self.agent.policies.tool_calls, self.caller.principal, self.named)

    @property
    def speaks_0_3(self) -> bool:
        return self.version == json_rpc.VERSION

    @property
    def shows_generations(self) -> bool:
        """Whether tasks have generations in the caller's version."""
        return self.version == v1_1.VERSION

    def shown(self, task: Task, number: int) -> Task:
        """The task as the caller's version has it. `number` is that of its latest event."""
        return numbered(task, number) if self.shows_generations else task


def draining() -> A2AError:
    """Nothing was done, because the process is about to end."""
    return Busy("The gateway is shutting down; try again.", retry_after=1)


class EventStream(Protocol):
    """The events of one task. Iterating gives batches of frames and ends when the stream closes.

    `may_end_at` is the number of the first event that it can end with, 0 where that is any: what asks before it has been
    answered.
    """

    @property
    def may_end_at(self) -> int: ...

    def __aiter__(self) -> AsyncIterator[list[Frame]]: ...

    async def aclose(self) -> None: ...
