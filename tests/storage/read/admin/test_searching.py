"""How a search goes back."""

from storage.read.admin.searching import Pace, next_chunk


def test_quick_chunks_grow_and_slow_ones_shrink_within_bounds() -> None:
    assert [next_chunk(64, took) for took in (0.001, 0.05, 0.5)] == [128, 64, 16]
    assert (next_chunk(2048, 0.0), next_chunk(16, 9.0)) == (2048, 16)


def test_a_search_without_patience_stops_behind_its_first_chunk() -> None:
    assert Pace(0.0).looked() is False
    assert Pace(3600.0).looked() is True
