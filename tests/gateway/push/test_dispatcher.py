"""Which deliveries a process starts, and how many at once."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from gateway.ledger.errors import LedgerUnavailable
from gateway.ledger.push import AdvancePush, ClaimPush
from gateway.ports.adapter import CallCompleted, TextDelta
from gateway.push.delivery import PushLimits
from gateway.push.dispatcher import Dispatcher
from gateway.push.webhook import Outcome, WebhookRequests
from tests.support.core import Core, running_core, soon, until
from tests.support.push_harness import BOX, PushHarness
from tests.support.rows import change
from tests.support.scripted import BR, ScriptedAdapter, says


class HeldSender:
    """Every post waits until `go`; `by_host` counts the waiting posts."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.waiting: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.posted: list[tuple[str, str]] = []
        self.most_at_once = 0
        self.closed = False

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Outcome:
        host = url.split("/")[2]
        self.posted.append((url, headers["webhook-id"]))
        self.waiting[host] = self.waiting.get(host, 0) + 1
        self.most[host] = max(self.most.get(host, 0), self.waiting[host])
        self.most_at_once = max(self.most_at_once, sum(self.waiting.values()))
        try:
            await self.go.wait()
        finally:
            self.waiting[host] -= 1
        return Outcome(200)

    async def aclose(self) -> None:
        self.closed = True


@asynccontextmanager
async def notifying(core: Core, sender: Any, limits: PushLimits | None = None) -> AsyncGenerator[Dispatcher]:
    notifier = Dispatcher(core.ledger, lambda: sender, WebhookRequests(BOX), core.time.clock, limits or PushLimits())
    changes = core.runner.runtime.changes
    notifier.want = partial(changes.want, notifier)
    with changes.told(lambda _: notifier.hear()):
        async with asyncio.TaskGroup() as group:
            task = group.create_task(notifier.run())
            try:
                yield notifier
            finally:
                task.cancel()


async def tasks_with_configs(core: Core, push: PushHarness, *hosts: str) -> None:
    for host in hosts:
        task = await core.send("hello")
        await push.create(task.id, url=f"https://{host}/{task.id}")
    # Makes every event undelivered again.
    change(core.path, "UPDATE push_config SET state = 'active', next_event = 1, due_at = 0")


async def test_four_posts_go_to_one_host_at_once_and_others_do_not_wait_for_it(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, otherwise=lambda _: says("a")))
    push, sender = PushHarness(core), HeldSender()
    await tasks_with_configs(core, push, *["slow.example"] * 10, "quick.example")
    async with notifying(core, sender):
        await until(lambda: sender.waiting == {"slow.example": 4, "quick.example": 1})
        sender.go.set()
        await until(lambda: {row[1] for row in push.rows()} == {"done"})
    assert (sender.most["slow.example"], sender.closed) == (4, True)
    assert len(set(sender.posted)) == len(sender.posted) == 22


async def test_no_more_posts_are_made_at_once_than_may_be(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, otherwise=lambda _: says("a")))
    push, sender = PushHarness(core), HeldSender()
    await tasks_with_configs(core, push, *(f"h{number}.example" for number in range(12)))
    async with notifying(core, sender, PushLimits(posts=5)):
        await until(lambda: sum(sender.waiting.values()) == 5)
        sender.go.set()
        await until(lambda: {row[1] for row in push.rows()} == {"done"})
    assert sender.most_at_once == 5


async def test_an_event_during_the_run_is_posted_when_it_is_heard_of(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, otherwise=lambda _: [TextDelta("a"), CallCompleted("r")]))
    push, sender = PushHarness(core), HeldSender()
    sender.go.set()
    async with notifying(core, sender) as notifier:
        push.configs.changed = notifier.wake
        await push.send("hello")
        await until(lambda: [row[1] for row in push.rows()] == ["done"])
    assert len(sender.posted) == 2


