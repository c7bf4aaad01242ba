"""Where a moment lies on the scale of a timeline."""

from gateway.ui.scale import WIDTH, Scale, Span, covered, scale


def test_without_a_pause_places_are_in_proportion() -> None:
    on = scale([Span(0, 1000)], 0, None)
    assert (on, [on.place(moment) for moment in (-5, 0, 250, 1000, 2000)]) == (Scale(0, 1000), [0, 0, 250, 1000, 1000])


def test_a_pause_of_more_than_half_is_cut_to_a_twentieth() -> None:
    on = scale([Span(0, 1000), Span(61_000, 62_000)], 0, None)
    assert on.cuts == (Span(1000, 61_000),)
    assert (on.left_out, on.shown) == (60_000, 2000)
    assert [on.place(moment) for moment in (0, 1000, 31_000, 61_000, 62_000)] == [0, 475, 500, 525, WIDTH]


def test_a_second_pause_is_cut_once_it_is_half_of_what_is_left() -> None:
    on = scale([Span(0, 1000), Span(1_001_000, 1_002_000), Span(1_012_000, 1_013_000)], 0, None)
    assert on.cuts == (Span(1000, 1_001_000), Span(1_002_000, 1_012_000))


def test_a_short_pause_is_left() -> None:
    assert scale([Span(0, 100), Span(4_100, 4_200)], 0, None).cuts == ()


def test_spans_that_overlap_leave_no_pause() -> None:
    assert scale([Span(0, 20_000), Span(1_000, 2_000), Span(20_000, 21_000)], 0, None).cuts == ()


def test_the_end_of_what_runs_moves_in_steps() -> None:
    ends = {scale([Span(0, 10)], 0, now).end for now in range(0, 60_000, 100)}
    assert len(ends) < 15
    assert scale([Span(0, 10)], 0, 59_900).end >= 59_900


def test_what_lies_in_several_spans_counts_once() -> None:
    assert covered([]) == 0
    assert covered([Span(0, 10), Span(0, 10)]) == 10
    assert covered([Span(20, 30), Span(0, 10), Span(5, 12)]) == 22
    assert covered([Span(0, 30), Span(10, 20)]) == 30
    assert covered([Span(10, 0), Span(0, 5)]) == 5


def test_nothing_at_all_has_a_scale() -> None:
    assert scale([], 5, None).place(5) == 0
