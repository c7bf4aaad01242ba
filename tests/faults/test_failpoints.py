"""Points at which a test kills a process: counted by name, at every commit and in every phase of a call."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from gateway.app import build
from gateway.ports.adapter import CallCompleted, TextDelta
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner
from tests.support.core import running_core
from tests.support.failpoints import Failpoints
from tests.support.scripted import ScriptedAdapter
from tests.support.stores import open_store

G = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)


@pytest.mark.parametrize("setting", ["", "accept", "accept:", "accept:x", "accept:0", "accept:-1"])
def test_a_malformed_setting_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=r"is not PATTERN:K"):
        Failpoints(setting)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The recorded arguments of `os.kill`, which does nothing."""
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: found.append((pid, number)))
    return found


def test_the_kth_matching_point_kills(killed: list[tuple[int, int]]) -> None:
    points = Failpoints("accept*.stored:2")
    for name in ("accept+prepare.before", "accept+prepare.stored", "finish.stored"):
        points.reach(name)
    assert killed == []
    points.reach("accept+heartbeat.stored")
    assert killed == [(os.getpid(), signal.SIGKILL)]


async def test_every_commit_and_every_phase_of_a_call_is_a_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names: list[str] = []
    async with running_core(tmp_path / "ledger.db") as core:
        agent = core.agent(ScriptedAdapter(G, [TextDelta("a"), TextDelta("b"), CallCompleted()]))
        monkeypatch.setattr(build, "build_agent", lambda _: agent)
        points = Failpoints("*:1", monkeypatch.setattr)
        monkeypatch.setattr(points, "reach", names.append)
        points.install()
        product: Any = build
        for _ in range(2):
            assert product.build_agent("agent") is agent
        await core.send("1", context="c")
        assert [name for name in names if name.startswith("call.")] == ["call.prepared", "call.first", "call.completed"]
        assert {"accept+prepare.before", "accept+prepare.stored", "accept+prepare.shown"} <= set(names)
        heartbeat = core.runner.runtime.heartbeat()
    names.clear()
    async with open_store(tmp_path / "ledger.db") as ledger:
        await ledger.commit(heartbeat)
        errors: list[Exception | None] = []
        ledger.submit((heartbeat, heartbeat), errors.append)
        await ledger.commit()
    assert names[:4] == ["heartbeat.before", "heartbeat.stored", "heartbeat+heartbeat.before", ".before"]
    assert sorted(names[4:]) == [".stored", "heartbeat+heartbeat.shown", "heartbeat+heartbeat.stored"]
    assert errors == [None]
