"""Push notification configurations: creation, reading, deletion, replay."""

import asyncio
from typing import Any

import pytest

from gateway.a2a.errors import InvalidParams, NotFound, PushNotificationNotSupported, TaskNotFound
from gateway.a2a.model import (
    AuthenticationInfo,
    DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigsRequest,
    SendMessageConfiguration,
    SendMessageRequest,
    TaskPushNotificationConfig,
)
from gateway.foundation.addresses import TargetRules
from gateway.foundation.resolver import Resolver
from gateway.ledger.retention import ExpireTasks
from gateway.maintenance.retention import Lifetimes, Retention
from gateway.operations.contexts import Contexts
from gateway.operations.push_configs import MAX_CONFIGS, PushConfigs
from gateway.push.webhook import Outcome
from tests.support.core import Core, message, query, soon, until
from tests.support.push_harness import BOX, URL, PushHarness
from tests.support.scripted import BR, Pause, ScriptedAdapter, says

SECRET = AuthenticationInfo(scheme="Bearer", credentials="credentials-canary")


@pytest.fixture
async def push(core: Core) -> PushHarness:
    core.agent(ScriptedAdapter(BR, otherwise=lambda _: says("a")))
    return PushHarness(core)


async def get(core: Core, task: str, config: str, principal: str = "ada") -> TaskPushNotificationConfig:
    request = GetTaskPushNotificationConfigRequest(task_id=task, id=config)
    return await core.operations.get_push_config(core.call(principal), request)


async def listed(core: Core, task: str, principal: str = "ada") -> list[str | None]:
    request = ListTaskPushNotificationConfigsRequest(task_id=task)
    answer = await core.operations.list_push_configs(core.call(principal), request)
    assert answer.next_page_token == ""
    return [config.id for config in answer.configs]


async def delete(core: Core, task: str, config: str, principal: str = "ada") -> None:
    request = DeleteTaskPushNotificationConfigRequest(task_id=task, id=config)
    await core.operations.delete_push_config(core.call(principal), request)


async def test_one_is_made_read_listed_and_deleted(core: Core, push: PushHarness) -> None:
    task = (await core.send("hello")).id
    made = await push.create(task)
    assert made == TaskPushNotificationConfig(id="config-1", task_id=task, url=URL)
    assert await get(core, task, "config-1") == made
    assert await listed(core, task) == ["config-1"]
    assert push.woken == 1
    for _ in range(2):
        await delete(core, task, "config-1")
    assert await listed(core, task) == []
    with pytest.raises(TaskNotFound, match="Push notification configuration not found"):
        await get(core, task, "config-1")


async def test_one_without_an_id_gets_one(core: Core, push: PushHarness) -> None:
    task = (await core.send("hello")).id
    first, second = await push.create(task, None), await push.create(task, None)
    assert first.id
    assert second.id
    assert await listed(core, task) == sorted([first.id, second.id])


async def test_a_configuration_with_the_same_id_replaces_the_first_and_keeps_its_cursor(
    core: Core, push: PushHarness
) -> None:
    task = await push.send("hello")
    push.posts.answers.append(Outcome(500))
    await push.deliver()
    await push.create(task.id, url="https://other.example/")
    assert (await get(core, task.id, "config-1")).url == "https://other.example/"
    await push.deliver()
    assert push.posts.numbers == [1, 1, 2]


async def test_token_and_credentials_go_in_and_do_not_come_out(core: Core, push: PushHarness) -> None:
    task = (await core.send("hello")).id
    made = await push.create(task, token="token-canary", authentication=SECRET)
    shown = TaskPushNotificationConfig(
        id="config-1", task_id=task, url=URL, authentication=AuthenticationInfo(scheme="Bearer")
    )
    assert made == await get(core, task, "config-1") == shown
    stored = query(core.path, "SELECT * FROM push_config")
    assert "canary" not in str(stored)
    for file in core.path.parent.glob(core.path.name + "*"):
        assert b"canary" not in file.read_bytes()
    [[sealed]] = query(core.path, "SELECT sealed FROM push_config")
    secrets = BOX.open(sealed, URL)
    assert (secrets.token, secrets.credentials) == ("token-canary", "credentials-canary")


async def test_a_task_has_room_for_ten(core: Core, push: PushHarness) -> None:
    task = (await core.send("hello")).id
    for number in range(MAX_CONFIGS):
        await push.create(task, f"config-{number}")
    with pytest.raises(InvalidParams, match="10 push notification configurations"):
        await push.create(task, "one-too-many")
    await push.create(task, "config-3", url="https://other.example/")
    await delete(core, task, "config-0")
    await push.create(task, "one-more")
    assert len(await listed(core, task)) == MAX_CONFIGS


async def test_of_many_that_are_made_at_once_ten_are_taken(core: Core, push: PushHarness) -> None:
    task = (await core.send("hello")).id
    made = await asyncio.gather(*(push.create(task, None) for _ in range(15)), return_exceptions=True)
    assert [type(result).__name__ for result in made].count("InvalidParams") == 5
    assert len(await listed(core, task)) == MAX_CONFIGS


