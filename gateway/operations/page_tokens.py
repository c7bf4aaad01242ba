"""Page tokens of ListTasks. Law: a token is opaque, signed, and valid only for its own caller, agent and filter."""

import base64
import hashlib
import hmac

import msgspec

from gateway.a2a.errors import invalid
from gateway.a2a.model import ListTasksRequest
from gateway.operations.call import OperationCall

_SIGNATURE = 16


def _signature(secret: bytes, call: OperationCall, request: ListTasksRequest, payload: bytes) -> bytes:
    caller, where = call.caller, (request.context_id, request.status, request.status_timestamp_after)
    scope = msgspec.json.encode([caller.tenant, caller.principal, call.agent.name, *where])
    # Unlike `hmac.digest`, this keeps the interpreter's lock, for which a thread that reads another page waits.
    return hashlib.blake2b(scope + b"\n" + payload, digest_size=_SIGNATURE, key=secret).digest()


def encode(secret: bytes, call: OperationCall, request: ListTasksRequest, last: tuple[int, str]) -> str:
    payload = msgspec.json.encode(last)
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
        return msgspec.json.decode(payload, type=tuple[int, str])
    except (ValueError, msgspec.MsgspecError) as error:
        raise invalid(
            "pageToken", "is not a token of this list; it must come from a response with the same filter"
        ) from error
