"""`push`: pending and stopped push notifications."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.a2a_client import A2A, a2a_http, user_message
from tests.gateway.cli.conftest import CommandLine
from tests.receiver import LOOPBACK, Answer, Receiver, receiving
from tests.running import Local, local_gateway
from tests.support.core import query, until

AGENTS = 'mine: {type: python, ref: "gateway.cli.demo.agent:reply", default: true}'
ONCE = f"push: {{max_attempts: 1, {LOOPBACK}}}"


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[Local]:
    async with local_gateway(AGENTS, tmp_path, settings=ONCE) as gateway:
        yield gateway


async def stopped_task(gateway: Local, receiver: Receiver) -> str:
    receiver.answers.append(Answer(503))
    async with a2a_http(gateway.url) as http:
        config = {"id": "config-1", "url": receiver.url}
        answer = await A2A(http, "mine").call(
            "SendMessage", message=user_message("hello"), configuration={"taskPushNotificationConfig": config}
        )
    await until(lambda: query(gateway.database, "SELECT state FROM push_config") == [("stopped",)])
    task: str = answer["task"]["id"]
    return task


async def test_a_stopped_push_is_listed_and_continues_when_it_is_replayed(
    gateway: Local, receiver: Receiver, command_line: CommandLine
) -> None:
    task = await stopped_task(gateway, receiver)
    ended = await command_line("push", "list", "-u", gateway.url)
    assert [line.split("\t") for line in ended.out.splitlines() if "\t" in line] == [
        [task, "config-1", "stopped", "1", "1", "", receiver.url, "HTTP 503"]
    ]
    as_json = await command_line("push", "list", "--stopped", "-u", gateway.url, "-o", "json")
    assert [config["taskId"] for config in json.loads(as_json.out)["configs"]] == [task]

    again = await command_line("push", "replay", task, "-u", gateway.url)
    assert (again.code, again.out) == (0, f"task {task}: 1 configuration goes on where it was stopped\n")
    await receiver.ended()


async def test_without_pushes_a_message_says_so(gateway: Local, command_line: CommandLine) -> None:
    ended = await command_line("push", "list", "-u", gateway.url)
    assert (ended.code, ended.out, ended.err) == (
        0,
        "",
        "there is nothing to deliver for this principal; another one's is listed with a key of its own\n",
    )


async def test_replaying_a_task_without_stopped_pushes_is_an_error(gateway: Local, command_line: CommandLine) -> None:
    ended = await command_line("push", "replay", "nothing", "config-1", "-u", gateway.url)
    assert ended.code == 1
    assert "there is no push notification configuration 'config-1' of yours that was stopped" in ended.err
    assert "a2a-gateway push list" in ended.err
