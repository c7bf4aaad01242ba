"""What every turn of a process works with: the ledger, the clock, the lease, how time passes, how a backend is called."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, field

from gateway.clock import Clock
from gateway.commits.calls import Prepare
from gateway.commits.threads import ThreadRecord
from gateway.ledger_port import Ledger
from gateway.ports import Adapter, AdapterEvent, ServiceRequest

_WARNED = 1000
"""Threads of which is remembered that their operator was warned."""

Call = Callable[[Adapter, ServiceRequest], AsyncGenerator[AdapterEvent, None]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How the time between two tries passes. `jitter` gives numbers from 0 to 1."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    jitter: Callable[[], float] = random.random


@dataclass(slots=True)
class Means:
    """`holder` is the id of this process, `lease` the length of its leases in seconds."""

    ledger: Ledger
    clock: Clock
    holder: str
    lease: float
    pace: Pace
    call: Call = lambda adapter, request: adapter.call(request)
    _warned: dict[str, None] = field(default_factory=dict)

    def lease_until(self) -> int:
        return self.clock.now() + int(self.lease * 1000)

    def prepare(self, thread: ThreadRecord, turn: str, task: str, *, round_: int = 0, attempt: int = 0) -> Prepare:
        """C2. The first call of a turn takes the lease."""
        return Prepare(
            thread=thread.id,
            generation=thread.generation,
            holder=self.holder,
            lease_until=self.lease_until(),
            turn=turn,
            task=task,
            service_call=self.clock.row_id(),
            round=round_,
            attempt=attempt,
            handle_in=thread.handle,
            now=self.clock.now(),
            event=None,
        )

    def first_warning(self, thread: str) -> bool:
        """The operator is to be warned of this thread, and has not been before."""
        if thread in self._warned:
            return False
        self._warned = {thread: None, **dict(list(self._warned.items())[: _WARNED - 1])}
        return True
