"""`/`: the page for a client that names text/html among what it accepts, as browsers do; nothing for others."""

from datetime import datetime

from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from gateway.a2a.model import AgentCard
from gateway.core.agents import Agents
from gateway.http.cards import card_url, latest_change
from gateway.http.documents import READS, CachedDocument, LateDocument
from gateway.http.headers import HTML, names_html
from gateway.http.reply import Headers
from gateway.http.routes import CARDS_PATH, NOT_FOUND, OPENAPI_PATH

_VARY = (b"vary", b"accept")
_NOT_FOUND = replace(NOT_FOUND, headers=(*NOT_FOUND.headers, _VARY))
_SAFE: Headers = (
    _VARY,
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
_CHARSET = b"; charset=utf-8"


class FrontPage:
    """An ASGI application. The page is made when it is first asked for, and again when a card has changed."""

    def __init__(self, agents: Agents, public_url: str, started: datetime) -> None:
        """`public_url` is the gateway's; `started` is the time since which its configuration is valid."""
        self._agents = agents
        self._url = public_url.rstrip("/")
        self._started = started
        self._document: LateDocument[tuple[AgentCard, ...]] = LateDocument(self._made, self._cards)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in READS and names_html(scope):
            await self._document(scope, receive, send)
        else:
            await _NOT_FOUND(scope, receive, send)

    def _cards(self) -> tuple[AgentCard, ...]:
        return tuple(agent.public_card for agent in self._agents)

    def _made(self, cards: tuple[AgentCard, ...]) -> CachedDocument:
        since = latest_change(self._agents, self._started)
        try:
            from gateway.ui.front.page import page
        except ModuleNotFoundError as missing:
            if missing.name != "jinja2":
                raise
            return CachedDocument(self._plain(), since, media_type=b"text/plain" + _CHARSET, more=_SAFE)
        made = page(self._agents, self._url, f"{self._url}{CARDS_PATH}", f"{self._url}{OPENAPI_PATH}")
        more = (*_SAFE, (b"content-security-policy", made.policy))
        return CachedDocument(made.body, since, media_type=HTML + _CHARSET, more=more)

    def _plain(self) -> bytes:
        """The page without the extra that makes HTML."""
        lines = [
            "This is an A2A gateway. The cards of its agents:",
            "",
            *(f"{agent.name}  {card_url(agent.name, self._url)}" for agent in self._agents),
            "",
            f"All of them: {self._url}{CARDS_PATH}",
            f"OpenAPI: {self._url}{OPENAPI_PATH}",
            "",
            "Where the gateway is installed with its extra `ui`, this page says how to call each agent.",
            "",
        ]
        return "\n".join(lines).encode()
