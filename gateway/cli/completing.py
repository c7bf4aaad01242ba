"""What the shell may complete. Law: quick and silent; who presses Tab wants no error, and no answer is one."""

import http.client
import json
from urllib.parse import urlsplit

_TIMEOUT = 0.5
_LARGEST = 1_000_000


def agent_names(url: str) -> list[str]:
    """The agents of the gateway that runs there, none where nothing of the kind does."""
    try:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname or "", parts.port, timeout=_TIMEOUT)
        try:
            connection.request("GET", f"{parts.path.rstrip('/')}/a2a")
            listing = json.loads(connection.getresponse().read(_LARGEST))
        finally:
            connection.close()
        return [str(item["agent"]) for item in listing["agents"]]
    except (OSError, http.client.HTTPException, ValueError, LookupError, TypeError):
        return []
