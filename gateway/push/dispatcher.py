"""Push notifications are delivered beside everything else. Law: a delivery is taken before it is made, so that of two
processes one makes it, and who dies in between loses nothing; no task ever waits for a receiver."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from gateway.foundation.clock import Clock
from gateway.ledger.errors import Conflict, LedgerUnavailable
from gateway.ledger.port import PushLedger
from gateway.ledger.push import DuePush, PushConfig
from gateway.push.delivery import Delivery, PushLimits
from gateway.push.webhook import Outcome, WebhookRequests

if TYPE_CHECKING:
    from gateway.push.sender import Sender

log = structlog.get_logger("gateway.push.dispatcher")

INTERVAL = 0.1
_IDLE = 5.0
"""Seconds between two looks, while some task may get events that are to be delivered, and while none does."""

_REST = 4
"""So many times as long as a look took, nobody looks again."""


class Dispatcher:
    """One instance serves the whole database, beside those of other processes. `run` belongs into a task group."""

    def __init__(
        self,
        ledger: PushLedger,
        open_sender: Callable[[], "Sender"],
        letters: WebhookRequests,
        clock: Clock,
        limits: PushLimits,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`open_sender` is called with the first delivery; `chance` is from 0 to 1."""
        self._ledger = ledger
        self._open_sender = open_sender
        self._letters = letters
        self._clock = clock
        self._limits = limits
        self._chance = chance
        self._woken = asyncio.Event()
        self._sender: Sender | None = None
        self._flying: set[tuple[str, str]] = set()
        self._hosts: Counter[str] = Counter()

    def wake(self) -> None:
        """There may be something new to do."""
        self._woken.set()

    @property
    def busy(self) -> bool:
        """Something is being delivered."""
        return bool(self._flying)

    async def run(self) -> None:
        """Never returns."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    began = self._clock.monotonic()
                    pause = await self._look(group)
                    # A look takes the longer the more is due, and each post that ends asks for one.
                    await asyncio.sleep(_REST * (self._clock.monotonic() - began))
                    try:
                        async with asyncio.timeout(pause):
                            await self._woken.wait()
                    except TimeoutError:
                        pass
        finally:
            if self._sender is not None:
                await self._sender.aclose()

    async def _look(self, group: asyncio.TaskGroup) -> float:
        """Starts what is due and has room. Returns the seconds until the next look."""
        self._woken.clear()
        try:
            active, due_at = await self._ledger.next_push()
            if due_at is not None and due_at <= self._clock.now():
                await self._start(group)
        except LedgerUnavailable as error:
            log.warning("push.skipped", error=str(error))
            return _IDLE
        except Exception:  # whatever it is, the gateway goes on without
            log.exception("push.skipped")
            return _IDLE
        return INTERVAL if active else _IDLE

    async def _start(self, group: asyncio.TaskGroup) -> None:
        room = self._limits.posts - len(self._flying)
        if room <= 0:
            return
        full = tuple(sorted(host for host, count in self._hosts.items() if count >= self._limits.per_host))
        for due in await self._ledger.due_pushes(self._clock.now(), full, room):
            key, host = (due.config.task, due.config.id), due.config.host
            if key in self._flying or self._hosts[host] >= self._limits.per_host:
                continue
            self._flying.add(key)
            self._hosts[host] += 1
            group.create_task(self._carry_out(due))

    async def _carry_out(self, due: DuePush) -> None:
        try:
            await Delivery(due, self._ledger, self._post, self._clock, self._limits, self._chance).run()
        except Conflict:
            pass  # another process has it, or it was changed
        except LedgerUnavailable as error:
            log.warning("push.not-recorded", task=due.config.task, error=str(error))
        except Exception:  # the others go on, and this one is tried again when it is not taken any more
            log.exception("push.skipped", task=due.config.task)
        finally:
            self._flying.discard((due.config.task, due.config.id))
            self._hosts[due.config.host] -= 1
            if not self._hosts[due.config.host]:
                del self._hosts[due.config.host]
            self.wake()

    async def _post(self, config: PushConfig, number: int, body: bytes) -> Outcome:
        """Raises: UnreadableSecret."""
        headers = self._letters.headers(config, number, body, self._clock.now() // 1000)
        if self._sender is None:
            self._sender = self._open_sender()
        return await self._sender.post(config.url, headers, body)
