"""What the reads for operators may take of a large ledger, of any store: queries, rows and characters, not time."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple

import pytest

from gateway.ledger.admin.contexts import ContextFilter, Standing
from gateway.ledger.admin.timelines import BodyKey
from gateway.ledger.admin.upkeep import DeliveryFilter
from gateway.testing.ledger_points import Opener
from storage.read.admin.queries import AdminQueries
from storage.stored_ledger import StoredLedger
from tests.storage.many import EVENTS, LONG, CountingReaders, fill

TASK, THREAD, CONTEXT = f"task-{LONG}", f"thread-{LONG}", f"context-{LONG}"
PREVIEWS = tuple(BodyKey("arguments", f"tool-{number:05}") for number in range(300))


class Bound(NamedTuple):
    """A read of the tenant, with at most so many queries, rows and characters."""

    read: Callable[[AdminQueries], Awaitable[object]]
    queries: int
    rows: int
    characters: int


BOUNDS: dict[str, Bound] = {
    "the first contexts": Bound(lambda admin: admin.contexts("acme", ContextFilter()), 9, 200, 80_000),
    "later contexts": Bound(lambda admin: admin.contexts("acme", ContextFilter(), "turn-0-02500"), 9, 200, 80_000),
    "contexts of a principal": Bound(
        lambda admin: admin.contexts("acme", ContextFilter(principal="principal-7")), 100, 400, 80_000
    ),
    "contexts of nobody": Bound(
        lambda admin: admin.contexts("acme", ContextFilter(principal="none")), 100, 200, 10_000
    ),
    "contexts that work": Bound(
        lambda admin: admin.contexts("acme", ContextFilter(standing=Standing.WORKING)), 2, 30, 20_000
    ),
    "contexts that wait": Bound(
        lambda admin: admin.contexts("acme", ContextFilter(standing=Standing.WAITING)), 2, 30, 20_000
    ),
    "contexts that are lost": Bound(
        lambda admin: admin.contexts("acme", ContextFilter(standing=Standing.LOST)), 2, 40, 20_000
    ),
    "contexts that say so": Bound(
        lambda admin: admin.contexts("acme", ContextFilter(text="my order")), 9, 200, 120_000
    ),
    "contexts that said it long ago": Bound(
        lambda admin: admin.contexts("acme", ContextFilter(text="message 7:")), 100, 200, 10_000
    ),
    "a context": Bound(lambda admin: admin.context("acme", CONTEXT), 3, 5, 500),
    "turns of a thread": Bound(lambda admin: admin.turns("acme", THREAD), 2, 5, 2000),
    "steps of a handle": Bound(lambda admin: admin.handle_steps("acme", THREAD), 3, 5, 2000),
    "a timeline": Bound(lambda admin: admin.timeline("acme", TASK), 8, EVENTS + 10, EVENTS * 150),
    "previews": Bound(lambda admin: admin.previews("acme", PREVIEWS), 1, 300, 300 * 620),
    "a body": Bound(lambda admin: admin.body("acme", BodyKey("outcome", "tool-00007")), 1, 1, 66_000),
    "events": Bound(lambda admin: admin.task_events("acme", TASK), 9, 300, 550_000),
    "later events": Bound(lambda admin: admin.task_events("acme", TASK, 1500), 9, 300, 550_000),
    "an overview": Bound(lambda admin: admin.overview("acme"), 21, 2000, 120_000),
    "failures": Bound(lambda admin: admin.failures("acme", "notes"), 20, 100, 20_000),
    "deliveries": Bound(lambda admin: admin.deliveries("acme", DeliveryFilter.ACTIVE), 1, 101, 20_000),
    "deletions": Bound(lambda admin: admin.handle_deletions("acme", given_up=True), 1, 101, 20_000),
    "a public id": Bound(lambda admin: admin.locate("acme", "public-0-00007"), 9, 20, 2000),
    "a handle": Bound(lambda admin: admin.locate("acme", "resp-0-00007"), 100, 100, 5000),
}


class BoundTests:
    """A subclass gives the opener of an empty database."""

    @pytest.fixture
    def opener(self) -> Opener:
        raise NotImplementedError

    async def test_no_read_grows_with_the_ledger(self, opener: Opener) -> None:
        async with opener() as ledger:
            assert isinstance(ledger, StoredLedger)
            await fill(ledger)
            beyond = {}
            for name, bound in BOUNDS.items():
                counting = CountingReaders(ledger._readers)
                await bound.read(AdminQueries(counting, ledger.now))
                taken = (counting.queries, counting.rows, counting.characters)
                if any(found > most for found, most in zip(taken, bound[1:], strict=True)):
                    beyond[name] = taken
            assert beyond == {}

    async def test_pages_of_contexts_follow_each_other_without_gap_or_overlap(self, opener: Opener) -> None:
        async with opener() as ledger:
            await fill(ledger, contexts=500, events=10)
            found, before = [], None
            while True:
                page = await ledger.admin.contexts("acme", ContextFilter(), before)
                found += [each.public_id for each in page.contexts]
                before = page.before
                if before is None:
                    break
            assert found == [f"public-{LONG}", *[f"public-0-{number:05}" for number in reversed(range(500))]]
