"""The long texts of a task, one by one, as plain text: for a row that is opened, and for a browser without scripts."""

import json
from typing import get_args

import msgspec

from gateway.a2a.errors import NotFound, invalid
from gateway.http.reply import Reply
from gateway.ledger.admin.timelines import Body, BodyKey, BodyKind, TaskHead
from gateway.ports.observer import Target
from gateway.ui.foreign import visible
from gateway.ui.masks import Masks
from gateway.ui.security import UNCACHED
from gateway.ui.tasks import head_of
from gateway.ui.visit import Outcome, Visit

TEXT = b"text/plain; charset=utf-8"


async def show(visit: Visit) -> Outcome:
    task = await head_of(visit)
    key, offset = _key(visit)
    admin, tenant = visit.parts.ledger.admin, visit.caller.tenant
    found = await admin.body(tenant, key, offset) if await _is_of(visit, key, task) else None
    if found is None:
        raise NotFound("This text is not kept: retention has taken it, or it was never stored.")
    masks, text = Masks(visit.parts.agents.by_name.get(task.agent)), found.text
    if visit.query.get("unmasked") == "1":
        visit.audited("content.unmasked", Target(agent=task.agent, context=task.context_id, task=task.id))
    elif masks.any:
        text = masks.hide(key.kind, text)
    return plain_text(_readable(text) + _rest(found))


async def _is_of(visit: Visit, key: BodyKey, task: TaskHead) -> bool:
    """What a look is audited as, and what is masked, is that of the task: the text has to be its own."""
    if key.kind == "status":
        return key.id == task.id
    found = await visit.parts.ledger.admin.locate(visit.caller.tenant, key.id, patience=0)
    if key.kind == "item":
        return any(place.context == task.context and place.agent == task.agent for place in found.places)
    return any(place.task == task.id for place in found.places)


def plain_text(text: str, status: int = 200) -> Reply:
    return Reply(visible(text).encode("utf-8", "replace"), status, TEXT, UNCACHED)


def _key(visit: Visit) -> tuple[BodyKey, int]:
    kind, query = visit.path["kind"], visit.query
    if kind not in get_args(BodyKind):
        raise NotFound("There is no such text.")
    numbers = [query.get(name, "0") for name in ("number", "offset")]
    if not all(text.isascii() and text.isdigit() and len(text) < 16 for text in numbers):
        raise invalid("number", "must be a number")
    return BodyKey(msgspec.convert(kind, BodyKind), query.get("id", ""), int(numbers[0])), int(numbers[1])


def _readable(text: str) -> str:
    """JSON with line breaks, anything else as it is."""
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _rest(found: Body) -> str:
    return (
        ""
        if found.next is None
        else f"\n\n… {found.length - found.next:,} more characters: add &offset={found.next} to the address."
    )
