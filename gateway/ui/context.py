"""Which backend id is behind this conversation, and why?"""

import msgspec

from gateway.a2a.errors import NotFound
from gateway.core.diagnosis.moves import Move, moves
from gateway.ledger.admin.contexts import StepKey, ThreadMap, ThreadTurns
from gateway.ledger.threads import Caller
from gateway.ports.observer import Target
from gateway.ui.keyset import given, named
from gateway.ui.visit import Outcome, Page, Visit


class ThreadCard(msgspec.Struct, frozen=True):
    """A live thread with its moves, and the addresses of the next pages of both lists."""

    thread: ThreadMap
    moves: tuple[Move, ...]
    older_moves: str | None
    turns: ThreadTurns | None
    older_turns: str | None


async def show(visit: Visit) -> Outcome:
    admin, tenant = visit.parts.ledger.admin, visit.caller.tenant
    found = await admin.context(tenant, visit.path["row"])
    if found is None:
        raise NotFound("There is no such context. Retention removes conversations that nobody uses.")
    visit.looked_at(Caller(found.principal, found.tenant), Target(context=found.public_id))
    cards = [await _card(visit, thread) for thread in found.threads if not thread.archived]
    values = {
        "context": found,
        "cards": cards,
        "archived": [thread for thread in found.threads if thread.archived],
    }
    return Page("context.html", f"Context {found.public_id}", values)


async def _card(visit: Visit, thread: ThreadMap) -> ThreadCard:
    admin, tenant = visit.parts.ledger.admin, visit.caller.tenant
    mine = visit.query.get("thread") == thread.id
    steps = await admin.handle_steps(tenant, thread.id, given(visit.query.get("moves"), StepKey) if mine else None)
    turns = await admin.turns(tenant, thread.id, given(visit.query.get("turns"), int) if mine else None)
    here = msgspec.structs.replace(visit, query={**visit.query, "thread": thread.id})
    return ThreadCard(
        thread,
        () if steps is None else moves(steps),
        None if steps is None else named(here, "moves", steps.before),
        turns,
        None if turns is None else named(here, "turns", turns.before),
    )
