"""Which context, thread and task a message belongs to. Law: everything is decided before the one commit that accepts it;
a refusal leaves nothing behind."""

import hashlib
from collections.abc import Sequence

import msgspec

from gateway.a2a.errors import (
    ContentTypeNotSupported,
    FieldViolation,
    TaskNotFound,
    UnsupportedOperation,
    echo,
    invalid,
)
from gateway.a2a.model import INTERRUPTED, TERMINAL, Message, Part, SendMessageRequest
from gateway.core.agents import Agent
from gateway.core.tools.answers import AG2_RESULTS
from gateway.core.tools.client_tools import AG2_SCHEMAS
from gateway.ledger.port import Ledger
from gateway.ledger.tasks import TaskRecord
from gateway.ledger.threads import ContextRecord, ThreadRecord
from gateway.ledger.turns import IdempotencyKey
from gateway.operations.api import OperationCall
from gateway.ports.capabilities import HandleNaming

_FOR_US = frozenset({AG2_SCHEMAS, AG2_RESULTS})

_canonical = msgspec.json.Encoder(order="sorted")


class Target(msgspec.Struct, frozen=True):
    """Where a message goes. `context` or `task` None: a new one."""

    context_public: str | None
    context: ContextRecord | None
    task: TaskRecord | None


def idempotency_key(call: OperationCall, message: Message) -> IdempotencyKey | None:
    """Source: state-model, scenario 107: asked for by header, or by the agent's policy for every messageId."""
    policy = call.agent.policies.idempotency
    if policy == "off":
        return None
    if call.idempotency_key is not None:
        return IdempotencyKey("header", call.idempotency_key)
    return IdempotencyKey("message_id", message.message_id) if policy == "message_id" else None


def digest(message: Message) -> str:
    """Of everything that was said: all of the message but its id."""
    content = msgspec.structs.replace(message, message_id="")
    return hashlib.sha256(_canonical.encode(content)).hexdigest()


async def target(ledger: Ledger, call: OperationCall, message: Message) -> Target:
    """Raises: TaskNotFound, UnsupportedOperation, InvalidParams."""
    for index, reference in enumerate(message.reference_task_ids or ()):
        task = await ledger.task(call.caller, call.agent.name, reference)
        if task is None or not task.visible:
            raise not_found(reference, f"message.referenceTaskIds[{index}]")
    if message.task_id:
        return await _of_task(ledger, call, message, message.task_id)
    if not message.context_id:
        return Target(None, None, None)
    context = await ledger.context(call.caller, message.context_id, call.agent.name)
    if context is None and not call.agent.policies.client_context_ids_allowed:
        raise invalid(
            "message.contextId", f"{echo(message.context_id)} is no context of yours; leave it out for a new one"
        )
    if context is not None and context.state != "open":
        raise UnsupportedOperation(f"The context {echo(message.context_id)} is {context.state}.")
    _check_goes_on(context)
    return Target(message.context_id, context, None)


async def _of_task(ledger: Ledger, call: OperationCall, message: Message, task_id: str) -> Target:
    task = await ledger.task(call.caller, call.agent.name, task_id)
    if task is None or not task.visible:
        raise not_found(task_id, "message.taskId")
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
    if context is None or context.waiting != task.id:
        _check_goes_on(context)
    return Target(task.context_id, context, task)


def _check_goes_on(context: ContextRecord | None) -> None:
    """Raises: UnsupportedOperation where nothing can go on behind a turn that nobody could end."""
    if context is not None and context.stuck is not None:
        raise UnsupportedOperation(
            f"Task {echo(context.stuck)} of this context cannot be brought to an end: cancel it, or start a new context.",
            metadata={"taskId": context.stuck},
        )


def not_found(task_id: str, field: str = "id") -> TaskNotFound:
    return TaskNotFound("Task not found", metadata={"taskId": task_id[:100], "field": field})


# --- content types


def check_content(agent: Agent, request: SendMessageRequest) -> None:
    """Raises: ContentTypeNotSupported for a part that the card does not take, or when no answer would be accepted."""
    for index, part in enumerate(request.message.parts):
        kind = media_type(part)
        if _is_for_us(request.message, part):
            continue
        if not _offered(kind, agent.input_modes):
            raise _unsupported(f"message.parts[{index}]", f"{echo(kind)} is not taken", agent.input_modes)
    accepted = (request.configuration.accepted_output_modes if request.configuration else None) or ()
    if accepted and not any(_offered(mode, agent.output_modes) for mode in accepted):
        raise _unsupported(
            "configuration.acceptedOutputModes", f"{echo(list(accepted))} is not made", agent.output_modes
        )


def _is_for_us(message: Message, part: Part) -> bool:
    """What says what a client's tools are, or answers a question of the gateway's, is none of the agent's business."""
    answers = bool(message.task_id) and isinstance(part.data, dict) and part.media_type is None
    return answers or part.media_type in _FOR_US


def media_type(part: Part) -> str:
    """The part's media type without parameters; what its content implies where it names none."""
    if part.media_type:
        return part.media_type.partition(";")[0].strip().lower()
    if part.text is not None:
        return "text/plain"
    return "application/octet-stream" if part.raw is not None or part.url is not None else "application/json"


_WORDS = {"text": "text/*", "*": "*/*", "file": "*/*", "data": "application/json"}


def _offered(kind: str, modes: Sequence[str]) -> bool:
    kind = _WORDS.get(kind, kind)
    return any(_matches(kind, _WORDS.get(mode.lower(), mode.lower())) for mode in modes)


def _matches(kind: str, pattern: str) -> bool:
    """Either side may be a range, as `image/*`."""
    one, _, rest = kind.partition("/")
    other, _, other_rest = pattern.partition("/")
    return (one == other or "*" in (one, other)) and (rest == other_rest or "*" in (rest, other_rest))


def _unsupported(field: str, what: str, modes: Sequence[str]) -> ContentTypeNotSupported:
    text = f"{what}; this agent knows {', '.join(modes)}"
    return ContentTypeNotSupported(f"{field}: {text}", violations=(FieldViolation(field, text),))


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


def check_named_handle(agent: Agent, message: Message, thread: ThreadRecord) -> None:
    """A caller may repeat where the conversation stands, and never choose it.

    Source: state-model, scenario 26. Raises: InvalidParams for a conversation of the backend that is not the thread's.
    """
    if message.metadata is None or not isinstance(agent.adapter, HandleNaming):
        return
    named = agent.adapter.named_handle(message)
    if named is not None and named != thread.handle:
        raise invalid(
            "message.metadata",
            f"{echo(named)} is not where this context stands; a context is continued by its contextId",
        )
