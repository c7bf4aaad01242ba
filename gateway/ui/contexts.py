"""Whose conversations are there?"""

from collections.abc import Mapping
from datetime import UTC, datetime
from urllib.parse import urlencode

from gateway.a2a.errors import invalid
from gateway.ledger.admin.contexts import ContextFilter, Standing
from gateway.ports.observer import Target
from gateway.ui.keyset import given, named
from gateway.ui.standings import STANDINGS
from gateway.ui.visit import Outcome, Page, Visit

_SHORTCUTS = {"": "all", Standing.FAILED: "failed", Standing.WAITING: "waiting", Standing.WORKING: "running"}


async def show(visit: Visit) -> Outcome:
    asked = {
        name: visit.query.get(name, "").strip() for name in ("agent", "principal", "standing", "since", "until", "text")
    }
    where = ContextFilter(
        agent=asked["agent"] or None,
        principal=asked["principal"] or None,
        standing=_standing(asked["standing"]),
        since=_moment("since", asked["since"]),
        until=_moment("until", asked["until"]),
        text=asked["text"] or None,
    )
    before = given(visit.query.get("before"), str)
    try:
        found = await visit.parts.ledger.admin.contexts(visit.caller.tenant, where, before)
    except ValueError:
        raise invalid("before", "is no place of this list: go back to its beginning") from None
    if any(context.principal != visit.caller.principal for context in found.contexts):
        visit.audited("context.listed", Target(agent=asked["agent"]))
    values = {
        "asked": asked,
        "agents": sorted(visit.parts.agents.by_name),
        "standings": STANDINGS,
        "shortcuts": [
            (standing, words, _address({**asked, "standing": standing})) for standing, words in _SHORTCUTS.items()
        ],
        "found": found,
        "older": named(visit, "before", found.before),
        "filtered": any(asked.values()),
    }
    return Page("contexts.html", "Contexts", values)


def _address(asked: Mapping[str, str]) -> str:
    """Of the list with these filters."""
    named_ = {name: text for name, text in asked.items() if text}
    return f"/ui/contexts?{urlencode(named_)}" if named_ else "/ui/contexts"


def _standing(text: str) -> Standing | None:
    if not text:
        return None
    try:
        return Standing(text)
    except ValueError:
        raise invalid("standing", f"must be one of {', '.join(STANDINGS)}") from None


def _moment(name: str, text: str) -> int | None:
    """Milliseconds since 1970 of a time in UTC."""
    if not text:
        return None
    try:
        return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise invalid(name, "must be a time, such as 2026-11-26T12:00") from None
