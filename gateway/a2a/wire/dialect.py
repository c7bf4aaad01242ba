"""A dialect: one version of A2A as one binding writes it. Law: a dialect is a row of functions; everything behind it speaks the
model, which is that of A2A 1.0."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gateway.a2a.errors import A2AError
from gateway.a2a.model import Json, Task, Wire

# Line ends for some readers of SSE that JSON does not escape. In UTF-8 these bytes have no other meaning.
_LINE_ENDS = ((b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"), (b"\xc2\x85", b"\\u0085"))

_encoder = msgspec.json.Encoder()


CHANGES = frozenset(
    {
        "SendMessage",
        "SendStreamingMessage",
        "CancelTask",
        "CreateTaskPushNotificationConfig",
        "DeleteTaskPushNotificationConfig",
    }
)
"""The operations that change something; all others read."""


class Method(msgspec.Struct, frozen=True):
    """A method by its `name` in the dialect; `operation` is its name in A2A 1.0. Its parameters are read as a `request`.

    `held` says that the answer may wait for an event, so that it ends with its client.
    """

    name: str
    operation: str
    request: type[Wire]
    streaming: bool = False
    needs_extensions: bool = True
    held: bool = False


class Dialect(msgspec.Struct, frozen=True):
    """`method` raises MethodNotFound; `decode` and `decode_query` give a request of the model and raise InvalidParams.

    `decode_query` reads a URL: the pairs of its query, and the fields (by proto name) of its path. `encode` writes a result.
    `event` writes an event from its number and the line of the log; None: as it is logged. `earlier_event` writes one of a turn
    that had ended before the turn which a stream follows; None: as any other. `code` is the JSON-RPC code of an
    error. `extensions` is the header in which callers and the gateway name extensions. `refuses_in_stream` says that a caller
    of a streaming method reads nothing but a stream, also where it is refused. `in_list` is the number of bytes that a task
    takes in a list; None: about as many as it is stored in.
    """

    version: str
    method: Callable[[str], Method]
    decode: Callable[[Method, Json], Any]
    decode_query: Callable[[Method, Sequence[tuple[str, str]], Mapping[str, str]], Any]
    encode: Callable[[Any], bytes]
    event: Callable[[int | None, bytes], bytes] | None
    code: Callable[[A2AError], int]
    extensions: bytes
    refuses_in_stream: bool = False
    in_list: Callable[[Task], int] | None = None
    earlier_event: Callable[[int | None, bytes], bytes] | None = None

    def translation(self, may_end_at: int) -> Callable[[int | None, bytes], bytes] | None:
        """What writes the events of a stream that can end with an event of this number, and with no earlier one."""
        event, earlier = self.event, self.earlier_event
        if event is None or earlier is None or not may_end_at:
            return event
        return lambda number, payload: (event if number is None or number >= may_end_at else earlier)(number, payload)


def line(value: object) -> bytes:
    """The value as one line of JSON that fits into an SSE field."""
    encoded = _encoder.encode(value)
    if encoded.isascii():  # faster than three searches, and usually true
        return encoded
    for character, escape in _LINE_ENDS:
        if character in encoded:
            encoded = encoded.replace(character, escape)
    return encoded
