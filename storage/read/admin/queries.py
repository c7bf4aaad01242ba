"""All reads of `AdminReads`."""

from collections.abc import Callable

from storage.read.admin.contexts import ContextQueries
from storage.read.admin.places import PlaceQueries
from storage.read.admin.timelines import TimelineQueries
from storage.read.admin.upkeep import UpkeepQueries
from storage.read.queries import Readers


class AdminQueries(ContextQueries, TimelineQueries, UpkeepQueries, PlaceQueries):
    """`now` is the ledger's clock."""

    def __init__(self, readers: Readers, now: Callable[[], int]) -> None:
        self._readers = readers
        self._now = now
