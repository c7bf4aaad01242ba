"""From what was typed to an A2A message. Law: what cannot be sent is said before anything is sent."""

import base64
import json
import mimetypes
import os
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from gateway.cli.exits import ExitCode, Stop

Json = Any


def build_message(
    text: str, *, files: Sequence[Path], data: str | None, context: str | None, task: str | None
) -> dict[str, Json]:
    """A message of the user as A2A 1.0 JSON. Raises: Stop (2)."""
    said = _standard_input() if text == "-" else text
    if not said.isascii():
        said = _utf8(said)
    parts: list[Json] = [{"text": said}] if said else []
    parts += [file_part(path, "--file") for path in files]
    if data is not None:
        parts.append({"data": _json(data)})
    if not parts:
        raise Stop(ExitCode.USAGE, "there is nothing to send: TEXT is empty; give a text, --file or --data")
    return compose(parts, context=context, task=task)


def compose(parts: list[Json], *, context: str | None, task: str | None) -> dict[str, Json]:
    message = {"messageId": str(uuid.uuid4()), "role": "ROLE_USER", "parts": parts}
    return message | {key: value for key, value in (("contextId", context), ("taskId", task)) if value is not None}


def _utf8(said: str) -> str:
    """The same, also where it came through a locale that is not UTF-8: a shell's words are bytes. Raises: Stop (2)."""
    try:
        said.encode()
    except UnicodeEncodeError:
        try:
            return os.fsencode(said).decode()
        except UnicodeError:
            raise Stop(ExitCode.USAGE, "TEXT is not UTF-8; send it as a file: --file PATH") from None
    return said


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise Stop(ExitCode.USAGE, "standard input is not UTF-8; send it as a file: --file PATH") from None


def file_part(path: Path, option: str) -> Json:
    """The part that holds a file; `option` is what its path was typed behind. Raises: Stop (2)."""
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = (error.strerror or "not readable").lower()
        raise Stop(ExitCode.USAGE, f"{option} {str(path)!r} cannot be read: {reason}") from error
    kind = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    return {"raw": base64.b64encode(content).decode(), "filename": path.name, "mediaType": kind}


def _json(text: str) -> Json:
    try:
        return json.loads(text, parse_constant=_no_json)
    except (ValueError, RecursionError) as error:
        raise Stop(ExitCode.USAGE, f"--data is not JSON: {error}; quote it as in --data '{{\"a\": 1}}'") from error


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"there is no {name} in JSON")
