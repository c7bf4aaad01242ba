"""What a gateway and the process of a function tell each other: one line of JSON for each message, over pipes.

Law: the values are those that a function in a thread gives; nothing is pickled.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from adapters.python.calls import Failure
from gateway.a2a.model import Json
from gateway.ports import adapter as port
from gateway.ports.tools import SourceTool, ToolOutput


class Begin(msgspec.Struct, frozen=True, array_like=True, tag="begin"):
    """The first message to the process. `kind`: agent or tool. `settings` are those of the function, as JSON."""

    kind: str
    name: str
    base_dir: str
    settings: msgspec.Raw


class Start(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """`trace` is the place of the call in a trace, as text; None where nothing is traced."""

    number: int
    given: msgspec.Raw
    trace: str | None = None


class Give(msgspec.Struct, frozen=True, array_like=True, tag="give"):
    number: int
    weight: int


class Stop(msgspec.Struct, frozen=True, array_like=True, tag="stop"):
    number: int


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """The function is loaded. `tool` describes it if it is a tool."""

    tool: SourceTool | None


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """The function cannot be loaded. The process ends."""

    detail: str


class Value(msgspec.Struct, frozen=True, array_like=True, tag="value"):
    """`kind` is the name of the value's type."""

    number: int
    kind: str
    value: msgspec.Raw


class Alive(msgspec.Struct, frozen=True, array_like=True, tag="alive"):
    """The answer to Stop: the event loop is not blocked."""


class Log(msgspec.Struct, frozen=True, array_like=True, tag="log"):
    """What the process tells the log."""

    fields: dict[str, Json]


class End(msgspec.Struct, frozen=True, array_like=True, tag="end"):
    number: int
    failure: Failure | None


ToProcess = Begin | Start | Give | Stop
FromProcess = Ready | Refused | Value | Alive | Log | End

to_process: msgspec.json.Decoder[ToProcess] = msgspec.json.Decoder(ToProcess)
from_process: msgspec.json.Decoder[FromProcess] = msgspec.json.Decoder(FromProcess)

_KINDS: dict[str, msgspec.json.Decoder[Any]] = {
    kind.__name__: msgspec.json.Decoder(kind)
    for kind in (
        port.TextDelta,
        port.PartReady,
        port.ArtifactReady,
        port.Progress,
        port.ToolCallAnnounced,
        port.ToolCallReady,
        port.ToolResultReady,
        port.CallCompleted,
        port.DirectReply,
        ToolOutput,
    )
}


def encode(message: ToProcess | FromProcess) -> bytes:
    """Raises: TypeError, ValueError for content that is no JSON."""
    return msgspec.json.encode(message)


def encode_value(number: int, value: object) -> bytes:
    """Raises: as `encode`."""
    return encode(Value(number, type(value).__name__, msgspec.Raw(msgspec.json.encode(value))))


def value_of(message: Value) -> object:
    return _KINDS[message.kind].decode(message.value)


class LineWriter(asyncio.BaseProtocol):
    """Writes lines to a pipe. What is written to a process that is gone is lost."""

    def __init__(self) -> None:
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast("asyncio.WriteTransport", transport)

    def send(self, lines: Sequence[bytes]) -> None:
        """In one write."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"\n".join((*lines, b"")))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