async def test_without_configurations_what_is_heard_costs_no_reads(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, otherwise=lambda _: says("a")))
    async with notifying(core, HeldSender()):
        await until(lambda: "next_push" in core.ledger.reads)
        core.ledger.reads.clear()
        heard = asyncio.Event()
        with core.runner.runtime.changes.told(lambda _: heard.set()):
            core.runner.runtime.changes.want(heard, True)
            for _ in range(2):  # the dispatcher has its turn between the two
                await core.send("hello")
                await soon(heard.wait())
                heard.clear()
        assert "next_push" not in core.ledger.reads


async def test_a_delivery_that_is_due_later_is_made_then(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, otherwise=lambda _: says("a")))
    push, sender = PushHarness(core), HeldSender()
    sender.go.set()
    await tasks_with_configs(core, push, "h.example")
    change(core.path, f"UPDATE push_config SET due_at = {core.time.now + 20}")
    async with notifying(core, sender):
        await until(lambda: "next_push" in core.ledger.reads)
        core.time.now += 20
        await until(lambda: [row[1] for row in push.rows()] == ["done"])
    assert len(sender.posted) == 2


async def test_two_processes_on_one_database_post_each_event_once(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, otherwise=lambda _: says("a")))
    push, sender = PushHarness(core), HeldSender()
    sender.go.set()
    await tasks_with_configs(core, push, *(f"h{number}.example" for number in range(20)))
    async with running_core(core.path, prefix="other") as other, notifying(core, sender), notifying(other, sender):
        await until(lambda: {row[1] for row in push.rows()} == {"done"})
    assert len(set(sender.posted)) == len(sender.posted) == 40


@pytest.mark.parametrize("stored_last", [ClaimPush, AdvancePush])
async def test_a_delivery_that_a_stopping_process_was_storing_is_available_to_another_at_once(
    core: Core, stored_last: type
) -> None:
    core.agent(ScriptedAdapter(BR, otherwise=lambda _: says("a")))
    push, sender = PushHarness(core), HeldSender()
    sender.go.set()
    await tasks_with_configs(core, push, "client.example")
    core.time.step = 1
    gate = core.ledger.hold(stored_last)
    async with notifying(core, sender):
        await soon(gate.reached.wait())
    core.ledger.let_go()
    before = len(sender.posted)
    async with notifying(core, sender):
        await until(lambda: {row[1] for row in push.rows()} == {"done"})
    ids = [posted for _, posted in sender.posted]
    assert len(ids) == len(set(ids))
    assert before == (stored_last is AdvancePush)


async def test_a_delivery_that_a_stopping_process_was_about_to_post_is_available_to_another_at_once(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, otherwise=lambda _: says("a")))
    push, sender = PushHarness(core), HeldSender()
    await tasks_with_configs(core, push, "h.example")
    async with notifying(core, sender):
        await until(lambda: sender.waiting == {"h.example": 1})
    await until(lambda: push.rows() == [("config-1", "active", 1, 0, 0)])


@pytest.mark.parametrize("read", ["next_push", "due_pushes", "push_events"])
@pytest.mark.parametrize("error", [LedgerUnavailable("gone"), RuntimeError("broken")])
async def test_a_database_that_fails_for_a_while_ends_nothing(core: Core, read: str, error: Exception) -> None:
    core.agent(ScriptedAdapter(BR, otherwise=lambda _: says("a")))
    push, sender = PushHarness(core, PushLimits()), HeldSender()
    sender.go.set()
    await tasks_with_configs(core, push, "h.example")
    async with notifying(core, sender) as notifier:
        core.ledger.reads.clear()
        core.ledger.fail_reads(read, error=error)
        notifier.wake()
        await until(lambda: read in core.ledger.reads)
        core.ledger.fail_reads()
        core.time.now += 60_000
        notifier.wake()
        await soon(_woken_until(notifier, lambda: push.rows()[0][1] == "done"))


async def _woken_until(notifier: Dispatcher, holds: Any) -> None:
    while not holds():
        notifier.wake()
        await asyncio.sleep(0)
