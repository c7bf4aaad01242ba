"""What does this id mean?"""

from urllib.parse import quote

from gateway.a2a.errors import NotFound, invalid
from gateway.ledger.admin.contexts import Place, PlaceKind
from gateway.ui.problems import context_page, task_page
from gateway.ui.visit import Away, Outcome, Page, Visit


async def go(visit: Visit) -> Outcome:
    """To what an id means; a page of choices where it means several things, or nothing."""
    wanted = visit.query.get("id", "").strip()
    before = visit.query.get("before") or None
    if not wanted:
        return Away("/ui/")
    try:
        found = await visit.parts.ledger.admin.locate(visit.caller.tenant, wanted[:4096], before)
    except ValueError:
        raise invalid("before", "is no place of this list") from None
    if len(found.places) == 1 and found.before is None:
        [place] = found.places
        return Away(_address(place))
    values = {
        "sought": wanted,
        "places": [(place, _address(place)) for place in found.places],
        "searched_to": found.searched_to,
        "older": None if found.before is None else f"/ui/go?id={quote(wanted)}&before={quote(found.before)}",
    }
    title = "Go to an id" if found.places else f"Nothing found for “{wanted[:40]}”"
    return Page("places.html", title, values, 200 if found.places else 404)


async def by_public_id(visit: Visit) -> Outcome:
    """From an address with the public id of a context in place of its row to the one with the row; a page of choices where
    several principals have it. Raises: NotFound."""
    wanted = visit.path["row"]
    found = await visit.parts.ledger.admin.locate(visit.caller.tenant, wanted, patience=0)
    rows = [place.context for place in found.places if place.kind is PlaceKind.CONTEXT]
    if not rows:
        raise NotFound("There is no such context. Retention removes conversations that nobody uses.")
    if len(rows) > 1:
        return Away(f"/ui/go?id={quote(wanted, safe='')}")
    before, _, behind = visit.address.partition("/ui/contexts/")
    rest = behind[len(behind.partition("?")[0].partition("/")[0]) :]
    return Away(f"{before}/ui/contexts/{quote(rows[0], safe='')}{rest}")


def _address(place: Place) -> str:
    match place.kind:
        case PlaceKind.KEY:
            return "/ui/keys"
        case PlaceKind.TOOL_CALL:
            return f"/ui/tasks/{quote(place.task, safe='')}?show=tools#tool-{quote(place.name, safe='')}"
        case _:
            return task_page(place.task, place.turn) if place.task else context_page(place.context)
