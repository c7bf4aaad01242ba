"""Which context, thread and task a message belongs to. Law: everything is decided before the one commit that accepts the
message; a refusal stores nothing."""

from collections.abc import Callable

import msgspec

from gateway.a2a.errors import A2AError, TaskNotFound, UnsupportedOperation, echo, invalid
from gateway.a2a.model import INTERRUPTED, TERMINAL, Message
from gateway.core.agents import Agent
from gateway.core.ownership import can_serve, state_is_newer
from gateway.ledger.errors import Conflict
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import TaskRecord
from gateway.ledger.threads import ContextRecord, ThreadRecord
from gateway.operations.call import OperationCall
from gateway.ports.capabilities import CanNameHandle
from gateway.ports.conversation import HandleKind

_MOVES = {HandleKind.NONE: "is none", HandleKind.ROTATING: "moves", HandleKind.STATIC: "stays"}


class NewContext(msgspec.Struct, frozen=True):
    """A message that begins a new context. `public_id` is the id that the caller chose, if any."""

    public_id: str | None = None


class KnownContext(msgspec.Struct, frozen=True):
    """A message to an existing context. `task` is the task that the message continues, or None for a new task."""

    context: ContextRecord
    task: TaskRecord | None = None


class Waiting(msgspec.Struct, frozen=True):
    """The message goes to the task whose turn waits for its caller."""

    context: ContextRecord
    task: TaskRecord


class Occupied(msgspec.Struct, frozen=True):
    """The turn of another task of the context, `waiting`, waits for its caller."""

    context: ContextRecord
    waiting: str


Target = NewContext | KnownContext | Waiting | Occupied


async def target(ledger: Ledger, call: OperationCall, message: Message, runs_here: Callable[[str], bool]) -> Target:
    """`runs_here` says of the id of a task that its caller may know of it, although the ledger does not say so yet.

    Raises: TaskNotFound, UnsupportedOperation, InvalidParams.
    """
    for index, reference in enumerate(message.reference_task_ids or ()):
        task = await ledger.task(call.caller, call.agent.name, reference)
        if task is None or not (task.visible or runs_here(reference)):
            raise not_found(reference, f"message.referenceTaskIds[{index}]")
    if message.task_id:
        task = await ledger.task(call.caller, call.agent.name, message.task_id)
        if task is None or not (task.visible or runs_here(message.task_id)):
            raise not_found(message.task_id, "message.taskId")
        return await _of_task(ledger, call, message, task)
    if not message.context_id:
        return NewContext()
    context = await ledger.context(call.caller, message.context_id, call.agent.name)
    if context is None:
        if not call.agent.policies.client_context_ids_allowed:
            raise invalid(
                "message.contextId", f"{echo(message.context_id)} is no context of yours; leave it out for a new one"
            )
        return NewContext(message.context_id)
    if context.state != "open":
        raise UnsupportedOperation(f"The context {echo(message.context_id)} is {context.state}.")
    return _free(context)


async def _of_task(ledger: Ledger, call: OperationCall, message: Message, task: TaskRecord) -> Target:
    if message.context_id and message.context_id != task.context_id:
        raise invalid(
            "message.contextId",
            f"{echo(message.context_id)} is not the context of task {echo(task.id)}, which is {echo(task.context_id)}",
        )
    if task.state in TERMINAL:
        raise UnsupportedOperation(
            f"Task {echo(task.id)} has ended ({task.state}); send a message without taskId in the same context.",
            metadata={"taskId": task.id},
        )
    if task.state not in INTERRUPTED:
        raise UnsupportedOperation(
            f"Task {echo(task.id)} is still at work ({task.state}); wait for it, cancel it, or leave out taskId.",
            metadata={"taskId": task.id},
        )
    context = await ledger.context(call.caller, task.context_id, call.agent.name)
    if context is None:
        raise Conflict(f"the context of task {task.id!r} has gone")
    if context.waiting == task.id:
        return Waiting(context, task)
    return _free(context, task)


def not_found(task_id: str, field: str = "id") -> A2AError:
    return TaskNotFound("Task not found", metadata={"taskId": task_id[:100], "field": field})


def _free(context: ContextRecord, task: TaskRecord | None = None) -> KnownContext | Occupied:
    """Raises: UnsupportedOperation where a turn could not be ended, so that no later one of the context can begin."""
    if context.stuck is not None:
        raise UnsupportedOperation(
            f"Task {echo(context.stuck)} of this context cannot be brought to an end: cancel it, or start a new context.",
            metadata={"taskId": context.stuck},
        )
    return KnownContext(context, task) if context.waiting is None else Occupied(context, context.waiting)


# --- threads


def new_thread(agent: Agent, thread_id: str, context: str) -> ThreadRecord:
    ownership = agent.adapter.ownership
    return ThreadRecord(
        id=thread_id,
        context=context,
        agent=agent.name,
        epoch=1,
        owner=ownership.owner,
        handle_kind=ownership.handle,
        handle=None,
        generation=0,
        adapter_state=None,
    )


def check_owner(agent: Agent, thread: ThreadRecord) -> None:
    """Source: docs/state-model.md, scenario 29. Raises: UnsupportedOperation."""
    declared = agent.adapter.ownership
    if can_serve(declared, thread):
        return
    if declared.owner is thread.owner:
        raise UnsupportedOperation(
            f"This context goes on from an id that {_MOVES[thread.handle_kind]}, and the agent {agent.name!r} is now "
            f"set to go on from one that {_MOVES[declared.handle]}; start a new context."
        )
    raise UnsupportedOperation(
        f"This context's history is kept by the {thread.owner}, and the agent {agent.name!r} is now set to "
        f"have it kept by the {declared.owner}; start a new context."
    )


def check_version(agent: Agent, thread: ThreadRecord) -> None:
    """Raises: UnsupportedOperation for a thread that this version of the agent cannot read."""
    if state_is_newer(agent.adapter, thread):
        raise UnsupportedOperation(
            f"A newer version of the agent {agent.name!r} has worked on this context; it is left untouched."
        )


def check_named_handle(agent: Agent, message: Message, thread: ThreadRecord) -> None:
    """A caller may repeat the handle at which the conversation stands, and never choose one.

    Source: docs/state-model.md, scenario 26. Raises: InvalidParams for a conversation of the backend that is not the
    thread's.
    """
    if message.metadata is None or not isinstance(agent.adapter, CanNameHandle):
        return
    named = agent.adapter.named_handle(message)
    if named is not None and named != thread.handle:
        raise invalid(
            "message.metadata",
            f"{echo(named)} is not where this context stands; a context is continued by its contextId",
        )
