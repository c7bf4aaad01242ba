"""Who is not told? Push notifications, and what backends have still to delete."""

import msgspec

from gateway.a2a.errors import invalid
from gateway.ledger.admin.upkeep import DeletionKey, DeliveryFilter, DeliveryKey
from gateway.ledger.push import PushState
from gateway.ui.keyset import given, named
from gateway.ui.visit import Outcome, Page, Visit

_DELETIONS = "deletions"
SHOWN = {
    DeliveryFilter.ACTIVE: "to be delivered",
    DeliveryFilter.STUCK: "stuck",
    _DELETIONS: "deletions at backends",
}
REPLAYABLE = frozenset({PushState.STOPPED, PushState.GONE})


async def show(visit: Visit) -> Outcome:
    wanted = visit.query.get("show", DeliveryFilter.ACTIVE.value)
    if wanted == _DELETIONS:
        return await _show_deletions(visit)
    if wanted not in [filter_.value for filter_ in DeliveryFilter]:
        raise invalid("show", f"must be one of {', '.join(SHOWN)}")
    before = given(visit.query.get("before"), DeliveryKey)
    where = msgspec.convert(wanted, DeliveryFilter)
    found = await visit.parts.ledger.admin.deliveries(visit.caller.tenant, where, before)
    values = {
        "tabs": await _tabs(visit),
        "wanted": wanted,
        "deliveries": found.deliveries,
        "older": named(visit, "before", found.before),
        "replayable": REPLAYABLE,
        "offered": visit.parts.push_configs is not None,
    }
    return Page("deliveries.html", "Deliveries", values)


async def _tabs(visit: Visit) -> list[tuple[str, str, str]]:
    """The lists, what they are called, and how much is in each."""
    admin, tenant = visit.parts.ledger.admin, visit.caller.tenant
    lists = {
        where.value: await admin.deliveries(tenant, where) for where in (DeliveryFilter.ACTIVE, DeliveryFilter.STUCK)
    }
    counts = {name: _count(len(found.deliveries), found.before) for name, found in lists.items()}
    queued, given_up = [await admin.handle_deletions(tenant, over) for over in (False, True)]
    counts[_DELETIONS] = _count(len(queued.deletions) + len(given_up.deletions), queued.after or given_up.after)
    return [(name, words, counts[name]) for name, words in SHOWN.items()]


def _count(number: int, more: object | None) -> str:
    return f"{number}" if more is None else f"{number}+"


async def _show_deletions(visit: Visit) -> Outcome:
    given_up = visit.query.get("given_up", "1") == "1"
    after = given(visit.query.get("after"), DeletionKey)
    found = await visit.parts.ledger.admin.handle_deletions(visit.caller.tenant, given_up, after)
    values = {
        "tabs": await _tabs(visit),
        "wanted": _DELETIONS,
        "given_up": given_up,
        "deletions": found.deletions,
        "older": named(visit, "after", found.after),
    }
    return Page("deletions.html", "Deletions", values)
