"""Page tokens: opaque, and valid only for their own list."""

import base64
from dataclasses import replace

import msgspec
import pytest

from gateway.a2a.errors import InvalidParams
from gateway.a2a.model import ListTasksRequest, TaskState
from gateway.core.agents import Agent
from gateway.ledger.threads import Caller
from gateway.operations.call import OperationCall
from gateway.operations.page_tokens import decode, encode
from tests.support.core import CARD
from tests.support.scripted import G, ScriptedAdapter

SECRET = b"s" * 32
CALL = OperationCall(Agent("echo", CARD, ScriptedAdapter(G)), Caller("ada", "acme"))
FILTER = ListTasksRequest(context_id="c", status=TaskState.WORKING, status_timestamp_after="2026-11-20T10:00:00Z")
LAST = (1_795_168_800_000, "task-9")


def with_token(token: str, request: ListTasksRequest = FILTER) -> ListTasksRequest:
    return ListTasksRequest(
        context_id=request.context_id,
        status=request.status,
        status_timestamp_after=request.status_timestamp_after,
        page_token=token,
    )


TOKEN = encode(SECRET, CALL, FILTER, LAST)


def test_a_token_says_where_the_page_before_ended() -> None:
    assert decode(SECRET, CALL, with_token(TOKEN)) == LAST


def test_a_token_is_safe_in_a_url() -> None:
    assert set(TOKEN) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@pytest.mark.parametrize("token", [None, ""])
def test_no_token_means_the_first_page(token: str | None) -> None:
    assert decode(SECRET, CALL, ListTasksRequest(page_token=token)) is None


def test_pages_may_differ_in_size() -> None:
    request = ListTasksRequest(
        context_id="c",
        status=TaskState.WORKING,
        status_timestamp_after="2026-11-20T10:00:00Z",
        page_size=3,
        history_length=1,
        include_artifacts=True,
        page_token=TOKEN,
    )
    assert decode(SECRET, CALL, request) == LAST


OTHERS = {
    "another caller's": (SECRET, msgspec.structs.replace(CALL, caller=Caller("bob", "acme")), FILTER),
    "another tenant's": (SECRET, msgspec.structs.replace(CALL, caller=Caller("ada")), FILTER),
    "another agent's": (SECRET, msgspec.structs.replace(CALL, agent=replace(CALL.agent, name="other")), FILTER),
    "another gateway's": (b"x" * 32, CALL, FILTER),
    "another context's": (SECRET, CALL, ListTasksRequest(context_id="d", status=TaskState.WORKING)),
    "no filter's": (SECRET, CALL, ListTasksRequest()),
}


@pytest.mark.parametrize("whose", OTHERS)
def test_a_token_of_somewhere_else_is_refused(whose: str) -> None:
    secret, call, request = OTHERS[whose]
    with pytest.raises(InvalidParams, match="pageToken: is not a token of this list"):
        decode(secret, call, with_token(TOKEN, request))


def _changed(index: int) -> str:
    raw = bytearray(base64.urlsafe_b64decode(TOKEN + "=" * (-len(TOKEN) % 4)))
    raw[index] ^= 1
    return base64.urlsafe_b64encode(bytes(raw)).decode().rstrip("=")


@pytest.mark.parametrize(
    "token",
    ["x", "AAAA", "é", "\ud800", "=" * 40, TOKEN[:-4], TOKEN[4:], _changed(0), _changed(-1), "../../etc/passwd"],
)
def test_a_forged_or_changed_token_is_refused(token: str) -> None:
    with pytest.raises(InvalidParams, match="pageToken"):
        decode(SECRET, CALL, with_token(token))
