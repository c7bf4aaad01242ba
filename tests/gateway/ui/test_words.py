"""Numbers and states in words."""

import pytest

from gateway.a2a.model import TaskState
from gateway.ledger.push import PushState
from gateway.ledger.states import ServiceCallStatus, ToolCallStatus, TurnStatus
from gateway.ui.words import many, size, state, took


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (None, "–"),
        (-5, "0 ms"),
        (85, "85 ms"),
        (999.6, "1.0 s"),
        (1340, "1.3 s"),
        (250_000, "4 min 10 s"),
        (3_600_000, "1 h"),
        (7_500_000, "2 h 5 min"),
        (273_600_000, "3 d 4 h"),
    ],
)
def test_a_time_has_two_units_at_most(milliseconds: float | None, words: str) -> None:
    assert took(milliseconds) == words


@pytest.mark.parametrize(("count", "words"), [(0, "0 B"), (820, "820 B"), (14_541, "14.2 KiB"), (5 << 30, "5.0 GiB")])
def test_bytes_have_a_unit(count: int, words: str) -> None:
    assert size(count) == words


def test_one_is_told_from_many() -> None:
    assert [many(1, "task"), many(2, "task"), many(1, "is", "are")] == ["1 task", "2 tasks", "1 is"]


@pytest.mark.parametrize("name", [*TaskState, *TurnStatus, *ServiceCallStatus, *ToolCallStatus, *PushState])
def test_every_state_has_a_word_and_a_tone(name: str) -> None:
    word, tone = state(name)
    assert "_" not in word
    assert tone in ("good", "bad", "busy", "wait", "off")
