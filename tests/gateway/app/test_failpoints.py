"""Points at which a test kills a process: counted by name, and inactive without the setting."""

import os
import signal
from typing import Any

import pytest

from gateway.app.failpoints import VARIABLE, Failpoints, armed
from gateway.ports.adapter import CallCompleted, TextDelta
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner
from tests.support.core import Core
from tests.support.scripted import ScriptedAdapter

G = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)


@pytest.mark.parametrize("setting", ["", "accept", "accept:", "accept:x", "accept:0", "accept:-1"])
def test_a_malformed_setting_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=r"is not PATTERN:K"):
        Failpoints(setting)


@pytest.mark.parametrize("value", [None, ""])
def test_nothing_is_armed_without_the_setting(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if value is not None:
        monkeypatch.setenv(VARIABLE, value)
    assert armed() is None


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The recorded arguments of `os.kill`, which does nothing."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: found.append((pid, number)))
    return found


def test_the_kth_matching_point_kills(monkeypatch: pytest.MonkeyPatch, killed: list[tuple[int, int]]) -> None:
    monkeypatch.setenv(VARIABLE, "accept*.stored:2")
    points = armed()
    assert points is not None
    for name in ("accept+prepare.before", "accept+prepare.stored", "finish.stored"):
        points.reach(name)
    assert killed == []
    points.reach("accept+heartbeat.stored")
    assert killed == [(os.getpid(), signal.SIGKILL)]


class Names(Failpoints):
    def __init__(self) -> None:
        super().__init__("*:1")
        self.names: list[str] = []

    def reach(self, name: str) -> None:
        self.names.append(name)


async def test_every_commit_and_every_phase_of_a_call_is_a_point(core: Core) -> None:
    points = Names()
    guarded: Any = points.ledger(core.ledger)
    core.runner.wrap_calls(points.call)
    core.agent(ScriptedAdapter(G, [TextDelta("a"), TextDelta("b"), CallCompleted()]))
    await core.send("1", context="c")
    assert points.names == ["call.prepared", "call.first", "call.completed"]
    points.names.clear()
    await guarded.commit(core.runner.heartbeat())
    errors: list[Exception | None] = []
    guarded.submit((core.runner.heartbeat(), core.runner.heartbeat()), errors.append)
    await guarded.commit()
    assert points.names[:4] == ["heartbeat.before", "heartbeat.stored", "heartbeat+heartbeat.before", ".before"]
    assert sorted(points.names[4:]) == [".stored", "heartbeat+heartbeat.shown", "heartbeat+heartbeat.stored"]
    assert errors == [None]
    assert await guarded.open_turns("nowhere") == ()
