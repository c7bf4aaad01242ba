"""The leases of this process: their length, and their renewal for as long as the process runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Seconds. A lease is renewed `renewals` times before it would run out.

    `start`: so long it may take, before anything is served, to end what dead processes left; the rest ends beside the service.
    """

    length: float = 5.0
    renewals: int = 3
    start: float = 1.0

    @property
    def round(self) -> float:
        return self.length / self.renewals

    def rest(self, took: float) -> float:
        """From the end of a renewal to the next. None behind one that took long: what is stored late is old by then."""
        return max(0.0, self.round - took)
