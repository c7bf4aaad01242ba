"""The address of a request. Law: one of a setting has been checked; any other was named by a backend, and may be anything. A
name fills one segment of a path, or no request is made.
"""

from urllib.parse import quote

from yarl import URL

from adapters.http.failures import Failures
from gateway.ports.adapter import ErrorClass

_SCHEMES = frozenset({"http", "https"})
NO_SEGMENTS = frozenset({"", ".", ".."})
"""Clients and servers take these for steps in the path, also percent-encoded. Source: RFC 3986, section 5.2.4."""


def readable(url: str, failures: Failures) -> URL:
    """The address as aiohttp writes it. Raises: AdapterError for what is none, and for one with credentials: these would take
    the place of those of the settings."""
    try:
        address = URL(url)
    except ValueError:
        # The text of this error quotes the address.
        address = None
    if address is None or address.scheme not in _SCHEMES or not address.host:
        raise failures.error(ErrorClass.CONTRACT_BROKEN, "an address that is none")
    if address.raw_user or address.raw_password:
        raise failures.error(ErrorClass.CONTRACT_BROKEN, f"an address with credentials, at {address.host}")
    return address


def path_segment(name: str) -> str:
    """The name as one segment of a path. Raises: ValueError for a name that would lead to another path."""
    if name in NO_SEGMENTS:
        raise ValueError(f"{name!r} cannot stand in an address")
    return quote(name, safe="")


def id_segment(name: str, failures: Failures) -> str:
    """As `path_segment`, for the id of an object of the backend. Raises: AdapterError."""
    try:
        return path_segment(name)
    except ValueError as error:
        what = f"an id that cannot stand in an address: {name!r}"
        raise failures.error(ErrorClass.CONTRACT_BROKEN, what) from error
