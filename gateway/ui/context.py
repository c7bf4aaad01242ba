"""Which backend id is behind this conversation, and why?"""

import msgspec

from gateway.core.diagnosis.moves import Move, moves
from gateway.ledger.admin.contexts import StepKey, ThreadMap, ThreadTurn, ThreadTurns
from gateway.ledger.threads import Caller
from gateway.ports.observer import Target
from gateway.ui.keyset import given, named
from gateway.ui.places import by_public_id
from gateway.ui.standings import of_context, of_thread
from gateway.ui.visit import Outcome, Page, Visit
from gateway.ui.words import Tone


class ThreadCard(msgspec.Struct, frozen=True):
    """A live thread with its moves, and the addresses of the next pages of both lists. `latest` are its latest turns, on
    whatever page."""

    thread: ThreadMap
    latest: tuple[ThreadTurn, ...]
    standing: tuple[str, Tone]
    moves: tuple[Move, ...]
    older_moves: str | None
    turns: ThreadTurns | None
    older_turns: str | None


async def show(visit: Visit) -> Outcome:
    admin, tenant = visit.parts.ledger.admin, visit.caller.tenant
    found = await admin.context(tenant, visit.path["row"])
    if found is None:
        return await by_public_id(visit)
    visit.looked_at(Caller(found.principal, found.tenant), Target(context=found.public_id))
    cards = [await _card(visit, thread) for thread in found.threads if not thread.archived]
    values = {
        "context": found,
        "agents": visit.parts.agents.by_name,
        "standing": of_context(found, [(card.thread, card.latest) for card in cards]),
        "cards": cards,
        "archived": [thread for thread in found.threads if thread.archived],
    }
    return Page("context.html", f"Context {found.public_id}", values)


async def _card(visit: Visit, thread: ThreadMap) -> ThreadCard:
    admin, tenant = visit.parts.ledger.admin, visit.caller.tenant
    mine = visit.query.get("thread") == thread.id
    page = given(visit.query.get("turns"), int) if mine else None
    steps = await admin.handle_steps(tenant, thread.id, given(visit.query.get("moves"), StepKey) if mine else None)
    turns = await admin.turns(tenant, thread.id, page)
    first = turns if page is None else await admin.turns(tenant, thread.id)
    latest = () if first is None else first.turns
    here = msgspec.structs.replace(visit, query={**visit.query, "thread": thread.id})
    return ThreadCard(
        thread,
        latest,
        of_thread(thread, latest),
        () if steps is None else moves(steps),
        None if steps is None else named(here, "moves", steps.before),
        turns,
        None if turns is None else named(here, "turns", turns.before),
    )
