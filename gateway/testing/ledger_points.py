"""Commit points of one conversation, to be changed with `replace`, and all that can be read of it. Law: it knows no store."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from msgspec.structs import replace

from gateway.a2a.model import Message, Part, Role, TaskState
from gateway.ledger.calls import Complete, Fail, NameCall, NewItem, NewToolCall, Prepare
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.push import PushConfig, PutPushConfig
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus, TurnStatus
from gateway.ledger.tasks import Append, EventRow, Finish, PageLimits, TaskFilter, TaskOwner
from gateway.ledger.threads import Caller, ThreadRecord
from gateway.ledger.turns import Accept, IdempotencyKey
from gateway.ports.conversation import AssistantItem, CallItem, HandleKind, OutputItem, StorageOwner

Opener = Callable[[], AbstractAsyncContextManager[Ledger]]
"""Opens one and the same database each time, as a process of its own does."""

ADA = Caller("ada", "acme")

THREAD = ThreadRecord(
    id="thread-1",
    context="context-1",
    agent="echo",
    epoch=1,
    owner=StorageOwner.BACKEND,
    handle_kind=HandleKind.ROTATING,
    handle=None,
    generation=0,
    adapter_state=None,
)


def says(text: str, role: Role = Role.USER) -> Message:
    return Message(message_id="m", role=role, parts=(Part(text=text),))


ACCEPT = Accept(
    caller=ADA,
    agent="echo",
    now=1000,
    context_row="context-1",
    context_public="public-1",
    thread=THREAD,
    new_thread=True,
    task="task-1",
    new_task=True,
    visible=True,
    turn="turn-1",
    message=says("hi"),
    digest="digest-1",
    key=IdempotencyKey("header", "key-1"),
    event=EventRow("task-1", 1, 1, b'{"n":1}'),
    last_event=1,
    process="process-1",
)

FOLLOW_UP = replace(
    ACCEPT,
    now=2000,
    context_public=None,
    new_thread=False,
    new_task=False,
    turn="turn-2",
    message=says("more"),
    digest="digest-2",
    key=None,
    event=EventRow("task-1", 2, 2, b'{"n":2}'),
    last_event=2,
)

PREPARE = Prepare(
    thread="thread-1",
    generation=0,
    holder="process-1",
    lease_until=9000,
    turn="turn-1",
    task="task-1",
    service_call="call-1",
    round=0,
    attempt=0,
    handle_in=None,
    now=1100,
    event=EventRow("task-1", 2, 2, b'{"n":2}'),
)

COMPLETE = Complete(
    thread="thread-1",
    generation=1,
    turn="turn-1",
    service_call="call-1",
    handle_in=None,
    handle_out="resp-1",
    state={"seen": 1},
    usage={"tokens": 7},
    items=(
        NewItem(CallItem("fc-1", "add", "{}"), provider_id="item-1", tool_call="tool-1"),
        NewItem(OutputItem("fc-1", ""), tool_call="tool-1"),
        NewItem(AssistantItem((Part(text="hello"),))),
    ),
    tool_calls=(NewToolCall("tool-1", 0, "fc-1", "add", "{}", "backend", ToolCallStatus.COMPLETED, None),),
    sent=(1,),
    now=1200,
)

FAIL = Fail(
    thread="thread-1",
    generation=1,
    turn="turn-1",
    service_call="call-1",
    status=ServiceCallStatus.FAILED,
    error_class="timed-out",
    items=(NewItem(AssistantItem((Part(text="hel"),)), replayable=False),),
    now=1200,
)

APPEND = Append(EventRow("task-1", 3, 5, b'{"n":3}\n{"n":4}\n{"n":5}'))

FINISH = Finish(
    task="task-1",
    turn="turn-1",
    thread="thread-1",
    status=TurnStatus.COMPLETED,
    failure_class=None,
    state=TaskState.COMPLETED,
    message=None,
    events=EventRow("task-1", 6, 6, b'{"n":6}'),
    last_event=6,
    artifacts=b'[{"artifact":{"artifactId":"a","parts":[]}}]',
    messages=b"[]",
    usage=None,
    visible=True,
    now=1300,
)

PUT = PutPushConfig(
    tenant=ADA.tenant,
    principal=ADA.principal,
    agent="echo",
    config=PushConfig("task-1", "config-1", "1.0", "https://hook.example/", "hook.example", "Bearer", b"\x00sealed"),
    most=10,
    now=500,
)

FIRST_TURN: tuple[CommitPoint, ...] = (ACCEPT, PREPARE, NameCall("call-1", "resp-1"), COMPLETE, APPEND, FINISH)
"""The whole first turn."""

OTHER_THREAD = replace(
    ACCEPT,
    agent="other",
    context_public=None,
    thread=replace(THREAD, id="thread-2", agent="other"),
    task="task-9",
    turn="turn-9",
    key=None,
    event=None,
)
"""The same context with another agent."""

ELSEWHERE = replace(
    ACCEPT,
    context_row="context-2",
    context_public="public-2",
    thread=replace(THREAD, id="thread-2", context="context-2"),
    task="task-9",
    turn="turn-9",
    key=None,
    event=None,
)
"""Another context of the same caller."""


def numbered(number: int) -> tuple[Accept, Prepare, Complete]:
    """The first turn of a context of its own, with a tool call that the gateway is to run."""
    context, thread, task, turn = (f"{word}-{number}" for word in ("context", "thread", "task", "turn"))
    call, tool = f"call-{number}", f"tool-{number}"
    return (
        replace(
            ACCEPT,
            context_row=context,
            context_public=f"public-{number}",
            thread=replace(THREAD, id=thread, context=context),
            task=task,
            turn=turn,
            key=None,
            event=None,
        ),
        replace(PREPARE, thread=thread, task=task, turn=turn, service_call=call, event=None),
        replace(
            COMPLETE,
            thread=thread,
            turn=turn,
            service_call=call,
            items=(NewItem(CallItem("fc-1", "add", "{}"), tool_call=tool),),
            tool_calls=(NewToolCall(tool, 0, "fc-1", "add", "{}", "gateway", ToolCallStatus.ANNOUNCED, None),),
        ),
    )


async def everything(ledger: Ledger) -> dict[str, object]:
    """All that the port tells of these rows."""
    found: dict[str, object] = {
        "page": await ledger.tasks(ADA, "echo", TaskFilter(), PageLimits(100, 2**30, numbers=True)),
        "open": [await ledger.open_turns(context) for context in ("context-1", "context-2")],
        "unfinished": [await ledger.unfinished_turns(now) for now in (0, 9001, 10**12)],
        "cancels": [await ledger.cancel_requests(process) for process in ("process-1", "process-2")],
        "aged": await ledger.aged_contexts(10**12, "", 100),
        "purges": [await ledger.purge_pending(context) for context in ("context-1", "context-2")],
        "owner": await ledger.next_owner(TaskOwner()),
        "deletions": await ledger.deletions(100),
        "withdrawals": await ledger.next_withdrawals(100),
        "keys": await ledger.api_keys(),
        "pushes": await ledger.push_statuses(ADA.tenant, ADA.principal),
        "replay": await ledger.replay(ADA, "echo", IdempotencyKey("header", "key-1")),
    }
    for agent in ("echo", "other"):
        for context in ("public-1", "public-2"):
            found[f"{context} of {agent}"] = await ledger.context(ADA, context, agent)
        for task in ("task-1", "task-2", "task-9"):
            found[f"{task} of {agent}"] = await ledger.whole_task(ADA, agent, task)
    for task in ("task-1", "task-2", "task-9"):
        found[f"log of {task}"] = await ledger.events(task, 0)
        found[f"question of {task}"] = (await ledger.waiting_turn(task), await ledger.asked_calls(task))
    for thread in ("thread-1", "thread-2"):
        found[thread] = await ledger.thread(thread)
        found[f"history of {thread}"] = await ledger.history(thread, unsent_only=False)
        found[f"call of {thread}"] = (await ledger.unknown_call(thread), await ledger.waiting_task(thread))
    for turn in ("turn-1", "turn-2", "turn-9"):
        found[f"calls of {turn}"] = (await ledger.latest_call(turn), await ledger.open_tool_calls(turn))
        found[f"base of {turn}"] = (await ledger.turn_base(turn), await ledger.process_of(turn))
    return found
