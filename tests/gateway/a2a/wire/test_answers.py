"""Answers of other agents as values of the model: those of A2A 1.0, recorded ones of 0.3, and what LangGraph mixes of both."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.a2a.model import (
    Artifact,
    Message,
    Part,
    Role,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.a2a.wire import answers, v1_0
from gateway.a2a.wire.answers import RpcError, Unreadable, rpc_event, rpc_result
from gateway.a2a.wire.v0_3 import results

_RECORDED = json.loads((Path(__file__).parents[3] / "fixtures" / "a2a-0.3" / "json-rpc.json").read_text())
EXCHANGES = {each["name"]: each for each in _RECORDED["exchanges"]}

PARTS = (
    Part(text="Grüße", metadata={"snake_case": {"a": [1, True]}}),
    Part(raw="AP/+aGVsbG8=", media_type="image/png", filename="p.png"),
    Part(url="https://f.example/x", media_type="text/csv"),
    Part(data={"context_id": [1, "ü", 1.5, True, {}, None]}),
)


def rpc(result: Any, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "1", "result": result, **more}).encode()


def event(found: StreamResponse | RpcError) -> StreamResponse:
    assert isinstance(found, StreamResponse)
    return found


# --- what no version allows -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"<html>", "no JSON"),
        (b'{"jsonrpc": "2.0", "id": 1}', "neither result nor error"),
        (rpc({}), "an answer of the kind None"),
        (rpc({"kind": "poem"}), "an answer of the kind 'poem'"),
        (rpc({"task": {"id": "t", "status": {"state": "TASK_STATE_LOST"}}}), "in the state 'TASK_STATE_LOST'"),
        (rpc({"task": {"status": {"state": "TASK_STATE_WORKING"}}}), "missing required field `id`"),
        (rpc({"kind": "status-update", "taskId": "t"}), "without its status or artifact"),
        (rpc({"message": {"role": "ROLE_SYSTEM", "parts": []}}), "of the role 'ROLE_SYSTEM'"),
        (rpc({"message": {"role": "agent", "parts": [{"kind": "text"}]}}), "a part without content"),
        (rpc({"message": {"role": "agent", "parts": [{"file": {"bytes": "!"}}]}}), "not base64"),
        (rpc({"message": {"role": "ROLE_AGENT", "messageId": "m", "parts": [{"raw": "!!!notb64"}]}}), "not base64"),
        (
            rpc(
                {
                    "artifactUpdate": {
                        "taskId": "t",
                        "contextId": "c",
                        "artifact": {"artifactId": "a", "parts": [{"raw": "a"}]},
                    }
                }
            ),
            "not base64",
        ),
        (rpc({"message": {"role": "agent", "parts": [{"file": {"uri": ""}}]}}), "a part without content"),
        (rpc({"message": {"role": "ROLE_AGENT", "messageId": "m", "parts": [{"url": ""}]}}), "a part without content"),
        (rpc({"message": {"role": "agent", "parts": "Hi"}}), "does not fit"),
        (b'{"result": {"message": ' + b'{"metadata": ' * 20000, "no JSON"),
    ],
)
def test_an_answer_that_no_version_allows_is_refused_with_the_place(body: bytes, why: str) -> None:
    with pytest.raises(Unreadable, match=why.replace("(", r"\(")):
        rpc_event(body)


def test_the_words_of_an_answer_are_in_no_refusal() -> None:
    with pytest.raises(Unreadable) as refused:
        rpc_event(rpc({"message": {"role": "agent", "parts": [{"text": {"secret": "canary"}}]}}))
    assert "canary" not in str(refused.value)


def test_an_error_of_json_rpc_is_one_wherever_it_comes() -> None:
    body = b'{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"gone","data":[{"reason":"TASK_NOT_FOUND"}]}}'
    error = RpcError(-32001, "gone", [{"reason": "TASK_NOT_FOUND"}])
    assert (rpc_event(body), rpc_result(body)) == (error, error)


# --- A2A 1.0 ----------------------------------------------------------------------------------------------------------

STATUS = TaskStatus(
    state=TaskState.INPUT_REQUIRED,
    message=Message(message_id="m", role=Role.AGENT, parts=PARTS, task_id="t", context_id="c"),
    timestamp="2026-11-20T10:00:00.000Z",
)
ARTIFACT = Artifact(artifact_id="a", name="n", description="d", parts=PARTS, metadata={"k": 1}, extensions=("x",))
OF_1_0 = [
    StreamResponse(task=Task(id="t", context_id="c", status=STATUS, artifacts=(ARTIFACT,), metadata={"k": "v"})),
    StreamResponse(message=STATUS.message),
    StreamResponse(status_update=TaskStatusUpdateEvent(task_id="t", context_id="c", status=STATUS, metadata={"k": 1})),
    StreamResponse(
        artifact_update=TaskArtifactUpdateEvent(
            task_id="t", context_id="c", artifact=ARTIFACT, append=True, last_chunk=True
        )
    ),
]


@pytest.mark.parametrize("value", OF_1_0, ids=["task", "message", "status", "artifact"])
def test_what_the_gateway_writes_is_what_it_reads(value: StreamResponse) -> None:
    written = v1_0.encode(value)
    assert answers.response(written) == value
    assert rpc_event(b'{"jsonrpc":"2.0","id":"1","result":%b}' % written) == value


def test_proto_json_in_its_other_forms_is_read() -> None:
    """Enums by number, null for what is absent, base64 for URLs."""
    found = event(
        rpc_event(
            rpc(
                {
                    "statusUpdate": {
                        "taskId": "t",
                        "contextId": "c",
                        "metadata": None,
                        "status": {"state": 3, "message": {"role": 2, "parts": [{"raw": "_-8"}], "extensions": None}},
                    }
                }
            )
        )
    )
    assert found.status_update is not None
    assert found.status_update.status.state is TaskState.COMPLETED
    assert found.status_update.status.message is not None
    assert found.status_update.status.message.parts == (Part(raw="/+8="),)


# --- A2A 0.3, as a2a-sdk 0.3.26 wrote it ------------------------------------------------------------------------------


def test_a_recorded_task_of_0_3_is_read() -> None:
    body = json.dumps(EXCHANGES["send"]["answer"]).encode()
    result = rpc_result(body)
    assert isinstance(result, bytes)
    task = answers.response(result).task
    assert task is not None
    assert (task.id, task.context_id, task.status.state) == ("t", "c", TaskState.COMPLETED)
    assert task.artifacts == (
        Artifact(artifact_id="a", name="Answer", description="All of it", parts=PARTS, metadata={"k": "v"}),
    )
    assert task.status.message is not None
    assert task.status.message.parts == PARTS
    assert task.status.message.extensions == ("https://x.example",)
    assert [(message.role, message.parts) for message in task.history or ()] == [(Role.USER, (Part(text="Hi"),))]
    assert answers.task(result) == task


def test_the_recorded_events_of_0_3_are_read() -> None:
    found = [event(rpc_event(json.dumps(each).encode())) for each in EXCHANGES["stream"]["events"]]
    kinds = [next(name for name in each.__struct_fields__ if getattr(each, name) is not None) for each in found]
    assert kinds[0] == "task"
    assert {"status_update", "artifact_update"} <= set(kinds)
    written = [v1_0.encode(each) for each in found]
    recorded = [each["result"] for each in EXCHANGES["stream"]["events"]]
    assert [json.loads(results.event(None, each)) for each in written] == recorded


@pytest.mark.parametrize("name", [name for name in EXCHANGES if name.startswith("get, ") and "state" not in name])
def test_every_recorded_state_of_0_3_is_read(name: str) -> None:
    recorded = EXCHANGES[name]["answer"]
    state = recorded["result"]["status"]["state"]
    result = rpc_result(json.dumps(recorded).encode())
    assert isinstance(result, bytes)
    assert answers.task(result).status.state == f"TASK_STATE_{state.upper().replace('-', '_')}"


def test_data_of_0_3_that_were_wrapped_because_they_are_no_object_are_unwrapped() -> None:
    part = {"kind": "data", "data": {"value": [1]}, "metadata": {"data_part_compat": True, "k": 1}}
    found = event(rpc_event(rpc({"kind": "message", "messageId": "m", "role": "agent", "parts": [part]})))
    assert found.message is not None
    assert found.message.parts == (Part(data=[1], metadata={"k": 1}),)


# --- LangGraph (langgraph-api 0.16.7), which says 1.0 ------------------------------------------------------------------


def test_updates_of_langgraph_are_read_although_they_lack_their_envelope() -> None:
    """Captured from `langgraph dev`; the ids are shortened."""
    status = (
        b'{"jsonrpc":"2.0","id":"1","result":{"taskId":"c:r","contextId":"c","kind":"status-update","status":{"state":'
        b'"TASK_STATE_WORKING","message":{"kind":"message","role":"ROLE_AGENT","parts":[{"kind":"text","text":"echo"}],'
        b'"messageId":"m","taskId":"c:r","contextId":"c"},"timestamp":"2026-11-25T17:57:24.934284+00:00"},"final":false}}'
    )
    artifact = (
        b'{"jsonrpc":"2.0","id":"1","result":{"taskId":"c:r","contextId":"c","kind":"artifact-update","artifact":{'
        b'"artifactId":"a","name":"Interrupt","description":"Agent requires input to continue","parts":[{"kind":"data",'
        b'"data":{"id":"i","value":{"question":"which city?"}}}]}}}'
    )
    said, asked = event(rpc_event(status)), event(rpc_event(artifact))
    assert said.status_update is not None
    assert said.status_update.status.message is not None
    assert (said.status_update.task_id, said.status_update.status.message.parts) == ("c:r", (Part(text="echo"),))
    assert asked.artifact_update is not None
    assert asked.artifact_update.artifact.parts == (Part(data={"id": "i", "value": {"question": "which city?"}}),)


def test_a_task_of_langgraph_is_read_in_its_envelope_and_without() -> None:
    task = b'{"kind":"task","id":"c:r","contextId":"c","history":[],"status":{"state":"TASK_STATE_INPUT_REQUIRED"}}'
    found = answers.response(b'{"task":%b}' % task).task
    assert found == answers.task(task)
    assert (found.id, found.status.state) == ("c:r", TaskState.INPUT_REQUIRED)
