"""Page tokens of ListTasks. Law: a token is opaque, signed, and valid only for its own caller, agent and filter."""

import base64
import binascii
import hashlib
import hmac

import msgspec

from gateway.a2a.errors import invalid
from gateway.a2a.model import ListTasksRequest
from gateway.operations.call import OperationCall

_SIGNATURE = 16


class _Cursor(msgspec.Struct, array_like=True, frozen=True):
    status_at: int
    task: str


def _signature(secret: bytes, call: OperationCall, request: ListTasksRequest, payload: bytes) -> bytes:
    scope = msgspec.json.encode(
        [
            call.caller.tenant,
            call.caller.principal,
            call.agent.name,
            request.context_id,
            request.status,
            request.status_timestamp_after,
        ]
    )
    return hmac.digest(secret, scope + b"\n" + payload, hashlib.sha256)[:_SIGNATURE]


def encode(secret: bytes, call: OperationCall, request: ListTasksRequest, last: tuple[int, str]) -> str:
    payload = msgspec.json.encode(_Cursor(*last))
    return base64.urlsafe_b64encode(_signature(secret, call, request, payload) + payload).decode().rstrip("=")


def decode(secret: bytes, call: OperationCall, request: ListTasksRequest) -> tuple[int, str] | None:
    """(status_at, id) of the last task of the page before. Raises: InvalidParams."""
    token = request.page_token
    if not token:
        return None
    try:
        raw = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        payload = raw[_SIGNATURE:]
        if not hmac.compare_digest(raw[:_SIGNATURE], _signature(secret, call, request, payload)):
            raise ValueError("the signature does not fit")
        cursor = msgspec.json.decode(payload, type=_Cursor)
    except (ValueError, binascii.Error, msgspec.MsgspecError) as error:
        raise invalid(
            "pageToken", "is not a token of this list; it must come from a response with the same filter"
        ) from error
    return cursor.status_at, cursor.task
