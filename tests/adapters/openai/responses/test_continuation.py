"""The continuation of a request, and the echo of it in a response."""

from typing import Any

import pytest
from msgspec import UNSET

from adapters.openai.failures import OpenAIFailures
from adapters.openai.responses.continuation import Chain, Continuation, Echo, InConversation
from gateway.ports.adapter import ErrorClass

CONV = InConversation("conv_1")


def fault(continuing: Continuation, **echo: Any) -> ErrorClass | None:
    error = continuing.mismatch(Echo("resp_1", **echo), OpenAIFailures(()))
    return None if error is None else error.kind


@pytest.mark.parametrize(
    ("handle", "echoed", "kind"),
    [
        (None, None, None),
        (None, UNSET, None),
        ("resp_0", "resp_0", None),
        # A server may leave out the echo, and then a mismatch cannot be noticed.
        ("resp_0", UNSET, None),
        ("resp_0", None, ErrorClass.HANDLE_NOT_FOUND),
        ("resp_0", "resp_9", ErrorClass.HANDLE_NOT_FOUND),
        (None, "resp_9", ErrorClass.CONTRACT_BROKEN),
    ],
)
def test_a_chain_continues_from_its_handle(handle: str | None, echoed: Any, kind: ErrorClass | None) -> None:
    assert fault(Chain(handle), previous_response_id=echoed) is kind
    assert fault(Chain(handle, verifies=False), previous_response_id=echoed) is None
    assert fault(Chain(handle), previous_response_id=handle, conversation={"id": "conv_9"}) is None


@pytest.mark.parametrize(
    ("echoed", "kind"),
    [
        (UNSET, None),
        ("conv_1", None),
        ({"id": "conv_1"}, None),
        (None, ErrorClass.HANDLE_NOT_FOUND),
        ({"id": None}, ErrorClass.HANDLE_NOT_FOUND),
        ({}, ErrorClass.HANDLE_NOT_FOUND),
        ("conv_2", ErrorClass.CONTRACT_BROKEN),
        ({"id": "conv_2"}, ErrorClass.CONTRACT_BROKEN),
        (7, ErrorClass.CONTRACT_BROKEN),
    ],
)
def test_27_an_answer_is_in_the_conversation_that_was_named(echoed: Any, kind: ErrorClass | None) -> None:
    assert fault(CONV, conversation=echoed) is kind


def test_a_request_names_one_of_the_two_or_none_and_whether_it_is_to_be_kept() -> None:
    assert Chain().fields == {"store": True}
    assert Chain(keeps=False).fields == {"store": False}
    assert Chain("resp_0").fields == {"store": True, "previous_response_id": "resp_0"}
    assert CONV.fields == {"store": True, "conversation": "conv_1"}


def test_the_handle_is_the_answer_s_own_id_or_none_or_stays() -> None:
    answer = Echo("resp_1")
    assert Chain("resp_0").handle_of(answer) == "resp_1"
    assert Chain(keeps=False).handle_of(answer) is None
    assert CONV.handle_of(answer) == "conv_1"


def test_only_a_conversation_needs_to_know_where_it_ended() -> None:
    assert [Chain().state("msg_1"), CONV.state("msg_1"), CONV.state(None)] == [None, {"last_item": "msg_1"}, None]
