"""What the gateway tells of its work, as series of Prometheus."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.ports.observer import Observers, RequestLine, TurnLine
from gateway.telemetry.prometheus import Metrics

Labels = dict[str, str]


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    for family in text_string_to_metric_families(metrics.page().decode()):
        for sample in family.samples:
            if sample.name == f"a2a_gateway_{name}" and sample.labels == labels:
                return float(sample.value)
    return None


def turn(**more: object) -> TurnLine:
    line = TurnLine(agent="x", context="c", task="t", turn="u", principal="ada", outcome="completed", ms=1500.0)
    for name, given in more.items():
        setattr(line, name, given)
    return line


@pytest.mark.parametrize(
    ("line", "labels"),
    [
        (
            RequestLine(agent="x", operation="GetTask", status=200, ms=2.0),
            {"agent": "x", "operation": "GetTask", "outcome": "ok"},
        ),
        (
            RequestLine(agent="x", operation="GetTask", error="TASK_NOT_FOUND", status=404, ms=2.0),
            {"agent": "x", "operation": "GetTask", "outcome": "task_not_found"},
        ),
        (RequestLine(status=404), {"agent": "none", "operation": "none", "outcome": "status_404"}),
        (RequestLine(status=0), {"agent": "none", "operation": "none", "outcome": "unanswered"}),
    ],
)
def test_a_request_counts_by_agent_operation_and_outcome(line: RequestLine, labels: Labels) -> None:
    metrics = Metrics()
    metrics.request_ended(line)
    assert value(metrics, "requests_total", **labels) == 1


def test_only_operations_have_a_duration() -> None:
    metrics = Metrics()
    metrics.request_ended(RequestLine(agent="x", operation="GetTask", status=200, ms=20.0))
    metrics.request_ended(RequestLine(status=200, ms=20.0))
    assert value(metrics, "request_duration_seconds_count", operation="GetTask") == 1
    assert value(metrics, "request_duration_seconds_sum", operation="GetTask") == pytest.approx(0.02)
    assert value(metrics, "request_duration_seconds_count", operation="none") is None


def test_a_turn_counts_with_its_tokens() -> None:
    metrics = Metrics()
    metrics.turn_ended(turn(input_tokens=10, cached_tokens=4, output_tokens=3))
    metrics.turn_ended(turn(input_tokens=1))
    assert value(metrics, "turns_total", agent="x", outcome="completed") == 2
    assert value(metrics, "turn_duration_seconds_sum", agent="x", outcome="completed") == pytest.approx(3.0)
    kinds = ("input", "input_cached", "output", "output_reasoning")
    counted = [value(metrics, "tokens_total", agent="x", kind=kind) for kind in kinds]
    assert counted == [11, 4, 3, None]


def test_a_group_that_was_refused_in_part_counts_as_both() -> None:
    metrics = Metrics()
    metrics.group_committed(5, 2, 0.002)
    metrics.group_committed(1, 0, 0.002)
    counted = [value(metrics, "committed_units_total", outcome=outcome) for outcome in ("stored", "not_stored")]
    assert counted == [4, 2]
    assert value(metrics, "commit_duration_seconds_count") == 2


def test_a_lost_handle_counts_by_what_became_of_it() -> None:
    metrics = Metrics()
    metrics.handle_lost("x", rebuilt=True)
    metrics.handle_lost("x", rebuilt=False)
    metrics.handle_lost("x", rebuilt=False)
    counted = [value(metrics, "handles_lost_total", agent="x", resolved=how) for how in ("rebuilt", "failed")]
    assert counted == [1, 2]


def test_no_series_names_a_caller_a_context_or_a_task() -> None:
    metrics = Metrics()
    metrics.turn_ended(turn(principal="secret-ada", context="secret-c", task="secret-t", turn="secret-u"))
    metrics.request_ended(RequestLine(principal="secret-ada", path="/secret", peer="secret-p", status=200))
    assert b"secret" not in metrics.page()


def test_every_family_follows_the_conventions_of_names() -> None:
    metrics = Metrics()
    observers = Observers(metrics)
    observers.request_ended(RequestLine(agent="x", operation="GetTask", status=200, ms=1.0))
    observers.key_refused("unknown")
    observers.turn_showed("x", 0.1)
    observers.turn_ended(turn(input_tokens=1))
    observers.call_answered("x", 0.1)
    observers.call_ended("x", "completed", 0.1)
    observers.call_repeated("x", "unreachable")
    observers.handle_lost("x", rebuilt=True)
    observers.tool_ended("x", "t", "completed", 0.1)
    observers.group_committed(1, 0, 0.1)
    observers.pushed("delivered", 0.1)
    observers.loop_lagged(0.1)
    observers.watch("streams_open", "Open streams.", lambda: [((), 1.0)])
    families = list(text_string_to_metric_families(metrics.page().decode()))
    for family in families:
        assert family.documentation, family.name
        assert family.name.startswith(("a2a_gateway_", "process_")), family.name
        if family.type == "histogram":
            assert family.name.endswith("_seconds"), family.name
    assert len({family.name for family in families}) == len(families) > 25
