"""Calls of a client of A2A 0.3 are what the server's side reads, and what the official client writes."""

import json
from pathlib import Path

import msgspec
import pytest

from gateway.a2a import model
from gateway.a2a.model import Json, Message, Part, Role, SendMessageConfiguration, Wire
from gateway.a2a.wire.v0_3 import calls, requests

_RECORDED = json.loads((Path(__file__).parents[4] / "fixtures" / "a2a-0.3" / "json-rpc.json").read_text())
SENT = next(each for each in _RECORDED["exchanges"] if each["name"] == "send")["request"]

MESSAGE = Message(
    message_id="m",
    context_id="c",
    task_id="t",
    role=Role.USER,
    parts=(
        Part(text="Hi", metadata={"k": 1}),
        Part(raw="AAE=", filename="x.bin", media_type="image/png"),
        Part(url="https://f.example/x", media_type="text/csv"),
        Part(data={"a": [1]}),
    ),
    metadata={"k": "v"},
    extensions=("https://x.example",),
    reference_task_ids=("r",),
)
ASKED: list[tuple[str, Wire]] = [
    (
        "SendMessage",
        model.SendMessageRequest(
            message=MESSAGE,
            configuration=SendMessageConfiguration(
                accepted_output_modes=("text/plain",), history_length=3, return_immediately=True
            ),
        ),
    ),
    ("SendStreamingMessage", model.SendMessageRequest(message=MESSAGE, metadata={"k": 1})),
    ("GetTask", model.GetTaskRequest(id="t", history_length=2)),
    ("CancelTask", model.CancelTaskRequest(id="t")),
    ("SubscribeToTask", model.SubscribeToTaskRequest(id="t")),
]


def written(request: Wire) -> Json:
    """The parameters as the other side gets them."""
    return msgspec.json.decode(msgspec.json.encode(calls.params(request)))


@pytest.mark.parametrize(("operation", "request_"), ASKED, ids=[name for name, _ in ASKED])
def test_the_servers_side_reads_what_is_sent(operation: str, request_: Wire) -> None:
    called = requests.method(calls.METHODS[operation])
    read = requests.decode(called, written(request_))
    if isinstance(request_, model.SendMessageRequest) and request_.configuration is None:
        # A default of 0.3 becomes a value of 1.0.
        assert read.configuration == SendMessageConfiguration(return_immediately=False)
        read = model.SendMessageRequest(message=read.message, metadata=read.metadata)
    assert read == request_


def test_a_tenant_stays_behind_because_0_3_has_none() -> None:
    assert calls.params(model.CancelTaskRequest(id="t", tenant="acme")) == {"id": "t"}


def test_a_message_is_written_as_the_official_client_writes_it() -> None:
    read = requests.decode(requests.method("message/send"), SENT["params"])
    assert written(read)["message"] == SENT["params"]["message"]
