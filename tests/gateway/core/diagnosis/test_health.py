"""How agents stand at their backends."""

from msgspec.structs import replace

from gateway.core.diagnosis.health import AgentHealth, HealthState, agent_health
from gateway.foundation.retry import Outage
from gateway.ledger.admin.upkeep import CallTime, OpenCount
from gateway.ledger.states import TurnStatus
from tests.gateway.core.diagnosis.test_problems import FAILURE, NOTHING, NOW, TURN

CALM = AgentHealth(HealthState.OK, None, None, 0, 0, 0, 0, 0, 0, None)


def test_an_agent_of_which_nothing_is_wrong_is_ok() -> None:
    assert agent_health(NOTHING, "echo") == CALM
    assert agent_health(replace(NOTHING, turns=(TURN,)), "other") == CALM


def test_an_agent_whose_calls_hang_is_not() -> None:
    begun = replace(TURN, prepared_at=NOW - 5)
    assert agent_health(replace(NOTHING, turns=(TURN, begun)), "echo") == replace(
        CALM, state=HealthState.SILENT, since=NOW - 31_000, calls=2, silent=1
    )


def test_a_call_that_is_silent_in_the_middle_of_its_answer_hangs_too() -> None:
    found = replace(NOTHING, turns=(replace(TURN, answering=True),))
    assert agent_health(found, "echo", silences=(29.9,)).state is HealthState.OK
    assert agent_health(found, "echo", silences=(45.0, 1.0)) == replace(
        CALM, state=HealthState.SILENT, since=NOW - 45_000, calls=2, silent=1
    )


def test_a_backend_that_is_down_is_worse_than_calls_that_hang() -> None:
    found = replace(NOTHING, turns=(TURN,))
    alone, down = (agent_health(found, "echo", Outage(90.0, rest)) for rest in (14, 0))
    assert (alone.state, alone.since, alone.rest) == (HealthState.LEFT_ALONE, NOW - 90_000, 14)
    assert (down.state, down.since, down.rest) == (HealthState.DOWN, NOW - 90_000, 0)


def test_turns_are_counted_by_how_they_stand() -> None:
    counts = tuple(OpenCount(agent, status, 2, 1) for agent in ("echo", "other") for status in TurnStatus)
    times = tuple(CallTime("echo", first, 900) for first in (5, None, 7))
    found = replace(NOTHING, open_counts=counts, failures=(FAILURE,), call_times=times)
    health = agent_health(found, "echo")
    assert (health.running, health.queued, health.waiting, health.failed, health.first) == (2, 2, 2, 1, 6)
