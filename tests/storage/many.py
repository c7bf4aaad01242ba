"""A ledger with many contexts and one long task, and readers that count what is read."""

from typing import Any

from msgspec.structs import replace

from gateway.a2a.model import Part, TaskState
from gateway.ledger.calls import NewItem, NewToolCall
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.push import PutPushConfig
from gateway.ledger.states import ToolCallStatus, TurnStatus
from gateway.ledger.tasks import Append, EventRow
from gateway.ledger.threads import Caller, MarkHandleLost
from gateway.ports.conversation import AssistantItem, CallItem, OutputItem, ReasoningItem
from gateway.testing.ledger_points import ACCEPT, COMPLETE, FAIL, FINISH, PREPARE, PUT, THREAD, says
from storage.read.queries import Asked, Readers
from storage.statement import Query, Row

CONTEXTS = 5000
EVENTS = 2000
LONG = "9-long"
"""The name of the context with the long task, which is the latest."""

_UNIT = 250
"""Contexts of a commit."""


async def fill(ledger: Ledger, contexts: int = CONTEXTS, events: int = EVENTS) -> None:
    """Contexts `0-00000` and on, of 50 principals and 3 agents; every hundredth has failed, the last ten are open, ten are
    lost."""
    now = ledger.now()
    for first in range(0, contexts, _UNIT):
        every = range(first, min(first + _UNIT, contexts))
        await ledger.commit(*[point for number in every for point in _context(number, contexts, now)])
    await _long_task(ledger, events, now)


def _context(number: int, contexts: int, now: int) -> tuple[CommitPoint, ...]:
    name, at = f"0-{number:05}", now - (contexts - number) * 1000
    context, thread, task, turn, call = (f"{kind}-{name}" for kind in ("context", "thread", "task", "turn", "call"))
    place = {"thread": thread, "turn": turn, "task": task}
    agent = ("support", "notes", "search")[number % 3]
    accept = replace(
        ACCEPT,
        caller=Caller(f"principal-{number % 50}", "acme"),
        agent=agent,
        now=at,
        context_row=context,
        context_public=f"public-{name}",
        thread=replace(THREAD, id=thread, context=context, agent=agent),
        task=task,
        turn=turn,
        message=says(f"message {number}: " + "where is my order? " * 20),
        key=None,
        event=None,
    )
    prepare = replace(PREPARE, **place, service_call=call, now=at + 10, event=None)
    if number >= contexts - 10:
        return accept, prepare
    at_call = {"thread": thread, "turn": turn, "service_call": call, "now": at + 400}
    if number % 100 == 0:
        end = replace(FINISH, **place, events=None, status=TurnStatus.FAILED, failure_class="timed-out", now=at + 500)
        failed = replace(end, state=TaskState.FAILED)
        return accept, prepare, replace(FAIL, **at_call, items=()), failed, *_lost(thread, number, contexts)
    item = NewItem(AssistantItem((Part(text=f"answer {number}: " + "it is on its way. " * 20),)))
    complete = replace(COMPLETE, **at_call, handle_out=f"resp-{name}", items=(item,), tool_calls=(), first_at=at + 50)
    artifacts = b'[{"artifact":{"artifactId":"a","parts":[{"text":"%b"}]}}]' % (b"it is on its way. " * 20)
    return accept, prepare, complete, replace(FINISH, **place, events=None, artifacts=artifacts, now=at + 500)


def _lost(thread: str, number: int, contexts: int) -> tuple[CommitPoint, ...]:
    return (MarkHandleLost(thread, 1),) if number >= contexts - 1000 else ()


async def _long_task(ledger: Ledger, events: int, now: int) -> None:
    """A task of one turn with two calls and so many tool calls and events; its receiver has got none of them."""
    context, thread, task, turn = (f"{kind}-{LONG}" for kind in ("context", "thread", "task", "turn"))
    place = {"thread": thread, "turn": turn, "task": task}
    accept = replace(
        ACCEPT,
        caller=Caller("principal-1", "acme"),
        agent="support",
        now=now,
        context_row=context,
        context_public=f"public-{LONG}",
        thread=replace(THREAD, id=thread, context=context, agent="support"),
        task=task,
        turn=turn,
        key=None,
        event=None,
        last_event=0,
    )
    prepare = replace(PREPARE, **place, service_call="call-long", now=now, event=None)
    tools = tuple([_tool(number, now) for number in range(events)])
    items = [NewItem(ReasoningItem("so I search " * 50))]
    items += [NewItem(CallItem(tool.external_id, "search", tool.arguments), tool_call=tool.id) for tool in tools]
    items += [NewItem(OutputItem(tool.external_id, tool.outcome), tool_call=tool.id) for tool in tools]
    complete = replace(
        COMPLETE,
        thread=thread,
        turn=turn,
        service_call="call-long",
        handle_out="resp-long",
        items=tuple(items),
        tool_calls=tools,
        sent=(),
        now=now + 100,
    )
    put = PutPushConfig("acme", "principal-1", "support", replace(PUT.config, task=task), 10, now)
    await ledger.commit(accept, prepare, put, complete)
    line = b'{"statusUpdate":{"taskId":"%b","status":{"state":"TASK_STATE_WORKING","message":"%b"}}}' % (
        task.encode(),
        b"x" * 1000,
    )
    for number in range(1, events + 1):
        ledger.submit((Append(EventRow(task, number, number, line)),), lambda _: None)
    await ledger.commit(replace(FINISH, **place, events=None, last_event=events, now=now + 200))


def _tool(number: int, now: int) -> NewToolCall:
    arguments = '{"query":"%s"}' % ("order " * 100)
    return NewToolCall(
        f"tool-{number:05}", number, f"fc-{number:05}", "search", arguments, "backend", ToolCallStatus.COMPLETED,
        {"found": "y" * 1000}, asked_at=now, started_at=now + 1, ended_at=now + 80,
    )  # fmt: skip


class CountingReaders:
    """The readers of a ledger. Counts the queries, the rows and the characters that they have read."""

    def __init__(self, readers: Readers) -> None:
        self._readers = readers
        self.queries = self.rows = self.characters = 0

    async def scan(self, query: Query, values: dict[str, Any]) -> list[Row]:
        [rows] = await self.scan_all((query, values))
        return rows

    async def scan_all(self, *asked: Asked) -> list[list[Row]]:
        found = await self._readers.scan_all(*asked)
        self.queries += len(asked)
        self.rows += sum(map(len, found))
        self.characters += sum(len(value) for rows in found for row in rows for value in row if isinstance(value, str))
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._readers, name)
