"""Where did the time of a task go, what failed, and who waits?"""

import asyncio
import re
from collections.abc import Mapping
from typing import get_args

import msgspec

from gateway.a2a.errors import NotFound, invalid
from gateway.a2a.model import TERMINAL, TaskState
from gateway.ledger.admin.timelines import Body, BodyKey, BodyKind, TaskHead, Timeline, ToolHead
from gateway.ledger.states import UNDER_WAY
from gateway.ledger.threads import Caller
from gateway.ports.observer import Target
from gateway.ui.masks import Masks
from gateway.ui.scale import Scale
from gateway.ui.timeline import Row, Show, Totals, chosen, folded, rows, scale_of, totals, with_bars
from gateway.ui.visit import Outcome, Page, Visit
from gateway.ui.words import many, state

ROWS = 150
"""Rows on a page."""

_WRONG = 50
"""Rows that went wrong that are told above the others."""

NO_TASK = "There is no such task. A task goes with its context, or some time after its end (retention.tasks)."

_ANSWER = '{"kind":"assistant",'
"""The beginning of a stored item that is a part of the answer."""
_TEXT = re.compile(r'"text":"((?:[^"\\]|\\.)*)')


class Filters(msgspec.Struct, frozen=True):
    """What a page shows of a task: the turns behind the number `after`, and of their rows those that fit, without the first
    `skipped`."""

    show: Show
    words: str
    after: int
    skipped: int


class TaskView(msgspec.Struct, frozen=True):
    """A task as a page shows it. `rows` are those of the page, `number` all that fit the filters. `masked` are the texts of
    which something may be masked."""

    task: TaskHead
    found: Timeline
    rows: tuple[Row, ...]
    previews: Mapping[str, str]
    scale: Scale
    totals: Totals
    sentence: str
    number: int
    filters: Filters
    bad: tuple[Row, ...]
    masked: frozenset[BodyKind]

    @property
    def ended(self) -> bool:
        return self.task.state in TERMINAL


async def show(visit: Visit) -> Outcome:
    filters = _filters(visit)
    view = await view_of(visit, filters)
    _looked_at(visit, view.task)
    values = {
        "view": view,
        "live": not view.ended and filters.show == "all" and not filters.words and not filters.skipped,
    }
    return Page("task.html", f"Task {view.task.id[:8]}", values)


async def view_of(visit: Visit, filters: Filters) -> TaskView:
    """Raises: NotFound."""
    parts, tenant, task = visit.parts, visit.caller.tenant, visit.path["task"]
    found = await parts.ledger.admin.timeline(tenant, task, filters.after)
    if found is None:
        raise NotFound(NO_TASK)
    now = parts.clock.now()
    plan = await asyncio.to_thread(_plan, found, filters, now)
    keys = tuple(row.preview for row in plan.rows if row.preview is not None)
    texts = await parts.ledger.admin.previews(tenant, keys)
    masks = Masks(parts.agents.by_name.get(found.task.agent))
    return TaskView(
        task=found.task,
        found=found,
        rows=plan.rows,
        previews={row.id: _preview(row.preview, texts, masks) for row in plan.rows if row.preview is not None},
        scale=plan.scale,
        totals=totals(found, now),
        sentence=_sentence(found),
        number=plan.number,
        filters=filters,
        bad=plan.bad,
        masked=masks.kinds,
    )


class _Plan(msgspec.Struct, frozen=True):
    """The rows of a page out of `number`, and those that went wrong."""

    rows: tuple[Row, ...]
    number: int
    bad: tuple[Row, ...]
    scale: Scale


def _plan(found: Timeline, filters: Filters, now: int) -> _Plan:
    every = rows(found, now)
    wanted = chosen(every, filters.show, filters.words)
    shown = folded(wanted) if filters.show == "all" else wanted
    on = scale_of(found, now)
    tools: dict[str, ToolHead] = {tool.id: tool for tool in found.tools}
    page = shown[filters.skipped : filters.skipped + ROWS]
    return _Plan(tuple(with_bars(page, on, tools)), len(shown), tuple(row for row in every if row.bad)[:_WRONG], on)


def _preview(key: BodyKey, texts: Mapping[BodyKey, Body], masks: Masks) -> str:
    body = texts.get(key)
    if body is None:
        return ""
    if masks.any and key.kind != "message" and not body.text.startswith(_ANSWER):
        return masks.hide(key.kind, body.text)
    words = _words(body.text)
    if body.next is not None:
        words += "…"
    # A caller has said the message, and has seen the answer.
    return words if key.kind == "message" else masks.seen(words)


def _words(text: str) -> str:
    """The words in the beginning of a stored JSON: what a person looks for in a preview."""
    # Reasoning says the same in the words of the gateway and in those of its backend.
    found = list(dict.fromkeys(_unescaped(piece) for piece in _TEXT.findall(text)))
    return " ".join(found) if found else text.partition('"parts":')[2] or text


def _unescaped(text: str) -> str:
    try:
        return msgspec.json.decode(f'"{text}"', type=str)
    except msgspec.DecodeError:
        return text


def _filters(visit: Visit) -> Filters:
    asked = visit.query.get("show", "all")
    if asked not in get_args(Show):
        raise invalid("show", f"must be one of {', '.join(get_args(Show))}")
    show_: Show = msgspec.convert(asked, Show)
    return Filters(show_, visit.query.get("q", "").strip()[:200], number_of(visit, "after"), number_of(visit, "from"))


def number_of(visit: Visit, name: str) -> int:
    """Raises: InvalidParams."""
    text = visit.query.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise invalid(name, "must be a number")
    return int(text)


def _sentence(found: Timeline) -> str:
    """How the task stands."""
    waiting = [tool for tool in found.tools if tool.status.value.startswith("pending")]
    if found.task.state is TaskState.INPUT_REQUIRED and waiting:
        return f"It waits for its caller to decide on {many(len(waiting), 'tool call')}."
    for tool in reversed(found.tools):
        if tool.status == "running":
            return f"A tool that the {tool.executor} runs is at work."
    for call in reversed(found.calls):
        if call.status in UNDER_WAY and call.ended_at is None:
            return f"Call {call.round + 1} is under way."
    return f"It {_HOW.get(found.task.state, state(found.task.state)[0])}."


_HOW = {
    TaskState.SUBMITTED: "waits for its turn",
    TaskState.WORKING: "is worked on",
    TaskState.COMPLETED: "has completed",
    TaskState.FAILED: "has failed",
    TaskState.CANCELED: "was cancelled",
    TaskState.REJECTED: "was rejected",
    TaskState.INPUT_REQUIRED: "waits for its caller",
    TaskState.AUTH_REQUIRED: "waits for its caller to consent elsewhere",
}


def owner_of(task: TaskHead) -> Caller:
    return Caller(task.principal, task.tenant)


def _looked_at(visit: Visit, task: TaskHead) -> None:
    visit.looked_at(owner_of(task), Target(agent=task.agent, context=task.context_id, task=task.id))


async def head_of(visit: Visit) -> TaskHead:
    """The task of the address; a look at it has its line in the audit log. Raises: NotFound."""
    task = await visit.parts.ledger.admin.task_head(visit.caller.tenant, visit.path["task"])
    if task is None:
        raise NotFound(NO_TASK)
    _looked_at(visit, task)
    return task