# --- pages ------------------------------------------------------------------------------------------------------------


async def page(core: Core, task: str, size: int | None, token: str | None = None) -> tuple[list[str | None], str]:
    request = ListTaskPushNotificationConfigsRequest(task_id=task, page_size=size, page_token=token)
    answer = await core.operations.list_push_configs(core.call("ada"), request)
    return [config.id for config in answer.configs], answer.next_page_token


async def test_a_list_comes_in_pages_of_the_size_that_is_asked_for(core: Core, push: PushHarness) -> None:
    task = (await core.send("hello")).id
    for name in "abcd":
        await push.create(task, name)
    first, token = await page(core, task, 2)
    last, end = await page(core, task, 2, token)
    assert (first, last, end) == (["a", "b"], ["c", "d"], "")


@pytest.mark.parametrize("size", [None, 0])
async def test_a_list_without_a_size_has_one_page(core: Core, push: PushHarness, size: int | None) -> None:
    task = (await core.send("hello")).id
    for number in range(MAX_CONFIGS):
        await push.create(task, f"config-{number}")
    found, token = await page(core, task, size)
    assert (len(found), token) == (MAX_CONFIGS, "")


async def test_a_token_of_no_configuration_of_the_task_is_refused(core: Core, push: PushHarness) -> None:
    task = (await core.send("hello")).id
    await push.create(task, "a")
    with pytest.raises(InvalidParams, match="pageToken"):
        await page(core, task, 1, "b")


# --- whose they are ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["create", "get", "list", "delete"])
async def test_a_foreign_task_is_not_found(core: Core, push: PushHarness, operation: str) -> None:
    task = (await core.send("hello")).id
    await push.create(task)

    async def ask(task: str, principal: str) -> object:
        match operation:
            case "create":
                wanted = TaskPushNotificationConfig(task_id=task, url=URL)
                return await core.operations.create_push_config(core.call(principal), wanted)
            case "get":
                return await get(core, task, "config-1", principal)
            case "list":
                return await listed(core, task, principal)
            case _:
                await delete(core, task, "config-1", principal)
                return None

    for unknown, principal in ((task, "eve"), ("nothing", "ada")):
        with pytest.raises(TaskNotFound) as found:
            await ask(unknown, principal)
        assert (found.value.message, found.value.metadata) == ("Task not found", {"taskId": unknown, "field": "id"})
    assert await listed(core, task) == ["config-1"]


async def test_another_agents_task_is_unknown_too(core: Core, push: PushHarness) -> None:
    task = (await core.send("hello")).id
    core.agent(ScriptedAdapter(BR), "other")
    with pytest.raises(TaskNotFound):
        await push.create(task)


async def test_a_caller_neither_sees_nor_replays_configurations_of_another(core: Core, push: PushHarness) -> None:
    task = await push.send("hello")
    push.posts.answers.append(Outcome(410))
    await push.deliver()
    eve = core.call("eve").caller
    assert await push.configs.statuses(eve) == ()
    with pytest.raises(NotFound):
        await push.configs.replay(eve, task.id, None)
    assert await push.configs.replay(core.call().caller, task.id, "config-1") == 1


async def test_only_a_stopped_configuration_can_be_replayed(core: Core, push: PushHarness) -> None:
    task = await push.send("hello")
    for config in (None, "config-1", "nothing"):
        with pytest.raises(NotFound, match="that was stopped"):
            await push.configs.replay(core.call().caller, task.id, config)


async def test_a_deleted_context_takes_its_configurations_along(core: Core, push: PushHarness) -> None:
    task = await push.send("hello")
    contexts = Contexts(core.ledger, core.runner, core.fanout, core.time.clock, core.drain)
    await contexts.delete(core.call().caller, task.context_id)
    assert push.rows() == []
    assert await push.deliver() == 0


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://hook.example/", "push.allow_http"),
        ("https://127.0.0.1/", "this machine"),
        ("https://u:p@hook.example/", "credentials"),
        ("https://hook.example/\r\nA: b", "visible ASCII"),
    ],
)
async def test_an_address_that_must_not_be_reached_is_refused_by_its_field(
    core: Core, push: PushHarness, url: str, why: str
) -> None:
    task = (await core.send("hello")).id
    with pytest.raises(InvalidParams, match=why) as refused:
        await push.create(task, url=url)
    assert [violation.field for violation in refused.value.violations] == ["url"]
    assert await listed(core, task) == []


async def test_a_name_with_a_private_address_is_refused_without_naming_it(core: Core, push: PushHarness) -> None:
    task = (await core.send("hello")).id
    push.addresses = ["8.8.8.8", "10.20.30.40"]
    with pytest.raises(InvalidParams, match="must not lead to an address that is private") as refused:
        await push.create(task)
    assert "10.20" not in str(refused.value)


