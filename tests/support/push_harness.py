"""A core with push notifications: its operations offer them, and its receiver gives scripted answers."""

import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from gateway.a2a.model import SendMessageConfiguration, SendMessageRequest, Task, TaskPushNotificationConfig
from gateway.foundation.addresses import TargetRules
from gateway.foundation.resolver import Resolver
from gateway.ledger.errors import Conflict
from gateway.ledger.push import PushConfig
from gateway.operations.push_configs import PushConfigs
from gateway.operations.service import Operations
from gateway.push.delivery import Delivery, PushLimits
from gateway.push.secrets import SecretBox
from gateway.push.webhook import Outcome
from tests.support.core import Core, message, query

URL = "https://hook.example/a"
BOX = SecretBox(b"k" * 32)
OK = Outcome(200)


@dataclass
class Posts:
    """`answers` first, then success. `posted`: configuration, number and event, in order."""

    answers: deque[Outcome | BaseException] = field(default_factory=deque)
    posted: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)

    async def __call__(self, config: PushConfig, number: int, body: bytes) -> Outcome:
        self.posted.append((config.id, number, json.loads(body)))
        answer = self.answers.popleft() if self.answers else OK
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def numbers(self) -> list[int]:
        return [number for _, number, _ in self.posted]

    @property
    def states(self) -> list[str]:
        return [
            event["statusUpdate"]["status"]["state"].removeprefix("TASK_STATE_")
            for _, _, event in self.posted
            if "statusUpdate" in event
        ]


class PushHarness:
    """`addresses`: the answer to every DNS look-up. `woken`: how often a delivery may have become due."""

    def __init__(self, core: Core, limits: PushLimits | None = None) -> None:
        self.core = core
        self.limits = limits or PushLimits()
        self.addresses = ["8.8.8.8"]
        self.woken = 0
        self.posts = Posts()
        self.configs = PushConfigs(
            core.ledger,
            TargetRules(),
            Resolver(TargetRules().permit, self._answers),
            BOX,
            core.time.clock,
            self._wake,
        )
        core.operations = Operations(
            core.ledger,
            core.runner,
            core.fanout,
            core.time.clock,
            page_secret=b"p" * 32,
            drain=core.drain,
            push_configs=self.configs,
        )

    async def _answers(self, host: str, port: int) -> list[str]:
        return self.addresses

    def _wake(self) -> None:
        self.woken += 1

    async def create(self, task: str, config: str | None = "config-1", url: str = URL, **more: Any) -> Any:
        wanted = TaskPushNotificationConfig(task_id=task, id=config, url=url, **more)
        return await self.core.operations.create_push_config(self.core.call(), wanted)

    async def send(
        self, text: str, *, at_once: bool = False, config: str | None = "config-1", version: str = "1.0", **where: Any
    ) -> Task:
        """Sends a message with a configuration in it."""
        configuration = SendMessageConfiguration(
            return_immediately=at_once, task_push_notification_config=TaskPushNotificationConfig(id=config, url=URL)
        )
        request = SendMessageRequest(message=message(text, **where), configuration=configuration)
        call = replace(self.core.call(), version=version)
        answer = await self.core.operations.send_message(call, request)
        assert answer.task is not None
        return answer.task

    async def deliver(self) -> int:
        """Makes all deliveries that are due now. Returns how many."""
        count = 0
        while due := await self.core.ledger.due_pushes(self.core.time.now, (), 10):
            for each in due:
                count += 1
                try:
                    await self.delivery(each).run()
                except Conflict:
                    continue
        return count

    def delivery(self, due: Any) -> Delivery:
        return Delivery(due, self.core.ledger, self.posts, self.core.time.clock, self.limits, lambda: 0.5)

    def rows(self) -> list[tuple[Any, ...]]:
        """id, state, next event, due at, attempts."""
        return query(
            self.core.path, "SELECT id, state, next_event, due_at, attempts FROM push_config ORDER BY created_at, id"
        )
