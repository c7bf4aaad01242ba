"""Delivers the events of one push configuration, from its cursor to the latest event or the first failure. Law: only logged
events are sent, in their order; an event is delivered when its receiver has confirmed it and that is stored.

Source: A2A 1.0, section 4.3.3; Standard Webhooks 1.0.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
import structlog
from msgspec.structs import replace

from gateway.foundation.clock import Clock
from gateway.foundation.retry import scheduled
from gateway.foundation.sealing import UnreadableSecret
from gateway.ledger.errors import CorruptRecord, LedgerUnavailable
from gateway.ledger.port import PushLedger
from gateway.ledger.push import AdvancePush, ClaimPush, CompletePush, DuePush, FailPush, PushConfig, PushState
from gateway.push import bodies
from gateway.push.bodies import UnknownVersion
from gateway.push.webhook import Outcome

log = structlog.get_logger("gateway.push.delivery")

RETRY_WAITS = (5, 5 * 60, 30 * 60, 2 * 3600, 5 * 3600, 10 * 3600, 14 * 3600, 20 * 3600, 24 * 3600)
"""Seconds from one attempt to the next; the last entry repeats."""

_JITTER = 0.2
_MAX_RETRY_AFTER = 24 * 3600.0
"""Seconds that a receiver may ask for in Retry-After."""

_CLAIM_MARGIN = 2.0
"""Seconds by which the claim on a delivery outlasts the timeout of a post."""

_BATCH = 200
"""Events of one configuration in a row, so that others get their turn."""


class PushLimits(msgspec.Struct, frozen=True):
    """The limits of deliveries. `timeout` is the time for one post, in seconds; `attempts` is the number of attempts
    for one event. `posts` is the number of posts at the same time, `per_host` the number of them to one host."""

    timeout: float = 15.0
    attempts: int = len(RETRY_WAITS) + 1
    posts: int = 64
    per_host: int = 4


Post = Callable[[PushConfig, int, bytes], Awaitable[Outcome]]
"""Posts a body for the event with this number. Raises: UnreadableSecret."""


class Delivery(msgspec.Struct):
    """`due` is kept up to date. `chance` is from 0 to 1."""

    due: DuePush
    ledger: PushLedger
    post: Post
    clock: Clock
    limits: PushLimits
    chance: Callable[[], float]

    async def run(self) -> None:
        """Raises: Conflict when another process has claimed the delivery, or the configuration changed; LedgerUnavailable."""
        # Commits are ordered, so a commit under way is stored before the commit that a cancellation submits.
        config = self.due.config
        claim = ClaimPush(config.task, config.id, self.due.due_at, self._claim_end())
        self.due = replace(self.due, due_at=claim.until)
        try:
            await self.ledger.commit(claim)
            await self._deliver_all()
        except asyncio.CancelledError:
            # The process stops. It gives up the claim, so that the next process need not wait for its end.
            self.ledger.submit((self._complete(self.due.next_event),), lambda _: None)
            raise
        except CorruptRecord as error:
            log.error("push.unreadable", task=config.task, error=str(error))
            await self._fail("the event cannot be read", PushState.STOPPED)

    async def _deliver_all(self) -> None:
        last = self.due.next_event + _BATCH
        while self.due.next_event < last:
            events = await self.ledger.push_events(self.due.config.task, self.due.next_event)
            if not events:
                break
            # Read behind the events: the first one of a task is stored with the mark that there is one.
            if not self.due.visible and await self.ledger.is_hidden(self.due.config.task):
                await self.ledger.commit(self._complete(events[-1][0] + 1))
                return
            for number, payload in events[: last - self.due.next_event]:
                if not await self._deliver(number, payload):
                    return
        await self.ledger.commit(self._complete(self.due.next_event))

    async def _deliver(self, number: int, payload: bytes) -> bool:
        config = self.due.config
        try:
            body = await bodies.body(self.ledger, config.version, config.task, number, payload)
            if body is None:
                self.due = replace(self.due, next_event=number + 1)
                return True
            outcome = await self.post(config, number, body)
        except (CorruptRecord, LedgerUnavailable):
            raise
        except UnreadableSecret as error:
            log.error("push.unreadable", task=config.task, config=config.id, error=str(error))
            await self._fail("its token and credentials cannot be decrypted", PushState.STOPPED)
            return False
        except UnknownVersion:
            await self._fail(f"A2A {config.version} is not spoken here", PushState.STOPPED)
            return False
        except Exception:  # counts as an attempt, so that a defect does not repeat for ever
            log.exception("push.broken", task=config.task, config=config.id)
            await self._fail("the gateway could not post it", None)
            return False
        if not outcome.delivered:
            await self._fail(str(outcome), PushState.GONE if outcome.unwanted else None, outcome.retry_after)
            return False
        advance = AdvancePush(config.task, config.id, self.due.due_at, number + 1, self._claim_end())
        self.due = replace(self.due, next_event=number + 1, due_at=advance.until, attempts=0)
        await self.ledger.commit(advance)
        return True

    async def _fail(self, error: str, final: PushState | None, retry_after: float | None = None) -> None:
        """Records a failed attempt. When `final` is None, another attempt follows, unless this attempt was the last
        one."""
        config, attempts = self.due.config, self.due.attempts + 1
        if final is None and attempts >= self.limits.attempts:
            final = PushState.STOPPED
        until = None
        if final is None:
            wait = scheduled(RETRY_WAITS, attempts, _JITTER * (2 * self.chance() - 1))
            wait = max(wait, min(retry_after or 0.0, _MAX_RETRY_AFTER))
            until = self.clock.now() + int(wait * 1000)
        await self.ledger.commit(
            FailPush(config.task, config.id, self.due.due_at, until, final or PushState.ACTIVE, attempts, error)
        )
        labels = {"task": config.task, "config": config.id, "number": self.due.next_event}
        if final is None:
            log.info("push.failed", **labels, attempts=attempts, error=error)
        else:
            log.warning("push.given-up", state=final.value, **labels, attempts=attempts, error=error)

    def _complete(self, next_event: int) -> CompletePush:
        return CompletePush(self.due.config.task, self.due.config.id, self.due.due_at, next_event)

    def _claim_end(self) -> int:
        return self.clock.now() + int((self.limits.timeout + _CLAIM_MARGIN) * 1000)
