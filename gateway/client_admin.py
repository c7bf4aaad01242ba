"""What our gateway can do beside A2A."""

import re
from urllib.parse import quote

import httpx2

from gateway.client_wire import CONNECT, ClientError, at, objects, reaching, read_json, refusal

_BELOW = re.compile(r"/(a2a|\.well-known)(/.*)?$")
_DOMAIN = "a2a-protocol.org"
_ANYBODYS = frozenset({401, 403, 429})


class NotOurGateway(ClientError):
    """What answers has no admin API."""


async def delete_context(http: httpx2.AsyncClient, url: str, context: str, agent: str | None = None) -> None:
    """Deletes what was said in a context. `url`: that of the gateway, of a card or of an endpoint below it.

    Raises: Unreachable, NotOurGateway, Refused (404: no such context, or none with this agent).
    """
    base = _BELOW.sub("", url.rstrip("/"))
    address = f"{base}/admin/api/v1/contexts/{quote(context, safe='')}"
    with reaching(address):
        response = await http.delete(address, params={"agent": agent} if agent else None, timeout=CONNECT)
    if response.status_code == httpx2.codes.NO_CONTENT:
        return
    body = read_json(response)
    ours = any(detail.get("domain") == _DOMAIN for detail in objects(at(body, "error"), "details"))
    if not ours and response.status_code not in _ANYBODYS and response.status_code < 500:
        raise NotOurGateway(
            f"{base} is not this gateway (it answered HTTP {response.status_code}), and deleting a context is no "
            "operation of A2A: only whoever runs that agent can do it"
        )
    raise refusal(response, body)
