"""The admin API of the gateway, beside A2A. Law: the same address as for A2A finds it."""

import re
from urllib.parse import quote

import httpx2

from gateway.client.transport import (
    CONNECT,
    ClientError,
    Json,
    http_errors,
    json_at,
    objects,
    read_json,
    refused_from,
    text_at,
)

_A2A_PATH = re.compile(r"/(a2a|\.well-known)(/.*)?$")
_DOMAIN = "a2a-protocol.org"
_ANY_SERVER = frozenset({401, 403, 429})
"""Statuses that a proxy may give as well, so that they do not identify the server."""
_TRANSFER = 120.0
"""Seconds for a whole context to be read or stored."""


class NoAdminApi(ClientError):
    """The server has no admin API."""


async def delete_context(http: httpx2.AsyncClient, url: str, context: str, agent: str | None = None) -> None:
    """Deletes a context. `url`: that of the gateway, of a card or of an endpoint below it.

    Raises: Unreachable, NoAdminApi, Refused (404: no such context, or none with this agent).
    """
    base, address = _addresses(url, f"/{quote(context, safe='')}")
    with http_errors(address):
        response = await http.delete(address, params={"agent": agent} if agent else None, timeout=CONNECT)
    _expect(response, httpx2.codes.NO_CONTENT, base, "deleting a context")


async def export_context(http: httpx2.AsyncClient, url: str, context: str) -> bytes:
    """A context as a document. Raises: as `delete_context`."""
    base, address = _addresses(url, f"/{quote(context, safe='')}")
    with http_errors(address):
        response = await http.get(address, timeout=_TRANSFER)
    _expect(response, httpx2.codes.OK, base, "exporting a context")
    return response.content


async def import_context(http: httpx2.AsyncClient, url: str, document: bytes) -> str:
    """Stores an exported context; returns its id. Raises: as `delete_context` (400: what is wrong with the document)."""
    base, address = _addresses(url, ":import")
    with http_errors(address):
        response = await http.post(
            address, content=document, headers={"content-type": "application/json"}, timeout=_TRANSFER
        )
    return _context_id(_expect(response, httpx2.codes.CREATED, base, "importing a context"))


async def adopt_handle(http: httpx2.AsyncClient, url: str, agent: str, handle: str, context: str | None) -> str:
    """Makes a context that continues a conversation of the backend; returns its id. Raises: as `delete_context`."""
    base, address = _addresses(url, ":adopt")
    wanted = {"agent": agent, "handle": handle, "contextId": context}
    with http_errors(address):
        response = await http.post(address, json=wanted, timeout=CONNECT)
    return _context_id(_expect(response, httpx2.codes.CREATED, base, "adopting a conversation"))


async def list_pushes(http: httpx2.AsyncClient, url: str) -> list[dict[str, Json]]:
    """The caller's push notification configurations that are not done. Raises: as `delete_context`."""
    base, address = _addresses(url, "", "push")
    with http_errors(address):
        response = await http.get(address, timeout=CONNECT)
    return objects(_expect(response, httpx2.codes.OK, base, "listing push notifications"), "configs")


async def replay_pushes(http: httpx2.AsyncClient, url: str, task: str, config: str | None) -> int:
    """Restarts stopped deliveries; returns how many. Raises: as `delete_context` (404: none of the task was stopped)."""
    base, address = _addresses(url, ":replay", "push")
    with http_errors(address):
        response = await http.post(address, json={"taskId": task, "id": config}, timeout=CONNECT)
    body = _expect(response, httpx2.codes.OK, base, "sending push notifications again")
    count = json_at(body, "replayed")
    return count if isinstance(count, int) else 0


def _addresses(url: str, path: str, resource: str = "contexts") -> tuple[str, str]:
    base = _A2A_PATH.sub("", url.rstrip("/"))
    return base, f"{base}/admin/api/v1/{resource}{path}"


def _context_id(body: Json) -> str:
    return text_at(body, "contextId") or ""


def _expect(response: httpx2.Response, status: int, base: str, what: str) -> Json:
    body = read_json(response)
    if response.status_code == status:
        return body
    is_gateway = any(detail.get("domain") == _DOMAIN for detail in objects(json_at(body, "error"), "details"))
    if not is_gateway and response.status_code not in _ANY_SERVER and response.status_code < 500:
        raise NoAdminApi(
            f"{base} is not this gateway (it answered HTTP {response.status_code}), and {what} is no "
            "operation of A2A: only whoever runs that agent can do it"
        )
    raise refused_from(response, body)
