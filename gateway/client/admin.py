"""The admin API of the gateway, beside A2A. Law: the same address as for A2A finds it."""

import re
from typing import Any
from urllib.parse import quote

import httpx2

from gateway.client import transport
from gateway.client.transport import ClientError, Json, objects, read_json

_A2A_PATH = re.compile(r"/(a2a|\.well-known)(/.*)?$")
_DOMAIN = "a2a-protocol.org"
_ANY_SERVER = frozenset({401, 403, 407, 429})
"""Statuses that a proxy may give as well, so that they do not identify the server."""
_TRANSFER = 120.0
"""Seconds for a whole context to be read or stored."""


class NoAdminApi(ClientError):
    """The server has no admin API."""


async def delete_context(http: httpx2.AsyncClient, url: str, context: str, agent: str | None = None) -> None:
    """Deletes a context. `url` is the URL of the gateway, of a card, or of an endpoint below the gateway.

    Raises: Unreachable, NoAdminApi, Refused (404: the context does not exist, or has no thread on this agent).
    """
    where = {"params": {"agent": agent}} if agent else {}
    await _call(http, url, "DELETE", f"contexts/{quote(context, safe='')}", "deleting a context", 204, **where)


async def export_context(http: httpx2.AsyncClient, url: str, context: str) -> bytes:
    """A context as a document. Raises: as `delete_context`."""
    path = f"contexts/{quote(context, safe='')}"
    return (await _call(http, url, "GET", path, "exporting a context", 200, timeout=_TRANSFER)).content


async def import_context(http: httpx2.AsyncClient, url: str, document: bytes) -> str:
    """Stores an exported context; returns its id. Raises: as `delete_context` (400: what is wrong with the document)."""
    body: dict[str, Any] = {"content": document, "headers": {"content-type": "application/json"}, "timeout": _TRANSFER}
    return _context_id(await _call(http, url, "POST", "contexts:import", "importing a context", 201, **body))


async def adopt_handle(http: httpx2.AsyncClient, url: str, agent: str, handle: str, context: str | None) -> str:
    """Makes a context that continues a conversation of the backend; returns its id. Raises: as `delete_context`."""
    wanted = {"agent": agent, "handle": handle, "contextId": context}
    return _context_id(await _call(http, url, "POST", "contexts:adopt", "adopting a conversation", 201, json=wanted))


async def list_pushes(http: httpx2.AsyncClient, url: str) -> list[dict[str, Json]]:
    """The caller's push notification configurations that are not done. Raises: as `delete_context`."""
    return objects(read_json(await _call(http, url, "GET", "push", "listing push notifications", 200)), "configs")


async def replay_pushes(http: httpx2.AsyncClient, url: str, task: str, config: str | None) -> int:
    """Restarts stopped deliveries; returns how many. Raises: as `delete_context` (404: none of the task was stopped)."""
    wanted, what = {"taskId": task, "id": config}, "sending push notifications again"
    response = await _call(http, url, "POST", "push:replay", what, 200, json=wanted)
    count = transport.json_at(read_json(response), "replayed")
    return count if isinstance(count, int) else 0


async def _call(
    http: httpx2.AsyncClient, url: str, method: str, path: str, what: str, expected: int, **request: Any
) -> httpx2.Response:
    base = _A2A_PATH.sub("", url.rstrip("/"))
    address = f"{base}/admin/api/v1/{path}"
    with transport.http_errors(address):
        response = await http.request(method, address, **{"timeout": transport.CONNECT, **request})
    status = response.status_code
    if status == expected:
        return response
    body = read_json(response)
    is_gateway = any(detail.get("domain") == _DOMAIN for detail in objects(transport.json_at(body, "error"), "details"))
    if not is_gateway and status not in _ANY_SERVER and status < 500:
        raise NoAdminApi(
            f"{base} is not this gateway (it answered HTTP {status}), and {what} is no "
            "operation of A2A: only whoever runs that agent can do it"
        )
    raise transport.refused_from(response, body)


def _context_id(response: httpx2.Response) -> str:
    return transport.text_at(read_json(response), "contextId") or ""
