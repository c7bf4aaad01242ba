"""A gateway in a process of its own, to be killed, whose time is read from a file and whose ids are numbered: a ledger that
is recorded again differs only in real changes.

`python -m tests.ledgers.process FOLDER STAGE FAIL`: `FAIL` is the setting of its failpoints, or empty.
"""

import asyncio
import sys
from itertools import count
from pathlib import Path

from gateway.foundation.clock import Clock
from tests.running import local_gateway
from tests.support.failpoints import Failpoints

TIME = "time"
AGENTS = "agents.yaml"
SETTINGS = "settings.yaml"


def _clock(folder: Path, stage: int) -> Clock:
    ids, rows, errors = count(1), count(1), count(1)

    def now() -> int:
        return int((folder / TIME).read_text())

    return Clock(
        now=now,
        monotonic=lambda: now() / 1000,
        new_id=lambda: f"{stage:08x}-0000-4000-8000-{next(ids):012x}",
        row_id=lambda: f"{now() * 1_000_000:016x}{stage:04x}{next(rows):012x}",
        correlation_id=lambda: f"{stage:04x}{next(errors):012x}",
    )


async def _serve(folder: Path, stage: int) -> None:
    agents, settings = (folder / AGENTS).read_text(), (folder / SETTINGS).read_text()
    async with local_gateway(agents, folder, settings=settings, clock=_clock(folder, stage)) as local:
        print(local.url, flush=True)  # noqa: T201
        await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[3]:
        Failpoints(sys.argv[3]).install()
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
