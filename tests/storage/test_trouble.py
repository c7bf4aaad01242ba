"""What the latest groups show of a store."""

import pytest

from gateway.ledger.leases import Renew
from storage import compiled
from storage.write.trouble import Trouble
from storage.write.units import unit
from storage.write.writer import Unit

SMALL = Unit(unit((Renew(("thread-1",), "process-1", 1000),)), lambda _: None, 0.0, True)
PROBE = Unit([(compiled.PROBE, {"value": b""})], lambda _: None, 0.0, True)


@pytest.mark.parametrize("word", ["locked", "read-only", "failing", "unavailable"])
def test_a_group_that_is_written_ends_the_trouble(word: str) -> None:
    trouble = Trouble()
    trouble.refused(word)
    assert trouble.present
    trouble.stored([SMALL])
    assert not trouble.present


def test_a_small_group_does_not_show_that_there_is_room_again_and_a_probe_does() -> None:
    trouble = Trouble()
    trouble.refused("full")
    trouble.refused("locked")
    trouble.stored([SMALL])
    assert trouble.present
    trouble.stored([SMALL, PROBE])
    assert not trouble.present
    trouble.refused("locked")
    trouble.stored([SMALL])
    assert not trouble.present
