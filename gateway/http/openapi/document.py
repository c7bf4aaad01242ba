"""The whole OpenAPI description."""

from collections.abc import Iterable
from typing import Any

from gateway.a2a.model import Json
from gateway.a2a.wire import v1_0
from gateway.a2a.wire.card import openapi_scheme
from gateway.core.agents import Agents
from gateway.http.admin import AdminAddress
from gateway.http.openapi.administration import TAG, admin_paths
from gateway.http.openapi.errors import error_schema
from gateway.http.openapi.operations import BINDINGS, Described
from gateway.http.openapi.schemas import Schemas

_ABOUT = (
    "Agents over HTTP+JSON of A2A, and operations on whole contexts. Where there is a default agent, its operations are also "
    "below `/a2a` without a name. JSON-RPC is spoken by POST at `/a2a/{agent}`, and each agent has its card at "
    "`/a2a/{agent}/.well-known/agent-card.json`."
)
_ADMIN = "Where callers authenticate, it needs an admin key. A caller reaches only its own data."


def document(agents: Agents, public_url: str, longest: int, admin: Iterable[AdminAddress]) -> dict[str, Json]:
    """`public_url` is the gateway's, `longest` the length of the longest id in a request, `admin` what is served of the admin
    API."""
    schemas = Schemas()
    schemes = _schemes(agents)
    paths: dict[str, Json] = {}
    bodies: dict[str, Json] = {}
    for binding in BINDINGS:
        described = Described(binding, schemas, list(agents.by_name), longest, bool(schemes))
        paths |= described.paths()
        bodies[f"{binding.space}Error"] = error_schema(binding.version.errors)
    paths |= admin_paths(admin, schemas, "Error", keyed=bool(schemes))
    tags: list[dict[str, Any]] = [{"name": binding.tag} for binding in BINDINGS]
    return {
        "openapi": "3.1.0",
        "info": {"title": "A2A Gateway", "version": v1_0.VERSION, "description": _ABOUT},
        "servers": [{"url": public_url}],
        "tags": [*tags, {"name": TAG, "description": _ADMIN}],
        "paths": paths,
        "components": {
            "schemas": {**schemas.components(), **bodies},
            **({"securitySchemes": schemes} if schemes else {}),
        },
        **({"security": [{name: []} for name in schemes]} if schemes else {}),
    }


def _schemes(agents: Agents) -> dict[str, Json]:
    """The ways to authenticate that the cards name."""
    found = {
        name: openapi_scheme(scheme)
        for agent in agents
        for name, scheme in (agent.public_card.security_schemes or {}).items()
    }
    return dict(sorted(found.items()))
