"""The resource of each path below an agent. Over the wire: tests/interaction."""

import pytest

from gateway.a2a.wire.v1_0 import METHODS
from gateway.http.rest import resource


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
