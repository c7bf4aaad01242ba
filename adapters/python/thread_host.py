"""Runs functions on event loops of this process, each in a thread of its own.

Law: functions with the same key share a loop, also over a reload, because what a module keeps between calls (a client, a lock)
belongs to the loop that made it; a thread begins with the first call.
"""

import asyncio
import contextvars
import sys
from collections.abc import Hashable, Mapping
from functools import partial

from adapters.python.block_watch import watch
from adapters.python.calls import Calls, Failure
from adapters.python.loop_thread import LoopThread, Mailbox, Step, do_all
from adapters.python.reference import FunctionSettings
from adapters.python.worker import Run, Service, Worker, escaped
from gateway.ports.tools import SourceTool

_GRACE = 3.0
"""Seconds that the end of a thread has. After that nothing waits for it."""


_SWITCH = 0.001
"""Seconds for which a function that computes keeps the interpreter from the gateway. With the 5 ms that Python has by itself, a
message to another agent took 210 ms beside such a function, and with 1 ms 60 ms."""


class _SharedLoop:
    """The loop of a key. `users` are the hosts with that key."""

    def __init__(self, owner: Mapping[str, str], blocked_after: float) -> None:
        self.users = 0
        self.under_way: set[Run] = set()
        self._owner = owner
        self._blocked_after = blocked_after
        self._thread: LoopThread | None = None

    def running(self) -> LoopThread:
        if self._thread is None:
            sys.setswitchinterval(min(sys.getswitchinterval(), _SWITCH))
            self._thread = LoopThread(self._owner, partial(escaped, self._owner, self.under_way))
            self._thread.start()
            watch.add(self._thread, self.under_way, self._blocked_after)
        return self._thread

    async def aclose(self) -> None:
        if self._thread is not None:
            await asyncio.wait({asyncio.wrap_future(self._thread.close())}, timeout=_GRACE)


_loops: dict[Hashable, _SharedLoop] = {}


class ThreadHost:
    """Makes the calls of one function. For one event loop of the gateway."""

    def __init__(self, settings: FunctionSettings, service: Service) -> None:
        key, owner = settings.loop()
        self._key: Hashable = key
        self._owner = settings.owner
        self._service = service
        self._loop = _loops.setdefault(key, _SharedLoop(owner, settings.blocked_after))
        self._loop.users += 1
        self._calls: Calls | None = None

    async def tool(self) -> SourceTool | None:
        """The description of a function that is a tool."""
        return self._service.tool

    async def calls(self) -> Calls:
        if self._calls is None:
            thread = self._loop.running()
            gateway = _Gateway(Mailbox[Step](asyncio.get_running_loop().call_soon_threadsafe, do_all))
            worker = Worker(self._service, gateway, self._loop.under_way, self._owner)
            self._calls = gateway.calls = Calls(
                _Thread(Mailbox[Step](thread.loop.call_soon_threadsafe, do_all), worker)
            )
        return self._calls

    async def aclose(self) -> None:
        """Idempotent."""
        key, self._key = self._key, None
        if key is None:
            return
        self._loop.users -= 1
        if not self._loop.users:
            del _loops[key]
            await self._loop.aclose()


class _Thread:
    """A WorkerPort to a worker in another thread."""

    def __init__(self, mailbox: Mailbox[Step], worker: Worker) -> None:
        self._mailbox = mailbox
        self._worker = worker

    def start(self, number: int, given: bytes) -> None:
        self._mailbox.post(partial(self._worker.start, number, given, contextvars.copy_context()))

    def give(self, number: int, weight: int) -> None:
        self._mailbox.post(partial(self._worker.give, number, weight))

    def stop(self, number: int) -> None:
        self._mailbox.post(partial(self._worker.stop, number))


class _Gateway:
    """A GatewayPort to calls in another thread."""

    calls: Calls

    def __init__(self, mailbox: Mailbox[Step]) -> None:
        self._mailbox = mailbox

    def value(self, number: int, value: object) -> None:
        self._mailbox.post(partial(self.calls.value, number, value))

    def end(self, number: int, failure: Failure | None) -> None:
        self._mailbox.post(partial(self.calls.end, number, failure))
