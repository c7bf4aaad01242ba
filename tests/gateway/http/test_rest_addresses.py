"""The resource of each path below an agent. Over the wire: tests/interaction."""

import pytest

from gateway.a2a.wire.v0_3.proto_requests import METHODS as METHODS_0_3
from gateway.a2a.wire.v1_0 import METHODS
from gateway.http.rest_addresses import V0_3, resource


@pytest.mark.parametrize(
    ("path", "operations", "fields"),
    [
        ("message:send", {"POST": "SendMessage"}, {}),
        ("message:stream", {"POST": "SendStreamingMessage"}, {}),
        ("extendedAgentCard", {"GET": "GetExtendedAgentCard"}, {}),
        ("tasks", {"GET": "ListTasks"}, {}),
        ("tasks/t", {"GET": "GetTask"}, {"id": "t"}),
        ("tasks/a:b", {"GET": "GetTask"}, {"id": "a:b"}),
        ("tasks/:cancel", {"GET": "GetTask"}, {"id": ":cancel"}),
        ("tasks/t:cancel", {"POST": "CancelTask"}, {"id": "t"}),
        ("tasks/a:b:cancel", {"POST": "CancelTask"}, {"id": "a:b"}),
        ("tasks/t:subscribe", {"GET": "SubscribeToTask", "POST": "SubscribeToTask"}, {"id": "t"}),
        (
            "tasks/t/pushNotificationConfigs",
            {"GET": "ListTaskPushNotificationConfigs", "POST": "CreateTaskPushNotificationConfig"},
            {"task_id": "t"},
        ),
        (
            "tasks/t/pushNotificationConfigs/c",
            {"GET": "GetTaskPushNotificationConfig", "DELETE": "DeleteTaskPushNotificationConfig"},
            {"task_id": "t", "id": "c"},
        ),
    ],
)
def test_an_address_means_its_operations(path: str, operations: dict[str, str], fields: dict[str, str]) -> None:
    found = resource(path.split("/"))

    assert found is not None
    assert (found.operations, found.fields) == (operations, fields)
    assert set(found.operations.values()) <= set(METHODS)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "message",
        "message:other",
        "tasks/",
        "tasks/a/b",
        "tasks//pushNotificationConfigs",
        "tasks/t/pushNotificationConfigs/",
    ],
)
def test_other_paths_have_no_resource(path: str) -> None:
    assert resource(path.split("/")) is None


@pytest.mark.parametrize(
    ("path", "operations", "fields"),
    [
        ("message:send", {"POST": "SendMessage"}, {}),
        ("message:stream", {"POST": "SendStreamingMessage"}, {}),
        ("card", {"GET": "GetExtendedAgentCard"}, {}),
        ("tasks/t", {"GET": "GetTask"}, {"id": "t"}),
        ("tasks/a:b:cancel", {"POST": "CancelTask"}, {"id": "a:b"}),
        ("tasks/t:subscribe", {"GET": "SubscribeToTask", "POST": "SubscribeToTask"}, {"id": "t"}),
        (
            "tasks/t/pushNotificationConfigs",
            {"GET": "ListTaskPushNotificationConfigs", "POST": "CreateTaskPushNotificationConfig"},
            {"id": "t"},
        ),
        (
            "tasks/t/pushNotificationConfigs/c",
            {"GET": "GetTaskPushNotificationConfig", "DELETE": "DeleteTaskPushNotificationConfig"},
            {"id": "t", "push_notification_config_id": "c"},
        ),
    ],
)
def test_an_address_below_v1_means_the_operations_of_0_3(
    path: str, operations: dict[str, str], fields: dict[str, str]
) -> None:
    found = resource(path.split("/"), V0_3)

    assert found is not None
    assert (found.operations, found.fields) == (operations, fields)
    assert set(found.operations.values()) <= set(METHODS_0_3)
    assert list(found.version.dialects) == ["0.3"]


@pytest.mark.parametrize("path", ["", "v1", "extendedAgentCard", "message:other", "tasks/", "tasks/a/b", "card/x"])
def test_other_paths_below_v1_have_no_resource(path: str) -> None:
    assert resource(path.split("/"), V0_3) is None
