"""Starts deliveries of push notifications when they are due. Law: a delivery is claimed before it is made, so that one process
makes it and a crash loses nothing; no task waits for a receiver."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from gateway.foundation.clock import Clock
from gateway.ledger.errors import Conflict, LedgerUnavailable, skip_failures
from gateway.ledger.port import PushLedger
from gateway.ledger.push import DuePush, PushConfig
from gateway.ports.observer import SILENT, Observer
from gateway.push.delivery import Delivery, PushLimits
from gateway.push.traced import TracedPost
from gateway.push.webhook import Outcome, WebhookRequests

if TYPE_CHECKING:
    from gateway.push.sender import Sender

log = structlog.get_logger("gateway.push.dispatcher")

_INTERVAL = 5.0
"""Seconds between two polls without a reason: a change may not have been heard of, and another process may have died with
deliveries to make."""

_PAUSE_FACTOR = 4
"""The next poll starts no earlier than this multiple of the last poll's duration."""


@dataclass(slots=True, eq=False)
class Dispatcher:
    """One instance per process serves the whole database. `run` belongs into a task group.

    `open_sender` is called with the first delivery; `chance` is from 0 to 1. `want` is told whether commits are to be heard of.
    """

    ledger: PushLedger
    open_sender: Callable[[], "Sender"]
    webhooks: WebhookRequests
    clock: Clock
    limits: PushLimits
    chance: Callable[[], float] = random.random
    want: Callable[[bool], None] = lambda _: None
    observer: Observer = SILENT
    _active: bool = False
    _woken: asyncio.Event = field(default_factory=asyncio.Event)
    _sender: "Sender | None" = None
    _under_way: set[tuple[str, str]] = field(default_factory=set)
    _hosts: Counter[str] = field(default_factory=Counter)

    def wake(self) -> None:
        """There may be a new delivery to make."""
        self._woken.set()

    def hear(self) -> None:
        """Something was committed, perhaps an event of a task with configurations."""
        if self._active:
            self._woken.set()

    async def run(self) -> None:
        """Never returns."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    began = self.clock.monotonic()
                    pause = await self._poll(group)
                    # A poll takes longer the more is due, and each delivery that ends asks for one.
                    await asyncio.sleep(_PAUSE_FACTOR * (self.clock.monotonic() - began))
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause):
                            await self._woken.wait()
        finally:
            if self._sender is not None:
                await self._sender.aclose()

    async def _poll(self, group: asyncio.TaskGroup) -> float:
        """Starts the due deliveries that the limits admit. Returns the seconds until the next poll."""
        self._woken.clear()
        with skip_failures(log, "push.skipped"):
            self._active, due_at = await self.ledger.next_push()
            self.want(self._active)
            wait = _INTERVAL if due_at is None else (due_at - self.clock.now()) / 1000
            if wait > 0:
                return min(wait, _INTERVAL)
            await self._start(group)
        return _INTERVAL

    async def _start(self, group: asyncio.TaskGroup) -> None:
        room = self.limits.posts - len(self._under_way)
        if room <= 0:
            return
        full = tuple(sorted(host for host, count in self._hosts.items() if count >= self.limits.per_host))
        for due in await self.ledger.due_pushes(self.clock.now(), full, room):
            key, host = (due.config.task, due.config.id), due.config.host
            if key in self._under_way or self._hosts[host] >= self.limits.per_host:
                continue
            self._under_way.add(key)
            self._hosts[host] += 1
            group.create_task(self._deliver(due))

    async def _deliver(self, due: DuePush) -> None:
        try:
            await Delivery(due, self.ledger, self._post, self.clock, self.limits, self.chance).run()
        except Conflict:
            pass  # another process has claimed it, or the configuration changed
        except LedgerUnavailable as error:
            log.warning("push.not-recorded", task=due.config.task, error=str(error))
        except Exception:  # the other deliveries continue, and this one is repeated when its claim ends
            log.exception("push.skipped", task=due.config.task)
        finally:
            self._under_way.discard((due.config.task, due.config.id))
            self._hosts[due.config.host] -= 1
            if not self._hosts[due.config.host]:
                del self._hosts[due.config.host]
            self.wake()

    async def _post(self, config: PushConfig, number: int, body: bytes) -> Outcome:
        """Raises: UnreadableSecret."""
        headers = self.webhooks.headers(config, number, body, self.clock.now() // 1000)
        if self._sender is None:
            self._sender = self.open_sender()
        traced = None
        if self.observer.traces:
            traced = await TracedPost.begun(self.ledger, self.observer, self.clock, config, number)
        if traced is not None:
            headers |= traced.headers
        began = self.clock.monotonic()
        outcome = await self._sender.post(config.url, headers, body)
        told = "delivered" if outcome.delivered else "unwanted" if outcome.unwanted else "failed"
        self.observer.pushed(told, self.clock.monotonic() - began)
        if traced is not None:
            traced.end(outcome)
        return outcome
