"""The commands on the pages that need a real peer work as they stand."""

from pathlib import Path

import pytest

from tests.interop import peer_processes
from tests.pages.blocks import Block
from tests.pages.catalogue import Run
from tests.pages.test_commands import HERE, PROGRAMS, run


@pytest.mark.parametrize(
    ("block", "fate"),
    [pytest.param(block, fate, id=f"{block.page}:{block.line}") for block, fate in HERE if fate.peer],
)
def test_commands_in_front_of_a_real_peer_work_as_they_stand(block: Block, fate: Run, tmp_path: Path) -> None:
    peers = peer_processes.folder_with(fate.peer)
    told = run(block, fate, tmp_path, PROGRAMS, {"PEERS": str(peers)})
    assert told.code == 0, told.output
