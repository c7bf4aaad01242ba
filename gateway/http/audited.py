"""Which operations have a line in the audit log, and what it says. Law: no line holds content."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from gateway.a2a.errors import A2AError
from gateway.a2a.model import Message, Task
from gateway.a2a.wire.dialect import Method
from gateway.http.auth import Identity
from gateway.http.held import ClientGone
from gateway.http.reply import reason
from gateway.ledger.errors import LedgerUnavailable
from gateway.ports.observer import Actor, AuditEntry, Observer, Target

_ACTIONS: Mapping[str, str] = {
    "SendMessage": "message.accepted",
    "SendStreamingMessage": "message.accepted",
    "CancelTask": "task.cancelled",
    "CreateTaskPushNotificationConfig": "push.created",
    "DeleteTaskPushNotificationConfig": "push.deleted",
}
_DECIDED = "approval.decided"


class AuditLine(msgspec.Struct):
    """What the line of an action is going to say. The action writes into it what it learns."""

    target: Target = Target()
    outcome: str = "done"

    def refuse(self, error: Exception) -> None:
        self.outcome = outcome_of(error)


def outcome_of(error: Exception) -> str:
    """The reason of the error that the caller gets, as the line has it."""
    if isinstance(error, A2AError):
        return reason(error).lower()
    return "busy" if isinstance(error, LedgerUnavailable) else "internal_error"


@contextmanager
def audited(observer: Observer, action: str, actor: Actor) -> Iterator[AuditLine]:
    """The block carries out an action of an admin: its line is written at the end, whether it is done or fails. An empty
    `action` has no line, and neither has one whose client has left before it was known what is asked."""
    line = AuditLine()

    def tell() -> None:
        if action and observer.audits:
            observer.audited(AuditEntry(action, actor, line.target, line.outcome))

    try:
        yield line
    except ClientGone:
        raise
    except Exception as error:
        line.refuse(error)
        tell()
        raise
    tell()


def action_of(method: Method, request: Any) -> str | None:
    """None for an operation that changes nothing."""
    action = _ACTIONS.get(method.operation)
    message = getattr(request, "message", None)
    if isinstance(message, Message) and _decides(message):
        return _DECIDED
    return action


def actor_of(identity: Identity, peer: str) -> Actor:
    return Actor(identity.caller.principal, identity.caller.tenant, identity.shown, peer)


def target_of(agent: str, request: Any, result: Any = None) -> Target:
    """The ids that the request names, and those that its result has."""
    message = getattr(request, "message", None)
    found = Target(agent=agent, push=_push(result) or _push(request))
    task, context, name = _task(request), "", ""
    if isinstance(message, Message):
        task, context, name = message.task_id or "", message.context_id or "", message.message_id
    made = result if isinstance(result, Task) else getattr(result, "task", None)
    if isinstance(made, Task):
        task, context = made.id, made.context_id or context
    return Target(found.agent, context, task, name, found.push)


def _decides(message: Message) -> bool:
    return any(isinstance(part.data, dict) and "approvals" in part.data for part in message.parts)


def _task(request: Any) -> str:
    named = getattr(request, "task_id", None)
    if isinstance(named, str):
        return named
    given = getattr(request, "id", None)
    return given if isinstance(given, str) else ""


def _push(request: Any) -> str:
    """The id of a push configuration: of requests that name both a task and an id."""
    named = getattr(request, "id", None)
    return named if isinstance(named, str) and isinstance(getattr(request, "task_id", None), str) else ""
