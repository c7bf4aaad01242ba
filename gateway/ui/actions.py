"""What pages can do with a context, a task or a delivery. Law: through the operations of the admin API as the owner of what is
changed, with a line in the audit log in the admin's name; a question comes first."""

import asyncio
import re

from msgspec.structs import replace

from gateway.a2a import model
from gateway.a2a.errors import A2AError, InvalidParams, NotFound, UnsupportedOperation, invalid
from gateway.a2a.wire import strict_json
from gateway.http.admin import DOCUMENT_DEPTH, context_in
from gateway.http.reply import Reply
from gateway.ledger.admin.contexts import ContextMap
from gateway.ledger.admin.timelines import TaskHead
from gateway.ledger.threads import Caller
from gateway.operations.call import OperationCall
from gateway.operations.push_configs import PushConfigs
from gateway.ports.observer import Target
from gateway.ui.problems import context_page, task_page
from gateway.ui.questions import Question
from gateway.ui.security import UNCACHED
from gateway.ui.tasks import owner_of
from gateway.ui.visit import Away, Outcome, Page, Visit
from gateway.ui.words import many

_SANDBOX = (b"content-security-policy", b"sandbox")
_LONGEST_NAME = 60


# --- contexts


async def ask_export(visit: Visit) -> Outcome:
    found = await _context(visit)
    visit.looked_at(_owner(found), Target(context=found.public_id))
    will = [
        f"All of it goes into a file: {_size(found)}.",
        "It holds what was said, and handles, which open conversations of backends.",
        "Nothing is changed.",
    ]
    return Question("Export this context?", will, "Export", _trail(found), _facts(found), danger=False).page()


async def export(visit: Visit) -> Outcome:
    found = await _context(visit)
    visit.line.target = _target(found)
    document = await visit.parts.transfer.export(_owner(found), found.public_id)
    headers = [header for header in UNCACHED if header[0] != b"content-security-policy"]
    return Reply(document, media_type=b"application/octet-stream", headers=(*headers, _SANDBOX, _named(found)))


