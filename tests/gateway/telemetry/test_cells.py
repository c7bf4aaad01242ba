"""Counters, histograms and gauges, read with the parser of Prometheus's own client."""

import math

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.cells import MOST_SERIES, Counted, Counter, Family, Gauge, Histogram, render

Sample = tuple[str, dict[str, str], float]


def scraped(*families: Family) -> list[Sample]:
    text = render(families).decode()
    return [
        (sample.name, sample.labels, sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def test_a_counter_without_labels_is_there_before_it_counts() -> None:
    assert scraped(Counter("a_total", "A.")) == [("a_total", {}, 0)]


def test_a_counter_with_labels_has_a_series_for_each_set_that_it_has_seen() -> None:
    counter = Counter("a_total", "A.", "agent", "outcome")
    assert scraped(counter) == []
    counter.add("x", "ok")
    counter.add("x", "ok", amount=2)
    counter.add("y", "ok")
    assert scraped(counter) == [
        ("a_total", {"agent": "x", "outcome": "ok"}, 3),
        ("a_total", {"agent": "y", "outcome": "ok"}, 1),
    ]


def test_a_histogram_counts_each_value_in_all_bounds_that_it_does_not_exceed() -> None:
    histogram = Histogram("a_seconds", "A.", (0.1, 1), "agent")
    for value in (0.05, 0.1, 0.5, 7):
        histogram.observe(value, "x")
    assert scraped(histogram) == [
        ("a_seconds_bucket", {"agent": "x", "le": "0.1"}, 2),
        ("a_seconds_bucket", {"agent": "x", "le": "1"}, 3),
        ("a_seconds_bucket", {"agent": "x", "le": "+Inf"}, 4),
        ("a_seconds_sum", {"agent": "x"}, pytest.approx(7.65)),
        ("a_seconds_count", {"agent": "x"}, 4),
    ]


def test_a_gauge_is_read_at_each_scrape() -> None:
    open_ = [1.0]
    gauge = Gauge("open", "Open.", lambda: [(("x",), open_[0])], "agent")
    assert scraped(gauge) == [("open", {"agent": "x"}, 1)]
    open_[0] = 0.5
    assert scraped(gauge) == [("open", {"agent": "x"}, 0.5)]


def test_a_count_that_its_owner_keeps_is_a_counter() -> None:
    [family] = text_string_to_metric_families(render([Counted("a_total", "A.", lambda: [((), 7)])]).decode())
    assert family.type == "counter"


@pytest.mark.parametrize("text", ['"', "\\", "\n", 'a"b\\c\nd', "é", "", "}", ","])
def test_a_label_keeps_any_text(text: str) -> None:
    counter = Counter("a_total", "A.", "agent")
    counter.add(text)
    assert scraped(counter) == [("a_total", {"agent": text}, 1)]


@pytest.mark.parametrize("value", [0.0, -1.5, 1e300, math.inf, 2.0**60, 1 / 3])
def test_a_number_keeps_its_value(value: float) -> None:
    assert scraped(Gauge("a", "A.", lambda: [((), value)])) == [("a", {}, value)]


def test_more_series_than_a_family_may_have_are_counted_as_other() -> None:
    counter, histogram = Counter("a_total", "A.", "tool"), Histogram("a_seconds", "A.", (1,), "tool")
    for number in range(MOST_SERIES + 10):
        counter.add(f"t{number}")
        histogram.observe(0.5, f"t{number}")
    counted = scraped(counter)
    assert len(counted) == MOST_SERIES
    assert counted[-1] == ("a_total", {"tool": "other"}, 11)
    assert [sample for sample in scraped(histogram) if sample[0] == "a_seconds_count"][-1] == (
        "a_seconds_count",
        {"tool": "other"},
        11,
    )


def test_a_page_of_nothing_is_empty() -> None:
    assert render([]) == render([Counter("a_total", "A.", "agent")]) == b""
