"""An upstream agent whose place in a conversation is more than one id. Source: docs/state-model.md, scenario 14."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import Json, TaskState
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    CallCompleted,
    Ending,
    ErrorClass,
    ServiceRequest,
    TextDelta,
)
from gateway.ports.conversation import HandleKind, Ownership, StorageOwner
from tests.support.core import Core, query, running_core
from tests.support.scripted import BR

BS = Ownership(StorageOwner.BACKEND, HandleKind.STATIC)


class UpstreamAgent:
    """As an A2A agent upstream: what it is sent follows from the state that its last completed call left, and from nothing
    else. `endings` are those of its tasks; None: it fails. `sent` are the ids of each message that reached it."""

    def __init__(self, ownership: Ownership, *endings: Ending | None) -> None:
        self._ownership = ownership
        self._endings = list(endings)
        self.sent: list[dict[str, Json]] = []

    @property
    def ownership(self) -> Ownership:
        return self._ownership

    async def call(self, request: ServiceRequest) -> AsyncGenerator[AdapterEvent, None]:
        known: Any = request.state or {}
        ids: dict[str, Json] = {"contextId": known["contextId"]} if known else {}
        if known.get("state") == "input-required":
            ids["taskId"] = known["taskId"]
        elif known:
            ids["referenceTaskIds"] = [known["taskId"]]
        self.sent.append(ids)
        ending = self._endings.pop(0)
        if ending is None:
            raise AdapterError(ErrorClass.CONTRACT_BROKEN, "no answer that can be understood")
        task = ids.get("taskId") or f"up-task-{len(self.sent)}"
        yield TextDelta("well")
        yield CallCompleted(
            "up-context", ending, state={"contextId": "up-context", "taskId": task, "state": str(ending)}
        )

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize("ownership", [BS, BR], ids=["BS", "BR"])
async def test_14_the_task_of_an_upstream_agent_goes_on_while_it_waits_and_is_referred_to_afterwards(
    tmp_path: Path, ownership: Ownership
) -> None:
    path = tmp_path / "ledger.db"
    upstream = UpstreamAgent(ownership, Ending.INPUT_REQUIRED, Ending.COMPLETED, Ending.COMPLETED)
    async with running_core(path, prefix="one") as core:
        core.agent(upstream)
        asked = await core.send("a flight", context="c")
        assert asked.status.state is TaskState.INPUT_REQUIRED
    async with running_core(path, prefix="two") as core:
        core.agent(upstream)
        assert (await core.send("to Helsinki", task=asked.id)).status.state is TaskState.COMPLETED
        await core.send("and back", context="c")
    assert upstream.sent == [
        {},
        {"contextId": "up-context", "taskId": "up-task-1"},
        {"contextId": "up-context", "referenceTaskIds": ["up-task-1"]},
    ]
    assert not any("up-" in (payload or "") for (payload,) in query(path, "SELECT payload FROM event"))


async def test_14_a_call_that_fails_leaves_the_state_of_the_one_before(core: Core) -> None:
    upstream = UpstreamAgent(BS, Ending.INPUT_REQUIRED, None, Ending.COMPLETED)
    core.agent(upstream)
    asked = await core.send("a flight", context="c")
    assert (await core.send("to Helsinki", task=asked.id)).status.state is TaskState.FAILED
    await core.send("to Turku", context="c")
    assert upstream.sent[1:] == [{"contextId": "up-context", "taskId": "up-task-1"}] * 2


async def test_14_two_contexts_have_a_state_each(core: Core) -> None:
    upstream = UpstreamAgent(BS, *[Ending.COMPLETED] * 3)
    core.agent(upstream)
    for context in "cdc":
        await core.send("hi", context=context)
    assert upstream.sent == [{}, {}, {"contextId": "up-context", "referenceTaskIds": ["up-task-1"]}]
