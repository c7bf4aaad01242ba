"""The pages at /ui. Law: nothing of them is loaded before somebody opens one, and nothing stands there where they are off."""

from collections.abc import Awaitable, Callable
from importlib.util import find_spec

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.config.gateway import GatewayConfig
from gateway.config.problems import ConfigInvalid, Problem
from gateway.foundation.addresses import is_loopback

_HOME = "/ui"
_NEEDED = "jinja2"


def pages_wanted(config: GatewayConfig) -> bool:
    """Raises: ConfigInvalid for pages that are asked for and cannot be made."""
    problem = pages_problem(config)
    if problem is not None:
        raise ConfigInvalid([problem])
    enabled = config.ui.enabled
    if enabled is None:
        reached_by_few = config.auth.mode != "none" or is_loopback(config.server.host)
        return reached_by_few and find_spec(_NEEDED) is not None
    return enabled


def pages_problem(config: GatewayConfig) -> Problem | None:
    """The problem of a configuration that asks for pages where their package is not installed."""
    if not config.ui.enabled or find_spec(_NEEDED) is not None:
        return None
    message = (
        f"the pages need the package `{_NEEDED}`, which is not there; install it with: pip install 'a2a-gateway[ui]'"
    )
    return Problem(file=None, line=None, column=None, path="ui.enabled", message=message)


class Pages(BaseRoute):
    """Everything at /ui and below. `load` imports and makes the application."""

    def __init__(self, load: Callable[[], Awaitable[ASGIApp]]) -> None:
        self._load = load
        self._site: ASGIApp | None = None

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        path: str = scope["path"]
        return (Match.FULL if path == _HOME or path.startswith(f"{_HOME}/") else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        site = self._site
        if site is None:
            # Two visits at once may both load it; either is as good.
            site = self._site = await self._load()
        await site(scope, receive, send)
