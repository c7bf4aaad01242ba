"""The contract matrix: every way of keeping a conversation in every situation, through the whole gateway."""

from pathlib import Path

import pytest

from tests.contract.backends import ROWS, Row
from tests.contract.bench import Bench
from tests.contract.page import cells
from tests.contract.situations import SITUATIONS


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
async def test_the_page_says_what_becomes_of_it(tmp_path: Path, row: Row, situation: str) -> None:
    bench = Bench(row, tmp_path)
    await bench.start_backend()
    try:
        outcome = await SITUATIONS[situation](bench)
    finally:
        await bench.stop_backend()
    assert outcome == cells().get((row.name, situation))


def test_the_page_has_a_row_for_each_way_and_a_column_for_each_situation() -> None:
    assert cells().keys() == {(row.name, situation) for row in ROWS for situation in SITUATIONS}