def _named(found: ContextMap) -> tuple[bytes, bytes]:
    """Saves what is sent under the id of the context, as far as its characters can stand in the name of a file."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", found.public_id).strip(".-")[:_LONGEST_NAME] or found.id
    return b"content-disposition", f'attachment; filename="context-{name}.json"'.encode()


async def ask_delete(visit: Visit) -> Outcome:
    found = await _context(visit)
    visit.looked_at(_owner(found), Target(context=found.public_id))
    return (await _delete_question(visit, found)).page()


async def delete(visit: Visit) -> Outcome:
    found = await _context(visit)
    visit.line.target = _target(found)
    question = await _delete_question(visit, found)
    if visit.form.get("typed", "").strip() != question.typed:
        return question.page(InvalidParams("What was typed is not what is shown."))
    if question.at_stake > _number(visit.form.get("at_stake", "")):
        return question.page(InvalidParams("More turns run or wait now than the page said: read it again."))
    await visit.parts.contexts.delete(_owner(found), found.public_id)
    return Away("/ui/contexts")


async def _delete_question(visit: Visit, found: ContextMap) -> Question:
    running = len(await visit.parts.ledger.open_turns(found.id))
    handles = sum(thread.handle is not None for thread in found.threads)
    before = "it" if handles == 1 else "them"
    will = [
        f"The context goes with everything in it: {_size(found)}. It cannot be brought back.",
        f"{many(running, 'turn')} that waits or runs is cancelled."
        if running == 1
        else f"{running} turns that wait or run are cancelled.",
        f"{many(handles, 'handle')} and those before {before} are queued to be deleted at their backends.",
        "Its id is never used again.",
    ]
    typed, typed_is = _sign(found)
    trail, facts = _trail(found), _facts(found)
    return Question("Delete this context?", will, "Delete", trail, facts, typed, typed_is, at_stake=running)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


_SIGN = 8
"""Characters that are typed before a context is deleted."""


def _sign(found: ContextMap) -> tuple[str, str]:
    """What is typed, and what it is: not every id of a client can be."""
    sign = found.public_id[:_SIGN].strip()
    if sign and sign.isascii() and sign.isprintable():
        return sign, f"the first {_SIGN} characters of its id" if len(found.public_id) > _SIGN else "its id"
    return found.id[:_SIGN], f"the first {_SIGN} characters of its id in the address of this page"


def _trail(found: ContextMap) -> list[tuple[str, str]]:
    return [("/ui/contexts", "Contexts"), (context_page(found.id), found.public_id)]


async def _context(visit: Visit) -> ContextMap:
    """Raises: NotFound."""
    found = await visit.parts.ledger.admin.context(visit.caller.tenant, visit.path["row"])
    if found is None or found.state == "deleted":
        raise NotFound("There is no such context.")
    return found


def _owner(found: ContextMap) -> Caller:
    return Caller(found.principal, found.tenant)


def _target(found: ContextMap) -> Target:
    return Target(context=found.public_id, principal=found.principal)


def _size(found: ContextMap) -> str:
    live = [thread for thread in found.threads if not thread.archived]
    return f"{many(sum(thread.turns for thread in live), 'turn')} with {many(len(live), 'agent')}"


def _facts(found: ContextMap) -> list[tuple[str, str]]:
    return [("context", found.public_id), ("principal", found.principal)]


# --- contexts from elsewhere


async def ask_import(visit: Visit) -> Outcome:
    return _form(visit, "import.html", "Import a context")


async def import_(visit: Visit) -> Outcome:
    parts, text, owner = visit.parts, visit.form.get("document", ""), _chosen_owner(visit)
    visit.line.target = Target(principal=owner.principal)
    try:
        body = text.encode()
        document = await asyncio.to_thread(strict_json.decode, body, DOCUMENT_DEPTH)
        strict_json.check_text(body, document)
        visit.line.target = Target(context=context_in(document), principal=owner.principal)
        context = await parts.transfer.import_document(owner, parts.agents, document, parts.limits)
    except A2AError as error:
        return _form(visit, "import.html", "Import a context", error)
    return await _to_context(visit, owner, context)


async def ask_adopt(visit: Visit) -> Outcome:
    return _form(visit, "adopt.html", "Adopt a conversation")


async def adopt(visit: Visit) -> Outcome:
    parts, form, owner = visit.parts, visit.form, _chosen_owner(visit)
    name, given = form.get("agent", ""), form.get("context", "").strip()
    visit.line.target = Target(agent=name, context=given, principal=owner.principal)
    try:
        agent = parts.agents.by_name.get(name)
        if agent is None:
            raise invalid("agent", "must be one of the agents")
        handle = form.get("handle", "").strip()
        context = await parts.transfer.adopt(owner, agent, handle, given or None, parts.limits)
    except A2AError as error:
        return _form(visit, "adopt.html", "Adopt a conversation", error)
    visit.line.target = replace(visit.line.target, context=context)
    return await _to_context(visit, owner, context)


def _chosen_owner(visit: Visit) -> Caller:
    return Caller(visit.form.get("principal", "").strip() or visit.caller.principal, visit.caller.tenant)


async def _to_context(visit: Visit, owner: Caller, context: str) -> Away:
    found = await visit.parts.ledger.context(owner, context, "")
    return Away("/ui/contexts" if found is None else context_page(found.id))


def _form(visit: Visit, template: str, title: str, error: A2AError | None = None) -> Page:
    agents = [agent.name for agent in visit.parts.agents if agent.adapter.ownership.owner == "backend"]
    values = {
        "form": {**visit.query, **visit.form},
        "agents": agents,
        "problem": None if error is None else error.message,
    }
    return Page(template, title, values, 200 if error is None else error.http, refusal=error)


# --- tasks


async def ask_cancel(visit: Visit) -> Outcome:
    task = await _task(visit)
    visit.looked_at(owner_of(task), _target_of(task))
    will = [
        "Its turn ends as soon as the backend and the tools let it; what was shown stays.",
        "Tool calls that wait for a decision are closed, and are not run.",
        "The conversation goes on with the next message.",
    ]
    facts = [("task", task.id), ("agent", task.agent), ("principal", task.principal)]
    trail = [
        ("/ui/contexts", "Contexts"),
        (context_page(task.context), task.context_id),
        (task_page(task.id), f"Task {task.id[:8]}"),
    ]
    return Question("Cancel this task?", will, "Cancel the task", trail, facts).page()


async def cancel(visit: Visit) -> Outcome:
    visit.line.target = Target(task=visit.path["task"])
    task = await _task(visit)
    visit.line.target = _target_of(task)
    agent = visit.parts.agents.by_name.get(task.agent)
    if agent is None:
        raise UnsupportedOperation(f"The agent {task.agent!r} is not in the configuration any more.")
    await visit.parts.operations.cancel_task(OperationCall(agent, owner_of(task)), model.CancelTaskRequest(id=task.id))
    return Away(task_page(task.id))


def _target_of(task: TaskHead) -> Target:
    return Target(agent=task.agent, context=task.context_id, task=task.id, principal=task.principal)


async def _task(visit: Visit) -> TaskHead:
    """Raises: NotFound."""
    task = await visit.parts.ledger.admin.task_head(visit.caller.tenant, visit.path["task"])
    if task is None:
        raise NotFound("There is no such task.")
    return task


# --- deliveries


async def ask_replay(visit: Visit) -> Outcome:
    task, _ = await _delivery(visit)
    visit.looked_at(owner_of(task), _target_of(task))
    will = [
        "The delivery goes on with the event where it stopped, and events come in their order.",
        "What was delivered is not sent again.",
    ]
    facts = [("task", task.id), ("configuration", visit.query.get("id", ""))]
    trail = [("/ui/deliveries?show=stuck", "Deliveries")]
    return Question("Replay this delivery?", will, "Replay", trail, facts, danger=False).page()


async def replay(visit: Visit) -> Outcome:
    config = visit.query.get("id", "")
    visit.line.target = Target(task=visit.query.get("task", ""), push=config)
    task, configs = await _delivery(visit)
    visit.line.target = replace(_target_of(task), push=config)
    await configs.replay(owner_of(task), task.id, config or None)
    return Away("/ui/deliveries")


async def _delivery(visit: Visit) -> tuple[TaskHead, PushConfigs]:
    """Raises: NotFound."""
    if visit.parts.push_configs is None:
        raise NotFound("Push notifications are off.")
    task = await visit.parts.ledger.admin.task_head(visit.caller.tenant, visit.query.get("task", ""))
    if task is None:
        raise NotFound("There is no such task.")
    return task, visit.parts.push_configs
