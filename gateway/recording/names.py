"""Members, parameters and shapes that are known by their names: those of a secret, those that only a backend can read, and
declarations. Law: pure."""

import re

from gateway.a2a.model import Json

_SECRETS = frozenset(
    {"assertion", "authorization", "clientassertion", "cookie", "credential", "credentials", "jwt", "passwd", "pwd"}
    | {"proxyauthorization", "secret", "setcookie", "signature", "streamurl", "token"}
)
"""By their letters and digits, in small ones."""
_SECRET_ENDS = tuple(
    {"accesskey", "apikey", "connectionstring", "passphrase", "password", "privatekey", "secretkey", "subscriptionkey"}
    | {"clientsecret", "apisecret"}
    | {f"{kind}token" for kind in ("access", "api", "auth", "bearer", "id", "refresh", "security", "session")}
)
"""The ends of such names: `db_password`, `x-api-key`. No other token is one: `next_page_token`, `max_tokens`."""
_PARAMETERS = frozenset({"key", "sig"})
_SEALED = frozenset({"encryptedcontent", "encryptedindex", "signature", "thoughtsignature"})

NOTABLE = re.compile(
    "token|secret|key|passw|pwd|passphrase|credential|authorization|cookie|jwt|assertion|connection|stream_?url"
    "|encrypted|signature|sig=|redacted_thinking|://[^/\\s]*@",
    re.IGNORECASE,
)
"""A text without any of these words has nothing that is masked by its name."""


def names_secret(name: str) -> bool:
    plain = plain_name(name)
    return plain in _SECRETS or plain.endswith(_SECRET_ENDS)


def names_secret_parameter(name: str) -> bool:
    return plain_name(name) in _PARAMETERS or names_secret(name)


def names_sealed(name: str) -> bool:
    """Whether only the backend can read the text of this member."""
    return plain_name(name) in _SEALED


def plain_name(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def is_declaration(value: dict[str, Json]) -> bool:
    """Whether it declares what may be called, and is no call: a tool with the schema of its arguments, a schema, a card."""
    match value:
        case {"name": str(), "skills": list(), "capabilities": dict()}:
            return True
        case {"type": "function", "function": {"name": str(), "arguments": _}}:
            return False
        case {"type": "function", "function": {"name": str()}}:
            return True
        case (
            {"name": str(), "parameters": dict(schema)}
            | {"name": str(), "inputSchema": dict(schema)}
            | {"name": str(), "input_schema": dict(schema)}
            | {"name": str(), "parametersJsonSchema": dict(schema)}
        ):
            return not schema or _is_schema(schema)
    return _is_schema(value)


def _is_schema(value: dict[str, Json]) -> bool:
    match value:
        case {"type": str(kind)} if kind.lower() == "object":
            return isinstance(value.get("properties", {}), dict)
        case {"properties": dict(members)}:
            return bool(members) and all(isinstance(member, dict | bool) for member in members.values())
    return False
