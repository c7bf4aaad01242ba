"""GetTask that waits for a later generation of its task. Law: who waits is woken as a stream is, and counts as one.

Source: A2A, main branch at 28491879, section 3.2.7.
"""

import asyncio

import msgspec

from gateway.a2a.draft_1_1 import LongPollRequest, generation
from gateway.a2a.model import TERMINAL, Task
from gateway.engine.fanout import Fanout
from gateway.engine.other_processes import LogTailStream
from gateway.foundation.shutdown import Drain
from gateway.ledger.port import Ledger
from gateway.operations.call import OperationCall
from gateway.operations.quotas import ConcurrencyLimit
from gateway.operations.task_reader import TaskReader
from gateway.scheduling.runner import Runner

LONGEST = 25.0
"""Seconds, less than the 30 to 60 after which proxies give up on an answer that does not begin."""


class LongPolls(msgspec.Struct, frozen=True):
    """`streams` limits the polls that wait together with the streams of a principal; `longest` is in seconds."""

    ledger: Ledger
    runner: Runner
    fanout: Fanout
    reader: TaskReader
    drain: Drain
    streams: ConcurrencyLimit
    longest: float = LONGEST

    async def task(self, call: OperationCall, request: LongPollRequest, seen: int) -> Task:
        """The task in a generation after `seen`, or as it is when it has ended, when the process is about to end, or after
        the longest wait.

        Raises: TaskNotFound; TooManyRequests and Busy where it would have to wait and may not.
        """
        record = await self.reader.record(call, request.id)
        number = await self.reader.latest_event(record)
        if generation(number) <= seen and record.state not in TERMINAL:
            with self.streams.take(call.caller):
                self.fanout.check_room()
                await self._wait(request.id, number, seen)
        return await self.reader.task(call, request.id, request.history_length)

    async def _wait(self, task_id: str, number: int, seen: int) -> None:
        """`number` is that of an event of the task; what follows it is read from its log."""
        subscription = self.fanout.open(task_id).subscribe()
        stream = LogTailStream(task_id, [], number, subscription, self.ledger, self.runner.log_tail)
        timer = asyncio.get_running_loop().call_later(self.longest, subscription.end)
        try:
            with self.drain.on_set(subscription.end):
                async for _ in stream:
                    if generation(stream.number) > seen:
                        subscription.end()
        finally:
            timer.cancel()
            await stream.aclose()