async def test_an_unknown_name_is_accepted_and_looked_up_again_for_each_delivery(core: Core) -> None:
    core.agent(ScriptedAdapter(BR, says("a")))
    task = (await core.send("hello")).id
    hangs = asyncio.Event()

    async def nobody(host: str, port: int) -> list[str]:
        raise OSError("no such host")

    pushes = PushConfigs(
        core.ledger, TargetRules(), Resolver(TargetRules().permit, nobody), BOX, core.time.clock, hangs.set
    )
    made = await pushes.create(core.call(), task, TaskPushNotificationConfig(url=URL))
    assert made.url == URL


async def test_a_refused_configuration_refuses_the_message_that_it_came_with(core: Core, push: PushHarness) -> None:
    config = TaskPushNotificationConfig(url="https://10.0.0.1/")
    configuration = SendMessageConfiguration(task_push_notification_config=config)
    request = SendMessageRequest(message=message("hello"), configuration=configuration)
    with pytest.raises(InvalidParams) as refused:
        await core.operations.send_message(core.call(), request)
    [violation] = refused.value.violations
    assert violation.field == "configuration.taskPushNotificationConfig.url"
    assert query(core.path, "SELECT * FROM task") == []


@pytest.mark.parametrize("given", ["another", "id-0001"])
async def test_a_configuration_in_a_message_is_for_its_task(core: Core, push: PushHarness, given: str) -> None:
    config = TaskPushNotificationConfig(url=URL, task_id=given)
    configuration = SendMessageConfiguration(task_push_notification_config=config)
    request = SendMessageRequest(message=message("hello"), configuration=configuration)
    with pytest.raises(InvalidParams, match="must be left out"):
        await core.operations.send_message(core.call(), request)


async def test_a_configuration_with_a_slash_in_its_id_is_refused(core: Core, push: PushHarness) -> None:
    """HTTP+JSON takes no encoded slash in an address."""
    task = (await core.send("hello")).id
    config = TaskPushNotificationConfig(task_id=task, id="a/b", url=URL)
    with pytest.raises(InvalidParams, match="id: must not contain a slash"):
        await core.operations.create_push_config(core.call(), config)


async def test_a_configuration_without_a_task_is_refused(core: Core, push: PushHarness) -> None:
    with pytest.raises(InvalidParams, match="taskId"):
        await core.operations.create_push_config(core.call(), TaskPushNotificationConfig(url=URL))


async def test_where_there_are_none_a_message_that_wants_them_is_refused(core: Core) -> None:
    core.agent(ScriptedAdapter(BR))
    configuration = SendMessageConfiguration(task_push_notification_config=TaskPushNotificationConfig(url=URL))
    request = SendMessageRequest(message=message("hello"), configuration=configuration)
    with pytest.raises(PushNotificationNotSupported):
        await core.operations.send_message(core.call(), request)


# --- with messages ------------------------------------------------------------------------------------------------------


async def test_a_message_that_is_repeated_changes_no_configuration(core: Core, push: PushHarness) -> None:
    async def send(config: str) -> Any:
        wanted = TaskPushNotificationConfig(id=config, url=URL)
        configuration = SendMessageConfiguration(task_push_notification_config=wanted)
        request = SendMessageRequest(message=message("hello"), configuration=configuration)
        return await core.operations.send_message(core.call(key="k"), request)

    first, second = await send("one"), await send("two")
    assert first.task.id == second.task.id
    assert await listed(core, first.task.id) == ["one"]


async def test_a_stream_and_a_message_to_a_task_that_waits_take_one_along(core: Core) -> None:
    pause = Pause()
    core.agent(ScriptedAdapter(BR, [pause, *says("a")], says("b")))
    push = PushHarness(core)
    first = await push.send("hello", at_once=True, context="c-1")
    second = await push.send("again", at_once=True, context="c-1", config="config-2")
    pause.go.set()
    await soon(core.runner.idle())
    await until(lambda: [row[3] for row in push.rows()] == [0, 0])
    await push.deliver()
    assert [await listed(core, task.id) for task in (first, second)] == [["config-1"], ["config-2"]]
    assert push.posts.states == ["COMPLETED", "WORKING", "COMPLETED"]


async def test_retention_keeps_the_log_of_undelivered_events(core: Core, push: PushHarness) -> None:
    push.posts.answers.append(Outcome(503))
    task = await push.send("hello")
    await push.deliver()
    contexts = Contexts(core.ledger, core.runner, core.fanout, core.time.clock, core.drain)

    async def sweep() -> int:
        await Retention(core.ledger, contexts, core.time.clock, core.duties, Lifetimes(events=1.0)).sweep()
        return len(query(core.path, "SELECT 1 FROM event WHERE task = ?", task.id))

    core.time.now += 5_000
    assert await sweep() > 0
    await push.deliver()
    assert push.posts.numbers == [1, 1, 2]
    assert await sweep() == 0
    assert await listed(core, task.id) == ["config-1"]


async def test_a_task_that_is_over_its_time_takes_its_configurations_along(core: Core, push: PushHarness) -> None:
    task = await push.send("hello")
    await push.deliver()
    await core.ledger.commit(ExpireTasks((task.id,), records=True))
    assert push.rows() == []
