"""What our gateway can do beside A2A."""

import re
from urllib.parse import quote

import httpx2

from gateway.client.transport import CONNECT, ClientError, Json, at, objects, reaching, read_json, refusal, text_at

_BELOW = re.compile(r"/(a2a|\.well-known)(/.*)?$")
_DOMAIN = "a2a-protocol.org"
_ANYBODYS = frozenset({401, 403, 429})
_WHOLE = 120.0
"""Seconds for a whole context to be read or stored."""


class NotOurGateway(ClientError):
    """What answers has no admin API."""


async def delete_context(http: httpx2.AsyncClient, url: str, context: str, agent: str | None = None) -> None:
    """Deletes what was said in a context. `url`: that of the gateway, of a card or of an endpoint below it.

    Raises: Unreachable, NotOurGateway, Refused (404: no such context, or none with this agent).
    """
    base, address = _addresses(url, f"/{quote(context, safe='')}")
    with reaching(address):
        response = await http.delete(address, params={"agent": agent} if agent else None, timeout=CONNECT)
    _expect(response, httpx2.codes.NO_CONTENT, base, "deleting a context")


async def export_context(http: httpx2.AsyncClient, url: str, context: str) -> bytes:
    """A context as a document. Raises: as `delete_context`."""
    base, address = _addresses(url, f"/{quote(context, safe='')}")
    with reaching(address):
        response = await http.get(address, timeout=_WHOLE)
    _expect(response, httpx2.codes.OK, base, "exporting a context")
    return response.content


async def import_context(http: httpx2.AsyncClient, url: str, document: bytes) -> str:
    """Stores an exported context; returns its id. Raises: as `delete_context` (400: what is wrong with the document)."""
    base, address = _addresses(url, ":import")
    with reaching(address):
        response = await http.post(
            address, content=document, headers={"content-type": "application/json"}, timeout=_WHOLE
        )
    return _context_id(_expect(response, httpx2.codes.CREATED, base, "importing a context"))


async def adopt_handle(http: httpx2.AsyncClient, url: str, agent: str, handle: str, context: str | None) -> str:
    """Makes a context that goes on from what the backend has; returns its id. Raises: as `delete_context`."""
    base, address = _addresses(url, ":adopt")
    wanted = {"agent": agent, "handle": handle, "contextId": context}
    with reaching(address):
        response = await http.post(address, json=wanted, timeout=CONNECT)
    return _context_id(_expect(response, httpx2.codes.CREATED, base, "adopting a conversation"))


async def list_pushes(http: httpx2.AsyncClient, url: str) -> list[dict[str, Json]]:
    """The caller's push notification configurations that are not done. Raises: as `delete_context`."""
    base, address = _addresses(url, "", "push")
    with reaching(address):
        response = await http.get(address, timeout=CONNECT)
    return objects(_expect(response, httpx2.codes.OK, base, "listing push notifications"), "configs")


async def replay_pushes(http: httpx2.AsyncClient, url: str, task: str, config: str | None) -> int:
    """Lets what was stopped go on; returns how many. Raises: as `delete_context` (404: nothing of the task was stopped)."""
    base, address = _addresses(url, ":replay", "push")
    with reaching(address):
        response = await http.post(address, json={"taskId": task, "id": config}, timeout=CONNECT)
    body = _expect(response, httpx2.codes.OK, base, "sending push notifications again")
    count = at(body, "replayed")
    return count if isinstance(count, int) else 0


def _addresses(url: str, behind: str, what: str = "contexts") -> tuple[str, str]:
    base = _BELOW.sub("", url.rstrip("/"))
    return base, f"{base}/admin/api/v1/{what}{behind}"


def _context_id(body: Json) -> str:
    return text_at(body, "contextId") or ""


def _expect(response: httpx2.Response, status: int, base: str, what: str) -> Json:
    body = read_json(response)
    if response.status_code == status:
        return body
    ours = any(detail.get("domain") == _DOMAIN for detail in objects(at(body, "error"), "details"))
    if not ours and response.status_code not in _ANYBODYS and response.status_code < 500:
        raise NotOurGateway(
            f"{base} is not this gateway (it answered HTTP {response.status_code}), and {what} is no "
            "operation of A2A: only whoever runs that agent can do it"
        )
    raise refusal(response, body)
