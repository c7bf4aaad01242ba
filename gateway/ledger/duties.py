"""Work that one process at a time does for all on the ledger: who does it."""

import msgspec

from gateway.ledger.leases import LONGEST_LEASE


class TakeDuty(msgspec.Struct, frozen=True):
    """The holder has the duty until `until`, or has it for longer. Conflict when another process has it."""

    duty: str
    holder: str
    until: int
    now: int


class LeaveDuty(msgspec.Struct, frozen=True):
    """The holder has the duty no longer. It may have lost it already."""

    duty: str
    holder: str


class HeldDuty(msgspec.Struct, frozen=True):
    """A process that has taken a duty and not left it."""

    holder: str
    until: int

    def has_lapsed(self, now: int) -> bool:
        """As in TakeDuty: another process may have it."""
        return self.until < now or self.until > now + LONGEST_LEASE
