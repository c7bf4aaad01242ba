"""A failing database, as callers see it: the reason in the gateway's words, and none of the database's."""

import json
from typing import Any

import pytest

from gateway.ledger.errors import LedgerUnavailable
from tests.interaction.harness import SEND, Gateway, JsonRpc, Refusal, Rest
from tests.interaction.scripted import ScriptedStream

TEXTS = {
    "full": "The gateway's storage is full: nothing new is taken.",
    "read-only": "The gateway's storage can only be read: nothing new is taken.",
    "removed": "The gateway's storage was taken away: nothing new is taken.",
    "locked": "The gateway's storage is in use by another program; try again.",
    "unconfirmed": "The gateway's storage waits for its standby; try again.",
    "failing": "The gateway's storage is not available; try again.",
    "unavailable": "The gateway's storage is not available; try again.",
}


@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize("trouble", TEXTS)
async def test_a_caller_learns_what_is_wrong_with_the_storage_and_to_retry(
    gateway: Gateway, trouble: str, operation: str
) -> None:
    error = LedgerUnavailable("could not write /data/gateway.db: disk I/O error", trouble)
    gateway.operations.answers |= {"send_message": error, "send_streaming_message": error}

    answer = await gateway.ask(operation, SEND)

    refusal = Refusal(-32603, 503, "UNAVAILABLE", "BUSY", TEXTS[trouble], metadata={"storage": trouble}, rpc_http=503)
    assert (answer.status, answer.json) == gateway.binding.refusal(refusal)
    assert answer.header("retry-after") == "5"


TEXT_0_3: dict[str, Any] = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "Hello"}]}
TO_REST_0_3 = {"message": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "Hello"}]}}
TO_RPC_0_3 = {"jsonrpc": "2.0", "id": "r", "method": "message/stream", "params": {"message": TEXT_0_3}}


@pytest.mark.parametrize("trouble", TEXTS)
@pytest.mark.parametrize(
    ("gateway", "target", "asked"),
    [
        (Gateway(JsonRpc()), "/a2a/echo", TO_RPC_0_3),
        (Gateway(Rest()), "/a2a/echo/v1/message:stream", TO_REST_0_3),
    ],
    ids=["jsonrpc", "rest"],
)
async def test_a_stream_of_a2a_0_3_under_which_the_storage_fails_ends_with_what_is_wrong(
    gateway: Gateway, target: str, asked: dict[str, Any], trouble: str
) -> None:
    error = LedgerUnavailable("could not write /data/gateway.db: disk I/O error", trouble)
    gateway.operations.answers["send_streaming_message"] = ScriptedStream([], error=error)

    answer = await gateway.request("POST", target, json.dumps(asked).encode(), a2a_version="0.3")

    told, _, data = answer.body.decode().removesuffix("\n\n").partition("\ndata: ")
    assert (answer.status, told) == (200, "event: error")
    assert TEXTS[trouble] in data
    assert f'"storage":"{trouble}"' in data
    assert "/data" not in data
