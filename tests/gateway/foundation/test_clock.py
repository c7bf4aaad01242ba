"""Time as A2A writes it, and back."""

import re
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gateway.foundation.clock import Clock, earliest_row_id, milliseconds, non_decreasing, timestamp


def test_a_moment_is_utc_with_three_decimals() -> None:
    assert timestamp(1_795_168_800_007) == "2026-11-20T10:00:00.007Z"


@given(some.integers(min_value=0, max_value=253_402_300_799_999))
def test_a_moment_is_read_back_to_the_millisecond(moment: int) -> None:
    assert milliseconds(timestamp(moment)) == moment


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-20T10:00:00Z", 1_795_168_800_000),
        ("2026-11-20T10:00:00.9999Z", 1_795_168_800_999),
        ("2026-11-20T12:00:00+02:00", 1_795_168_800_000),
        ("1970-01-01T00:00:00+00:00", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("0001-01-01T00:00:00+14:00", -62_135_647_200_000),
        ("9999-12-31T23:59:59-14:00", 253_402_351_199_000),
    ],
)
def test_any_offset_and_any_year_can_be_read(text: str, moment: int) -> None:
    assert milliseconds(text) == moment


@pytest.mark.parametrize("text", ["", "yesterday", "2026-11-20T10:00:00", "2026-13-20T10:00:00Z"])
def test_a_text_that_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        milliseconds(text)


def test_the_clock_of_a_process_gives_random_ids_and_the_time() -> None:
    clock = Clock()
    assert clock.new_id() != clock.new_id()
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", clock.new_id())
    assert re.fullmatch(r"[0-9a-f]{16}", clock.correlation_id())
    assert clock.row_id()[:16] <= clock.row_id()[:16]
    assert clock.row_id()[16:] != clock.row_id()[16:]
    assert clock.now() > 1_700_000_000_000
    assert clock.monotonic() <= clock.monotonic()


def test_rows_of_a_time_have_no_ids_before_the_earliest_of_it() -> None:
    before, made, after = Clock().now(), Clock().row_id(), Clock().now() + 1
    assert earliest_row_id(before) <= made < earliest_row_id(after)
    assert earliest_row_id(9) < earliest_row_id(10)


def test_the_times_of_one_task_never_go_back() -> None:
    times = iter([5, 7, 3, 6, 9])
    clock = non_decreasing(Clock(now=lambda: next(times)), 6)
    assert [clock.now() for _ in range(5)] == [6, 7, 7, 7, 9]


def test_ids_do_not_repeat_also_not_between_threads() -> None:
    clock = Clock()
    with ThreadPoolExecutor(4) as pool:
        ids = [one for some in pool.map(lambda _: [clock.new_id() for _ in range(2000)], range(8)) for one in some]
    assert len(set(ids)) == 16_000
    assert {uuid.UUID(one).version for one in ids} == {4}
    assert len({clock.row_id()[16:] for _ in range(2000)}) == 2000


def test_ids_made_together_share_a_prefix_and_others_do_not() -> None:
    clock = Clock()
    ids = [clock.new_id() for _ in range(3000)]
    beginnings = [one[:4] for one in ids]
    changes = [at for at in range(1, 3000) if beginnings[at] != beginnings[at - 1]]
    assert 2 <= len(changes) <= 3
    assert len({one[4:8] for one in ids}) > 2500


def test_a_forked_process_gives_out_other_ids() -> None:
    script = """
import os
from gateway.foundation.clock import Clock
clock = Clock()
clock.new_id()
child = os.fork()
os.write(1, clock.new_id().encode() + b"\\n")
if child:
    os.waitpid(child, 0)
"""
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert len(set(told)) == 2


def test_the_time_of_a_damaged_row_is_still_a_time() -> None:
    assert timestamp(2**62) == "9999-12-31T23:59:59.999Z"
