"""The floor with one promise more: what a caller is shown is on disk before (SQLite, WAL, synchronous=FULL).

Every write to a caller is first a row, in a group with whatever else waits. There is nothing else in it: no task that could
be asked for, no state, no checks. What it costs is about the least that *durable before visible* costs a Python process.
"""
import asyncio
import os

import floor
import uvloop
from groupwriter import GroupWriter

writer = None


class Waiting:
    """What the writer takes for a future: it is shown in the very step in which its commit is told."""

    def __init__(self, transport, data):
        self.transport, self.data = transport, data

    def done(self):
        return False

    def set_result(self, _):
        if not self.transport.is_closing():
            self.transport.write(self.data)


class Kept:
    """The transport of a caller."""

    def __init__(self, transport):
        self.transport, self.task, self.rows = transport, None, 0

    def write(self, data):
        self.rows += 1
        writer.queue.put(([(self.task, self.rows, data)], Waiting(self.transport, data)))

    def close(self):
        self.transport.close()


class Client(floor.Client):
    def connection_made(self, transport):
        super().connection_made(Kept(transport))

    def request(self, rpc):
        self.transport.task, self.transport.rows = rpc["params"]["message"]["messageId"], 0
        super().request(rpc)


async def main():
    global writer
    writer = GroupWriter(os.environ["BENCH_DB"], "full")
    await floor.serve(Client)


uvloop.run(main())
