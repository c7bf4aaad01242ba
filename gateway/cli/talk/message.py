"""A message from what was typed. Law: a message that cannot be sent stops the command before anything is sent."""

import base64
import json
import mimetypes
import os
import re
import sys
import uuid
from pathlib import Path
from typing import NoReturn

from gateway.cli.console.output import ExitCode, Stop, reason_of
from gateway.cli.console.parameters import SendOptions
from gateway.client.transport import Json


def build_message(options: SendOptions) -> dict[str, Json]:
    """A message of the user as A2A 1.0 JSON; TEXT `-` is standard input. Raises: Stop (2)."""
    if not re.fullmatch(r"[!-~]+", options.idempotency_key or "-"):
        raise Stop(ExitCode.USAGE, "--idempotency-key must be visible ASCII characters, without spaces")
    typed = _standard_input() if options.text == "-" else _utf8(options.text)
    parts: list[Json] = [{"text": typed}] if typed else []
    parts += [file_part(path, "--file") for path in options.files or ()]
    if options.data is not None:
        parts.append({"data": _json(options.data)})
    if not parts:
        raise Stop(ExitCode.USAGE, "there is nothing to send: TEXT is empty; give a text, --file or --data")
    return compose(parts, context=options.context, task=options.task)


def compose(parts: list[Json], *, context: str | None, task: str | None) -> dict[str, Json]:
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts}
    return message | {key: value for key, value in (("contextId", context), ("taskId", task)) if value is not None}


def _utf8(text: str) -> str:
    """The text, decoded again where the locale is not UTF-8: a shell passes bytes. Raises: Stop (2)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        try:
            return os.fsencode(text).decode()
        except UnicodeError:
            raise Stop(ExitCode.USAGE, "TEXT is not UTF-8; send it as a file: --file PATH") from None
    return text


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Stop(ExitCode.USAGE, "standard input is not UTF-8; send it as a file: --file PATH") from None


def file_part(path: Path, option: str) -> Json:
    """The part that holds a file; `option` names the option of the path in an error. Raises: Stop (2)."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Stop(ExitCode.USAGE, f"{option} {str(path)!r} cannot be read: {reason_of(error)}") from error
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return {"raw": base64.b64encode(content).decode(), "filename": path.name, "mediaType": kind}


def _json(text: str) -> Json:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Stop(ExitCode.USAGE, f"--data is not JSON: {error}; quote it as in --data '{{\"a\": 1}}'") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"there is no {name} in JSON")
