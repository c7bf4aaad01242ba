"""The address of a request. Law: one of a setting has been checked; any other was named by a backend, and may be anything."""

from yarl import URL

from adapters.http.failures import Failures
from gateway.ports.adapter import ErrorClass

_SCHEMES = frozenset({"http", "https"})


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
