"""Somebody with a browser that runs no scripts: keeps cookies, follows no redirects, sends forms as browsers do."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import unescape

import httpx2

from gateway.ledger.api_keys import ApiKey, IssueKey, digest_of, new_key, shown
from tests.running import Local

_TOKEN = re.compile(r'name="token" value="([0-9a-f]{64})"')
_TAG = re.compile(r"<[^>]*>")


class Visitor:
    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self.http = http
        self.url = url
        self.html = ""
        """Of the page that was opened last."""

    async def open(self, path: str, status: int = 200, **headers: str) -> str:
        """The text of the page, without its tags."""
        answer = await self.http.get(path, headers={"accept": "text/html", **headers})
        assert answer.status_code == status, (path, answer.status_code, self.text(answer.text))
        self.html = answer.text
        return self.text(self.html)

    async def follow(self, path: str) -> str:
        """The address to which this one leads."""
        answer = await self.http.get(path, headers={"accept": "text/html"})
        assert answer.status_code == 303, (path, answer.status_code)
        return answer.headers["location"]

    @property
    def token(self) -> str:
        found = _TOKEN.search(self.html)
        assert found is not None, self.html
        return found[1]

    async def send(self, path: str, origin: str | None = None, **form: str) -> httpx2.Response:
        """The form of the page that was opened last, unless it is given another `token`."""
        headers = {"origin": self.url if origin is None else origin, "sec-fetch-site": "same-origin"}
        return await self.http.post(path, data={"token": self.token, **form}, headers=headers)

    async def log_in(self, key: str) -> httpx2.Response:
        await self.open("/ui/login")
        return await self.send("/ui/login", key=key)

    def text(self, html: str) -> str:
        return " ".join(unescape(_TAG.sub(" ", html)).split())


@asynccontextmanager
async def visiting(gateway: Local) -> AsyncIterator[Visitor]:
    async with httpx2.AsyncClient(base_url=gateway.url, timeout=60) as http:
        yield Visitor(http, gateway.url)


async def make_key(gateway: Local, principal: str = "ops", *, admin: bool = True, tenant: str = "") -> str:
    """A key in force, whose name is that of its principal."""
    key = new_key()
    record = ApiKey(digest_of(key), principal, shown(key), principal, tenant, admin, 0)
    await gateway.gateway.runner.runtime.ledger.commit(IssueKey(record))
    return key


_HEADING = re.compile(r"<h[12][^>]*>.*?</h[12]>", re.DOTALL)
_STATE = re.compile(r'<span class="state [a-z]+">([^<]*)<')


def states_in_headings(html: str) -> list[str]:
    return [found[1] for heading in _HEADING.findall(html) if (found := _STATE.search(heading))]
