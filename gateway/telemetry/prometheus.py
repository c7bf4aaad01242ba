"""The metrics of one process, for Prometheus. Law: no label holds a principal, a key, an address or an id, nor a name from a
request; what a family would have too many series for is counted as `other`."""

import platform

from msgspec import UNSET

from gateway.ports.observer import Observer, Reading, RequestLine, TurnLine
from gateway.telemetry.cells import Counter, Family, Gauge, Histogram, render
from gateway.telemetry.gateway_version import gateway_version
from gateway.telemetry.process import process_metrics

_PREFIX = "a2a_gateway_"
_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LONG = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900, 3600)
_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_TOKENS = (
    ("input", "input_tokens"),
    ("input_cached", "cached_tokens"),
    ("output", "output_tokens"),
    ("output_reasoning", "reasoning_tokens"),
)
_NONE = "none"


class Metrics(Observer):
    """`page` is the text of a scrape."""

    __slots__ = (
        "_call_failures",
        "_call_times",
        "_calls",
        "_families",
        "_first_delta",
        "_first_output",
        "_groups",
        "_handles",
        "_keys",
        "_loop_lag",
        "_push_times",
        "_pushes",
        "_request_times",
        "_requests",
        "_tokens",
        "_tool_times",
        "_tools",
        "_turn_times",
        "_turns",
        "_units",
    )  # fmt: skip

    gauges = True

    def __init__(self) -> None:
        self._families: list[Family] = []
        self._requests = self._counter("requests", "Requests.", "agent", "operation", "outcome")
        self._request_times = self._histogram(
            "request_duration", "Time from a request to the end of its answer.", _LATENCY, "operation"
        )
        self._keys = self._counter("auth_failures", "Credentials that were not valid.", "reason")
        self._turns = self._counter("turns", "Turns that ended, or were paused, here.", "agent", "outcome")
        self._turn_times = self._histogram(
            "turn_duration", "Time of a turn, without its wait in a queue.", _LONG, "agent", "outcome"
        )
        self._first_output = self._histogram(
            "turn_first_output", "Time from the begin of a turn to the first that is shown of it.", _LONG, "agent"
        )
        self._calls = self._counter("service_calls", "Tries of service calls.", "agent", "outcome")
        self._call_times = self._histogram("service_call_duration", "Time of a try of a service call.", _LONG, "agent")
        self._first_delta = self._histogram(
            "service_call_first_answer", "Time until the first of the backend's answer.", _LONG, "agent"
        )
        self._call_failures = self._counter(
            "service_call_retries", "Tries that another one followed.", "agent", "failure"
        )
        self._tokens = self._counter(
            "tokens", "Tokens that backends report; parts are in their whole.", "agent", "kind"
        )
        self._handles = self._counter(
            "handles_lost", "Conversations that a backend has forgotten.", "agent", "resolved"
        )
        self._tools = self._counter("tool_calls", "Tool calls that the gateway ran.", "agent", "tool", "outcome")
        self._tool_times = self._histogram("tool_call_duration", "Time of a tool call.", _LONG, "tool")
        self._units = self._counter("committed_units", "Units that the ledger was to store.", "outcome")
        self._groups = self._histogram("commit_duration", "Time in which a group of units is written.", _FAST)
        self._pushes = self._counter("push_deliveries", "Posts of push notifications.", "outcome")
        self._push_times = self._histogram("push_delivery_duration", "Time of a post.", _LATENCY)
        self._loop_lag = self._histogram("event_loop_lag", "How late the event loop comes back to a task.", _FAST)
        built = (gateway_version(), platform.python_version())
        self.watch("build_info", "The versions that run.", lambda: [(built, 1.0)], "version", "python")
        self._families += process_metrics()

    def page(self) -> bytes:
        return render(self._families)

    def watch(self, name: str, help: str, read: Reading, *labels: str) -> None:  # noqa: A002
        self._families.append(Gauge(_PREFIX + name, help, read, *labels))

    # --- what is told

    def request_ended(self, line: RequestLine) -> None:
        operation = line.operation if line.operation is not UNSET else _NONE
        agent = line.agent if line.agent is not UNSET else _NONE
        self._requests.add(agent, operation, _outcome(line))
        if operation is not _NONE and line.ms is not UNSET:
            self._request_times.observe(line.ms / 1000, operation)

    def key_refused(self, reason: str) -> None:
        self._keys.add(reason)

    def turn_showed(self, agent: str, seconds: float) -> None:
        self._first_output.observe(seconds, agent)

    def turn_ended(self, line: TurnLine) -> None:
        self._turns.add(line.agent, line.outcome)
        self._turn_times.observe(line.ms / 1000, line.agent, line.outcome)
        for kind, name in _TOKENS:
            count = getattr(line, name)
            if count is not UNSET:
                self._tokens.add(line.agent, kind, amount=count)

    def call_answered(self, agent: str, seconds: float) -> None:
        self._first_delta.observe(seconds, agent)

    def call_ended(self, agent: str, outcome: str, seconds: float) -> None:
        self._calls.add(agent, outcome)
        self._call_times.observe(seconds, agent)

    def call_repeated(self, agent: str, failure: str) -> None:
        self._call_failures.add(agent, failure)

    def handle_lost(self, agent: str, *, rebuilt: bool) -> None:
        self._handles.add(agent, "rebuilt" if rebuilt else "failed")

    def tool_ended(self, agent: str, tool: str, outcome: str, seconds: float) -> None:
        self._tools.add(agent, tool, outcome)
        self._tool_times.observe(seconds, tool)

    def group_committed(self, units: int, failed: int, seconds: float) -> None:
        self._groups.observe(seconds)
        if units > failed:
            self._units.add("stored", amount=units - failed)
        if failed:
            self._units.add("not_stored", amount=failed)

    def pushed(self, outcome: str, seconds: float) -> None:
        self._pushes.add(outcome)
        self._push_times.observe(seconds)

    def loop_lagged(self, seconds: float) -> None:
        self._loop_lag.observe(seconds)

    # --- the families

    def _counter(self, name: str, help: str, *labels: str) -> Counter:  # noqa: A002
        made = Counter(f"{_PREFIX}{name}_total", help, *labels)
        self._families.append(made)
        return made

    def _histogram(self, name: str, help: str, bounds: tuple[float, ...], *labels: str) -> Histogram:  # noqa: A002
        made = Histogram(f"{_PREFIX}{name}_seconds", help, bounds, *labels)
        self._families.append(made)
        return made


def _outcome(line: RequestLine) -> str:
    """`ok`, the reason of the error, or what the status tells of an answer that is no operation's."""
    if line.error is not UNSET:
        return line.error.lower()
    if not line.status:
        return "unanswered"
    return "ok" if line.status < 400 else f"status_{line.status}"
