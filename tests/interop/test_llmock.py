"""The gateway in front of llmock, which breaks its answers on request and judges how its client took that."""

from typing import Any

import pytest

from gateway.ports.adapter import ErrorClass
from tests.a2a_client import A2A, COMPLETED, a2a_http, failed, why
from tests.interop.peer_processes import Llmock
from tests.running import StartLocal

_WIRES = ["openai-responses", "openai-chat"]
_FAULTS: dict[str, tuple[dict[str, Any], ErrorClass]] = {
    "truncated": ({"type": "stream_fault", "kind": "truncate", "after_chunks": 4}, ErrorClass.INTERRUPTED),
    "disconnected": ({"type": "stream_fault", "kind": "disconnect", "after_chunks": 4}, ErrorClass.INTERRUPTED),
    "stalled": ({"type": "stream_fault", "kind": "stall", "after_chunks": 4}, ErrorClass.TIMED_OUT),
    "malformed": ({"type": "stream_fault", "kind": "malformed", "after_chunks": 4}, ErrorClass.CONTRACT_BROKEN),
    "rate limit": ({"type": "fail", "status": 429, "retry_after": 3, "times": 1}, ErrorClass.RATE_LIMITED),
    "server error": ({"type": "fail", "status": 500, "times": 1}, ErrorClass.BACKEND_FAILED),
    "unavailable, Retry-After": ({"type": "fail", "status": 503, "times": 1}, ErrorClass.RATE_LIMITED),
    "unauthorised": ({"type": "fail", "status": 401, "times": 1}, ErrorClass.UNAUTHORISED),
}


@pytest.mark.parametrize("wire", _WIRES)
@pytest.mark.parametrize("fault", _FAULTS)
async def test_a_fault_is_outlived_or_fails_the_task_for_its_reason_and_the_next_message_works(
    llmock_peer: Llmock, start_local: StartLocal, wire: str, fault: str
) -> None:
    behaviour, kind = _FAULTS[fault]
    timeouts = "{first_byte: 30s, between_bytes: 300ms}"
    agent = f"broken: {{type: {wire}, model: gpt-4o, base_url: '{llmock_peer.url}', timeouts: {timeouts}}}"
    gateway = await start_local(agent)
    llmock_peer.play(behaviour)
    async with a2a_http(gateway.url) as http:
        broken = A2A(http, "broken")
        first = await broken.send("hi")
        verdict = llmock_peer.verdict()
        second = await broken.send("again", first["contextId"])

    # What was shown in part is not asked for again.
    nothing_shown = wire == "openai-responses" and fault in ("truncated", "disconnected", "stalled")
    outlived = kind is ErrorClass.RATE_LIMITED or fault == "server error" or nothing_shown
    assert why(first) == (COMPLETED if outlived else failed(kind))
    assert why(second) == COMPLETED
    assert verdict["faults_injected"] == 1
    errors = {finding["code"] for finding in verdict["findings"] if finding["severity"] == "error"}
    # It takes every client that does not repeat a truncated stream for one that was content with it; ours failed.
    assert errors == ({"truncated_stream_accepted"} if fault == "truncated" and not outlived else set())
