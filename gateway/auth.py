"""Credentials to a caller. Law: a failed credential raises, it never yields a caller without a name."""

from collections.abc import Mapping

from gateway.commits import Caller

_ANYONE = Caller("anonymous")


class NoAuthentication:
    """Mode `none`: whoever reaches the gateway is the same anonymous caller."""

    def authenticate(self, headers: Mapping[str, str]) -> Caller:
        """`headers` are those of the HTTP request, names in any case. Raises: Unauthenticated."""
        return _ANYONE
