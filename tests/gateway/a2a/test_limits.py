"""Limits of well-formed requests. The errors as callers see them are in tests/interaction/test_bad_input.py."""

from typing import Any

import msgspec
import pytest

from gateway.a2a.errors import InvalidParams
from gateway.a2a.limits import Limits, check
from gateway.a2a.model import (
    AuthenticationInfo,
    CancelTaskRequest,
    DeleteTaskPushNotificationConfigRequest,
    GetExtendedAgentCardRequest,
    GetTaskPushNotificationConfigRequest,
    GetTaskRequest,
    ListTaskPushNotificationConfigsRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageConfiguration,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskPushNotificationConfig,
    Wire,
)

SMALL = Limits(parts=2, reference_ids=2, extensions=2, metadata=20, id_length=4)
MESSAGE = Message(message_id="m", role=Role.USER, parts=(Part(text="x"),))
FULL = SendMessageRequest(
    tenant="name",
    message=Message(
        message_id="1234",
        context_id="1234",
        task_id="1234",
        role=Role.USER,
        parts=(Part(text="long enough to be over any limit of an id", metadata={"k": "234567890123"}),) * 2,
        metadata={"k": "234567890123"},
        extensions=("e", "f"),
        reference_task_ids=("1234", "äöü€"),
    ),
    configuration=SendMessageConfiguration(accepted_output_modes=("a/b",), history_length=0),
    metadata={"k": "234567890123"},
)


@pytest.mark.parametrize(
    "request_",
    [
        FULL,
        GetTaskRequest(id="1234", history_length=0),
        ListTasksRequest(page_size=1, context_id="1234"),
        ListTasksRequest(page_size=100, history_length=10**6),
        CancelTaskRequest(id="a/b", metadata={}),
        SubscribeToTaskRequest(id="../x"),
        TaskPushNotificationConfig(url="https://x", token="~!a b", authentication=AuthenticationInfo(scheme="Bearer")),
        GetTaskPushNotificationConfigRequest(task_id="t", id="c"),
        DeleteTaskPushNotificationConfigRequest(task_id="t", id="c"),
        ListTaskPushNotificationConfigsRequest(task_id="t"),
        ListTaskPushNotificationConfigsRequest(task_id="t", page_size=0),
        ListTaskPushNotificationConfigsRequest(task_id="t", page_size=100),
        GetExtendedAgentCardRequest(),
    ],
)
def test_what_is_just_at_the_limits_passes(request_: Wire) -> None:
    check(request_, SMALL)


def _authenticated(scheme: str, credentials: str) -> TaskPushNotificationConfig:
    return TaskPushNotificationConfig(
        url="https://x", authentication=AuthenticationInfo(scheme=scheme, credentials=credentials)
    )


def sent(**changes: Any) -> SendMessageRequest:
    return SendMessageRequest(message=msgspec.structs.replace(MESSAGE, **changes))


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (sent(message_id="12345"), "message.messageId"),
        (sent(context_id="12345"), "message.contextId"),
        (sent(task_id="a\x9f"), "message.taskId"),
        (sent(role=Role.AGENT), "message.role"),
        (sent(parts=()), "message.parts"),
        (sent(parts=MESSAGE.parts * 3), "message.parts"),
        (sent(parts=(Part(text="x"), Part(text="x", metadata={"k": "2345678901234"}))), "message.parts[1].metadata"),
        (sent(reference_task_ids=("a", "b", "c")), "message.referenceTaskIds"),
        (sent(reference_task_ids=("a", "\0")), "message.referenceTaskIds[1]"),
        (sent(extensions=("a", "b", "c")), "message.extensions"),
        (sent(metadata={"k": "ääääääää"}), "message.metadata"),
        (msgspec.structs.replace(FULL, metadata={"k": "2345678901234"}), "metadata"),
        (msgspec.structs.replace(FULL, tenant="12345"), "tenant"),
        (
            SendMessageRequest(message=MESSAGE, configuration=SendMessageConfiguration(history_length=-1)),
            "configuration.historyLength",
        ),
        (
            SendMessageRequest(
                message=MESSAGE, configuration=SendMessageConfiguration(accepted_output_modes=("a", "b\n"))
            ),
            "configuration.acceptedOutputModes[1]",
        ),
        (GetTaskRequest(id="12345"), "id"),
        (GetTaskRequest(id="a", history_length=-1), "historyLength"),
        (ListTasksRequest(page_size=0), "pageSize"),
        (ListTasksRequest(page_size=101), "pageSize"),
        (ListTaskPushNotificationConfigsRequest(task_id="t", page_size=-1), "pageSize"),
        (ListTaskPushNotificationConfigsRequest(task_id="t", page_size=101), "pageSize"),
        (ListTasksRequest(context_id="12345"), "contextId"),
        (CancelTaskRequest(id="a", metadata={"k": "2345678901234"}), "metadata"),
        (SubscribeToTaskRequest(id="a\ud800"), "id"),
        (TaskPushNotificationConfig(url="https://x", task_id="12345"), "taskId"),
        (TaskPushNotificationConfig(url="https://x", id="12345"), "id"),
        (TaskPushNotificationConfig(url="https://x", token="a\r\nX-Injected: 1"), "token"),
        (TaskPushNotificationConfig(url="https://x", token="a\nb"), "token"),
        (TaskPushNotificationConfig(url="https://x", token=" a"), "token"),
        (TaskPushNotificationConfig(url="https://x", token="ä"), "token"),
        (TaskPushNotificationConfig(url="https://x", token="a" * 8193), "token"),
        (_authenticated("Bear er", "x"), "authentication.scheme"),
        (_authenticated("Bearer\r\nX-Injected: 1", "x"), "authentication.scheme"),
        (_authenticated("", "x"), "authentication.scheme"),
        (_authenticated("Bearer", "x\r\nX-Injected: 1"), "authentication.credentials"),
        (_authenticated("Bearer", "x\x00"), "authentication.credentials"),
        (
            SendMessageRequest(
                message=MESSAGE,
                configuration=SendMessageConfiguration(task_push_notification_config=_authenticated("Bearer", "x\n")),
            ),
            "configuration.taskPushNotificationConfig.authentication.credentials",
        ),
        (GetTaskPushNotificationConfigRequest(task_id="t", id="12345"), "id"),
        (DeleteTaskPushNotificationConfigRequest(task_id="12345", id="c"), "taskId"),
        (ListTaskPushNotificationConfigsRequest(task_id="12345"), "taskId"),
    ],
)
def test_what_is_just_over_a_limit_is_refused_by_name(request_: Wire, field: str) -> None:
    with pytest.raises(InvalidParams) as caught:
        check(request_, SMALL)

    assert [violation.field for violation in caught.value.violations] == [field]
