"""What options mean that are more than words. Law: a bad one is told before anything is sent."""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from gateway.cli.exits import ExitCode, Stop

KEY_VARIABLE = "A2A_GATEWAY_KEY"


def read_url(url: str) -> str:
    """The same address. Raises: Stop (2) for what is none."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() for character in url):
        raise Stop(ExitCode.USAGE, f"{url!r} is no address; write one such as http://127.0.0.1:8080")
    return url


def read_headers(given: Sequence[str]) -> dict[str, str]:
    """Headers from `NAME: VALUE`. Raises: Stop (2)."""
    headers = {}
    for header in given:
        name, colon, value = header.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not name.replace("-", "").replace("_", "").isalnum() or not f"{name}{value}".isascii():
            raise Stop(ExitCode.USAGE, f"--header must look like 'Name: value', not {name!r}")
        if not value.isprintable():
            raise Stop(ExitCode.USAGE, f"--header {name!r} holds a control character")
        headers[name] = value
    return headers


def read_key(key: str | None) -> str | None:
    """The API key; None where there is none, or an empty one. Raises: Stop (2)."""
    text = (key or "").strip()
    if not text.isascii() or not text.isprintable() or " " in text:
        raise Stop(ExitCode.USAGE, "the API key holds what no key can hold: is it whole, and nothing else?")
    return text or None


def with_key(headers: Mapping[str, str], key: str | None) -> dict[str, str]:
    """The headers that a request carries. One that was typed says more than a key."""
    if key is None or any(name.lower() == "authorization" for name in headers):
        return dict(headers)
    return {**headers, "Authorization": f"Bearer {key}"}
