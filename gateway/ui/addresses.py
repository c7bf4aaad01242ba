"""Which page stands at which address. Law: one row for each page, and what changes anything is a form."""

from urllib.parse import unquote

import msgspec

from gateway.ui import (
    actions,
    agents,
    bodies,
    calls,
    context,
    contexts,
    deliveries,
    events,
    keys,
    live,
    login,
    next_request,
    overview,
    places,
    playground,
    tasks,
)
from gateway.ui.visit import Away, Handler, Outcome, Visit


class Address(msgspec.Struct, frozen=True):
    """`action` is what `post` does, as the audit log calls it; empty where it says it itself. `open`: also for somebody who has
    shown no key. `quiet`: a script asks for it, which is not sent to the login."""

    get: Handler
    post: Handler | None = None
    action: str = ""
    open: bool = False
    quiet: bool = False


async def _home(_: Visit) -> Outcome:
    return Away("/ui/")


_PAGES: dict[tuple[str, ...], Address] = {
    ("ui",): Address(_home, open=True),
    ("ui", ""): Address(overview.show),
    ("ui", "login"): Address(login.ask, login.enter, open=True),
    ("ui", "logout"): Address(_home, login.leave),
    ("ui", "go"): Address(places.go),
    ("ui", "agents", "{name}"): Address(agents.show),
    ("ui", "contexts"): Address(contexts.show),
    ("ui", "contexts", "{row}"): Address(context.show),
    ("ui", "contexts", "{row}", "next"): Address(next_request.show),
    ("ui", "contexts", "{row}", "export"): Address(actions.ask_export, actions.export, "context.exported"),
    ("ui", "contexts", "{row}", "delete"): Address(actions.ask_delete, actions.delete, "context.deleted"),
    ("ui", "import"): Address(actions.ask_import, actions.import_, "context.imported"),
    ("ui", "adopt"): Address(actions.ask_adopt, actions.adopt, "context.adopted"),
    ("ui", "tasks", "{task}"): Address(tasks.show),
    ("ui", "tasks", "{task}", "live"): Address(live.show, quiet=True),
    ("ui", "tasks", "{task}", "cancel"): Address(actions.ask_cancel, actions.cancel, "task.cancelled"),
    ("ui", "tasks", "{task}", "events"): Address(events.show),
    ("ui", "tasks", "{task}", "events", "{number}"): Address(events.show_one, quiet=True),
    ("ui", "tasks", "{task}", "body", "{kind}"): Address(bodies.show, quiet=True),
    ("ui", "tasks", "{task}", "calls", "{call}"): Address(calls.show),
    ("ui", "deliveries"): Address(deliveries.show),
    ("ui", "replay"): Address(actions.ask_replay, actions.replay, "push.replayed"),
    ("ui", "keys"): Address(keys.show),
    ("ui", "keys", "new"): Address(keys.ask_new, keys.create, "key.created"),
    ("ui", "keys", "revoke"): Address(keys.ask_revoke, keys.revoke, "key.revoked"),
    ("ui", "playground"): Address(playground.show),
}


def find(path: str) -> tuple[Address, dict[str, str]] | None:
    """The page at this path as it was sent, and the variable parts of it: an id may have a slash in it."""
    segments = tuple(map(unquote, path.split("/")[1:]))
    exact = _PAGES.get(segments)
    if exact is not None:
        return exact, {}
    for pattern, address in _PAGES.items():
        if len(pattern) == len(segments) and all(
            part == segment or (part.startswith("{") and segment)
            for part, segment in zip(pattern, segments, strict=True)
        ):
            pairs = zip(pattern, segments, strict=True)
            return address, {part[1:-1]: segment for part, segment in pairs if part.startswith("{")}
    return None


_AREAS = {
    "agents": "/ui/",
    "contexts": "/ui/contexts",
    "tasks": "/ui/contexts",
    "import": "/ui/contexts",
    "adopt": "/ui/contexts",
    "deliveries": "/ui/deliveries",
    "replay": "/ui/deliveries",
    "keys": "/ui/keys",
}


def area(path: str) -> str:
    """The address in the navigation under which a page belongs; empty for none."""
    _, _, *rest = path.split("/")
    return _AREAS.get(rest[0], "") if rest else ""
