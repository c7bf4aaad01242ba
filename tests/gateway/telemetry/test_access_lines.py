"""The access log hears of what it is to have lines of."""

import pytest

from gateway.foundation.access_log import AccessLog
from gateway.foundation.logs import TimedLine
from gateway.ports.observer import RequestLine, TurnLine
from gateway.telemetry.access_lines import AccessLines


@pytest.mark.parametrize(("requests", "turns", "told"), [(True, False, ["request"]), (False, True, ["turn"])])
def test_only_what_is_wanted_gets_a_line(requests: bool, turns: bool, told: list[str]) -> None:
    lines: list[TimedLine] = []
    with AccessLog(now=lambda: 0, write=lines.extend) as access:
        observer = AccessLines(access, requests=requests, turns=turns)
        observer.request_ended(RequestLine())
        observer.turn_ended(TurnLine(agent="a", context="c", task="t", turn="u", principal="p", outcome="ok", ms=1.0))
    assert [line.event for _, line in lines] == told
