"""What the callers of each process use of their limits, so that all processes on a ledger count together."""

import msgspec

from gateway.ledger.threads import Caller


class CallerUse(msgspec.Struct, frozen=True, array_like=True):
    """Of one principal, in one process: open streams, turns that run or wait, and a number of requests that grows with each.
    That number begins anew when all requests are long ago."""

    principal: str
    tenant: str = ""
    requests: int = 0
    streams: int = 0
    runs: int = 0

    @property
    def caller(self) -> Caller:
        return Caller(self.principal, self.tenant)


class ReportUse(msgspec.Struct, frozen=True):
    """The process counts together with others, and its callers use this, until `until`. It replaces the report before. Reports
    that have lapsed are deleted."""

    process: str
    until: int
    callers: tuple[CallerUse, ...]
    now: int


class WithdrawUse(msgspec.Struct, frozen=True):
    """The report of the process is deleted, if there is one."""

    process: str


class ReportedUse(msgspec.Struct, frozen=True):
    """The report of a process that has not lapsed."""

    process: str
    callers: tuple[CallerUse, ...]
