"""A failing database, as callers see it: the reason in the gateway's words, and none of the database's."""

import pytest

from gateway.ledger.errors import LedgerUnavailable
from tests.interaction.harness import SEND, Gateway, Refusal

TEXTS = {
    "full": "The gateway's storage is full: nothing new is taken.",
    "read-only": "The gateway's storage can only be read: nothing new is taken.",
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
