"""The way of a message through gateways, in its metadata. Law: pure; no agent gets a message that has been at it already.

A hop is the agent that the message was sent on to, as a digest of its address: any gateway of the way knows its own again,
whichever process it is, and nobody learns addresses.
"""

from hashlib import sha256

from gateway.a2a.model import Json

URI = "https://a2a-gateway.dev/extensions/hops/v1"
"""The key of the metadata."""

MOST = 8


class Loop(ValueError):
    """The message has been sent to this agent already, or to too many."""


def hop(url: str) -> str:
    return sha256(url.encode()).hexdigest()[:16]


def passed(metadata: dict[str, Json] | None, own: str) -> list[str]:
    """The hops of the message as it is sent to the agent `own`. Raises: Loop."""
    found = (metadata or {}).get(URI)
    before = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    if own in before:
        raise Loop("gateways form a loop: the message has been sent to this agent already")
    if len(before) >= MOST:
        raise Loop(f"the message has been through {len(before)} gateways, and may go through {MOST}")
    return [*before, own]
