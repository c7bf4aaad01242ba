"""What a tool gave back, made fit to be kept and sent. Law: pure; what comes out is JSON, and never larger than asked for."""

import math

import msgspec

from gateway.model import Json
from gateway.tool_port import ToolError, ToolOutput

_DEPTH = 100
_DIGITS = 20


def bounded(output: ToolOutput, limit: int) -> ToolOutput:
    """At most `limit` bytes of it, with a word where something was cut off. Raises: ToolError when it is no JSON."""
    value = _json(output.output, 0)
    if isinstance(value, str):
        # Each character is one to four bytes, so most texts need no copy to be measured.
        if len(value) * 4 > limit and (size := len(data := value.encode())) > limit:
            value = f"{_beginning(data, limit)}\n[truncated: {limit} of {size} bytes]"
    elif (size := len(data := msgspec.json.encode(value))) > limit:
        value = {"truncated": True, "bytes": size, "beginning": _beginning(data, limit)}
    return ToolOutput(value, output.error)


def _beginning(data: bytes, limit: int) -> str:
    return data[:limit].decode(errors="ignore")


def _json(value: object, depth: int) -> Json:
    """A copy with what JSON does not have told as it can be; files hold NUL and halves of characters."""
    if depth > _DEPTH:
        raise ToolError(f"the result is nested more than {_DEPTH} deep")
    match value:
        case None | bool():
            return value
        case str():
            return _text(value)
        case int():
            return int(value) if abs(value) < 10**_DIGITS else str(value)
        case float():
            return float(value) if math.isfinite(value) else str(value)
        case list() | tuple():
            return [_json(each, depth + 1) for each in value]
        case dict():
            return {_text(str(key)): _json(each, depth + 1) for key, each in value.items()}
        case _:
            raise ToolError(f"the result holds a {type(value).__name__}, which JSON does not have")


def _text(value: str) -> str:
    if "\0" in value:
        value = value.replace("\0", "\ufffd")
    if value.isascii():
        return value
    return value.encode(errors="surrogatepass").decode(errors="replace")
