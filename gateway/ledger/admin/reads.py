"""The port `AdminReads`. Law: a row of another tenant does not exist for these reads; nothing that grows is read whole, and
no read holds up another for longer than a few hundred rows take."""

from typing import Protocol

from gateway.ledger.admin.contexts import (
    ContextFilter,
    ContextMap,
    ContextPage,
    Continuation,
    HandleSteps,
    Places,
    StepKey,
    ThreadTurns,
)
from gateway.ledger.admin.timelines import Body, BodyKey, EventPage, TaskHead, Timeline
from gateway.ledger.admin.upkeep import (
    DeletionKey,
    Deliveries,
    DeliveryFilter,
    DeliveryKey,
    FailureKey,
    Failures,
    HandleDeletions,
    Overview,
)

PATIENCE = 0.25
"""Seconds after which a search stops behind the rows that it has read, and says how far it came."""

PREVIEW = 600
"""Characters of a long text that are read along with its row. The ids of a message stand before its words."""


class AdminReads(Protocol):
    """All of it raises LedgerUnavailable, and CorruptRecord for a row that cannot be read and that was asked for alone; in
    lists such a row is shown without what cannot be read. None: there is no such row in this tenant."""

    # --- contexts

    async def contexts(
        self,
        tenant: str,
        where: ContextFilter,
        before: str | None = None,
        *,
        limit: int = 50,
        patience: float = PATIENCE,
    ) -> ContextPage:
        """The contexts that match, that with the latest turn first; with a text, that with the latest turn that has it. With a
        text a context may come again on a later page."""

    async def context(self, tenant: str, context: str) -> ContextMap | None: ...

    async def turns(self, tenant: str, thread: str, before: int | None = None) -> ThreadTurns | None: ...

    async def handle_steps(self, tenant: str, thread: str, before: StepKey | None = None) -> HandleSteps | None:
        """`thread` is a live thread, or the archive of an epoch: then its live thread is meant."""

    async def continuation(self, tenant: str, context: str, agent: str) -> Continuation | None: ...

    # --- a task

    async def task_head(self, tenant: str, task: str) -> TaskHead | None: ...

    async def timeline(self, tenant: str, task: str, after: int = 0) -> Timeline | None:
        """The turns with numbers above `after`."""

    async def previews(self, tenant: str, keys: tuple[BodyKey, ...]) -> dict[BodyKey, Body]:
        """The first PREVIEW characters of these texts, at most 300 of them; without those that are not there, or NULL."""

    async def body(self, tenant: str, key: BodyKey, offset: int = 0) -> Body | None:
        """At most 65,536 characters."""

    async def task_events(self, tenant: str, task: str, after: int = 0, limit: int = 200) -> EventPage | None:
        """At most `limit` events with numbers above `after`, of together 256 KiB or one event; one of more than 64 KiB is
        cut."""

    async def event(self, tenant: str, task: str, number: int) -> bytes | None:
        """An event as a whole."""

    # --- upkeep

    async def overview(self, tenant: str) -> Overview: ...

    async def failures(
        self, tenant: str, agent: str | None = None, before: FailureKey | None = None, *, limit: int = 20,
        patience: float = PATIENCE,
    ) -> Failures:  # fmt: skip
        """Turns that failed, of all agents or of one, the latest first."""

    async def deliveries(
        self, tenant: str, where: DeliveryFilter, before: DeliveryKey | None = None, *, task: str | None = None
    ) -> Deliveries:
        """Push configurations; with a task all of that one, those too that have nothing left to deliver."""

    async def handle_deletions(
        self, tenant: str, given_up: bool, after: DeletionKey | None = None
    ) -> HandleDeletions: ...

    async def locate(
        self, tenant: str, wanted: str, before: str | None = None, *, patience: float = PATIENCE
    ) -> Places:
        """Everything that has the id `wanted`. What no index finds is looked for from the latest turn back."""
