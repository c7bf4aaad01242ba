"""`python -m tests.contract`: writes the table of the contract matrix."""

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.contract.backends import ROWS, Row
from tests.contract.bench import Bench
from tests.contract.page import write
from tests.contract.situations import SITUATIONS


async def _cell(row: Row, situation: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(row, Path(folder))
        await bench.start_backend()
        try:
            return await SITUATIONS[situation](bench)
        except Exception as error:  # noqa: BLE001  # a cell that cannot be told is shown as such
            sys.stderr.write(f"{row.name}, {situation}: {type(error).__name__} {error}\n")
            return "?"
        finally:
            await bench.stop_backend()


async def _main() -> int:
    found = {(row.name, situation): await _cell(row, situation) for row in ROWS for situation in SITUATIONS}
    write(found)
    return 1 if "?" in found.values() else 0


sys.exit(asyncio.run(_main()))
