"""Push notification configurations, as their owners create, read and delete them. Law: secrets are never returned, and an
address that the rules forbid is never accepted.

Source: A2A 1.0, sections 3.1.7 to 3.1.10, 4.3 and 13.2.
"""

import asyncio
from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from gateway.a2a.errors import NotFound, TaskNotFound, echo, invalid
from gateway.a2a.model import (
    AuthenticationInfo,
    ListTaskPushNotificationConfigsResponse,
    Message,
    TaskPushNotificationConfig,
)
from gateway.foundation.addresses import Target, TargetRefused, TargetRules, check_target
from gateway.foundation.clock import Clock
from gateway.foundation.resolver import Resolver
from gateway.ledger.errors import Conflict
from gateway.ledger.port import PushLedger
from gateway.ledger.push import DeletePushConfig, PushConfig, PushState, PushStatus, PutPushConfig, ReplayPush
from gateway.ledger.threads import Caller
from gateway.operations.call import OperationCall
from gateway.push.secrets import SecretBox, Secrets

MAX_CONFIGS = 10
"""Configurations of one task."""

_LOOKUP_TIMEOUT = 2.0
"""Seconds for the DNS check of a new address. Each connection looks up and checks its address again."""

_IN_MESSAGE = "configuration.taskPushNotificationConfig."


class PushDraft(msgspec.Struct, frozen=True):
    """A checked configuration, before its task is known. One without an id, as A2A 0.3 has it, is that of its task, and takes
    the place of an earlier one."""

    call: OperationCall
    config: PushConfig

    def on(self, task: str, now: int) -> PutPushConfig:
        caller = self.call.caller
        config = replace(self.config, task=task, id=self.config.id or task)
        return PutPushConfig(caller.tenant, caller.principal, self.call.agent.name, config, MAX_CONFIGS, now)

    def stored(self, task: str, context: str) -> None:
        """It is in the ledger, with the message that it came with."""
        if self.call.on_push is not None:
            self.call.on_push(self.config.id or task, task, context)


class PushConfigs(msgspec.Struct):
    """One instance serves every agent of the gateway. `changed` is called when there may be a delivery to make."""

    ledger: PushLedger
    rules: TargetRules
    resolver: Resolver
    box: SecretBox
    clock: Clock
    changed: Callable[[], object]

    # --- the four operations

    async def create(
        self, call: OperationCall, task: str, config: TaskPushNotificationConfig
    ) -> TaskPushNotificationConfig:
        """Raises: InvalidParams."""
        put = (await self.draft(call, config)).on(task, self.clock.now())
        try:
            await self.ledger.commit(put)
        except Conflict as error:
            raise invalid(
                "taskId", f"the task has {MAX_CONFIGS} push notification configurations; delete one first"
            ) from error
        self.changed()
        return _shown(put.config)

    async def get(self, task: str, config: str) -> TaskPushNotificationConfig:
        """With an empty `config`, which only A2A 0.3 allows, the first one. Raises: TaskNotFound, as the specification has it
        also for a configuration."""
        for found in await self.ledger.push_configs(task):
            if config in ("", found.id):
                return _shown(found)
        raise TaskNotFound("Push notification configuration not found", metadata={"taskId": task, "field": "id"})

    async def list(self, task: str, size: int, token: str | None) -> ListTaskPushNotificationConfigsResponse:
        """At most `size` of them, in the order in which they were made. The token of a page is the id of its last one.

        Raises: InvalidParams.
        """
        found = await self.ledger.push_configs(task)
        first = 0
        if token:
            first = next((place for place, config in enumerate(found, 1) if config.id == token), 0)
            if not first:
                raise invalid("pageToken", "is not a token of this list, or its configuration was deleted; begin again")
        page = found[first : first + size]
        following = page[-1].id if first + size < len(found) else ""
        return ListTaskPushNotificationConfigsResponse(configs=tuple(map(_shown, page)), next_page_token=following)

    async def delete(self, task: str, config: str) -> bool:
        """Succeeds also where there is no such configuration. Returns whether there was one."""
        there = any(found.id == config for found in await self.ledger.push_configs(task))
        await self.ledger.commit(DeletePushConfig(task, config))
        return there

    async def draft(
        self, call: OperationCall, config: TaskPushNotificationConfig, message: Message | None = None
    ) -> PushDraft:
        """Checks a configuration. `message` is the message that contained it. Raises: InvalidParams."""
        place = "" if message is None else _IN_MESSAGE
        if message is not None and config.task_id and config.task_id != message.task_id:
            raise invalid(f"{place}taskId", "must be left out: the configuration is for the task of the message")
        if "/" in (config.id or ""):
            raise invalid(f"{place}id", "must not contain a slash: HTTP+JSON could not name it")
        target = await self._check(f"{place}url", config.url)
        scheme = config.authentication.scheme if config.authentication else None
        credentials = config.authentication.credentials if config.authentication else None
        sealed = None
        if config.token or credentials:
            sealed = self.box.seal(Secrets(config.token or None, credentials or None), config.url)
        made = PushConfig(
            task="",
            id=config.id or ("" if call.speaks_0_3 else self.clock.new_id()),
            version=call.version,
            url=config.url,
            host=target.host,
            scheme=scheme,
            sealed=sealed,
        )
        return PushDraft(call, made)

    async def _check(self, field: str, url: str) -> Target:
        try:
            target = check_target(url, self.rules)
            async with asyncio.timeout(_LOOKUP_TIMEOUT):
                await self.resolver.addresses(target.host, target.port)
        except TargetRefused as error:
            raise invalid(field, str(error)) from error
        except (OSError, TimeoutError):
            # An unknown name may become known: each delivery looks it up again.
            return check_target(url, self.rules)
        return target

    # --- undelivered notifications

    async def statuses(self, caller: Caller) -> tuple[PushStatus, ...]:
        """The configurations of the caller that are not done, the latest first."""
        return await self.ledger.push_statuses(caller.tenant, caller.principal)

    async def replay(self, caller: Caller, task: str, config: str | None) -> int:
        """Resumes stopped configurations of a task, or one of them, at their next event. Returns how many.

        Raises: NotFound.
        """
        stopped = [
            status.config
            for status in await self.statuses(caller)
            if status.config.task == task
            and status.state in (PushState.STOPPED, PushState.GONE)
            and config in (None, status.config.id)
        ]
        if not stopped:
            which = "push notification configuration" + ("" if config is None else f" {echo(config)}")
            raise NotFound(f"there is no {which} of yours that was stopped, of task {echo(task)}")
        try:
            await self.ledger.commit(*(ReplayPush(each.task, each.id) for each in stopped))
        except Conflict as error:
            raise NotFound(f"the configurations of task {echo(task)} were changed meanwhile; look again") from error
        self.changed()
        return len(stopped)


def _shown(config: PushConfig) -> TaskPushNotificationConfig:
    """The configuration in the form for its owner, without token and credentials, which the owner already has."""
    return TaskPushNotificationConfig(
        id=config.id,
        task_id=config.task,
        url=config.url,
        authentication=AuthenticationInfo(scheme=config.scheme) if config.scheme is not None else None,
    )
