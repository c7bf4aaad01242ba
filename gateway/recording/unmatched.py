"""Requests that no recording has an answer to: where they differ from the nearest, and the difference as a file."""

import difflib
import os
from contextlib import suppress
from pathlib import Path

from gateway.a2a.model import Json
from gateway.recording import form
from gateway.recording.folders import UNMATCHED
from gateway.recording.form import Exchange
from gateway.recording.lines import flow

_MODE = 0o600
_FOLDER_MODE = 0o700
_REQUEST, _RESPONSE = "request:", ("response:", "end:")


class Unmatched:
    """The folder of the differences. What an earlier replay has left there is taken away."""

    def __init__(self, root: Path) -> None:
        self._folder = root / UNMATCHED
        self._count = 0
        # A recording that nobody may write in is replayed all the same.
        with suppress(OSError):
            for old in self._folder.glob("*.diff"):
                old.unlink()

    def write(self, method: str, url: str, body: str | bytes | None, nearest: Exchange | None) -> str:
        """The name of the file, with the difference from the nearest recording. Raises: OSError."""
        self._count += 1
        asked = form.request_lines(method, url, {}, body)
        recorded = [] if nearest is None else _request_of(nearest.text)
        lines = difflib.unified_diff(
            recorded, asked, "nothing" if nearest is None else nearest.file, "request", n=2, lineterm=""
        )
        self._folder.mkdir(mode=_FOLDER_MODE, exist_ok=True)
        file = self._folder / f"{self._count:04}.diff"
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.writelines(f"{line}\n" for line in lines)
        return f"{UNMATCHED}/{file.name}"


def difference(recorded: Json, asked: Json, path: str = "$") -> str | None:
    """The path of the first value that differs, None where all are equal."""
    match recorded, asked:
        case dict(), dict():
            for name in (*recorded, *(name for name in asked if name not in recorded)):
                below = f"{path}.{name}" if name.isidentifier() else f"{path}[{flow(name)}]"
                if name not in recorded or name not in asked:
                    return below
                found = difference(recorded[name], asked[name], below)
                if found is not None:
                    return found
            return None
        case list(), list():
            for number, (one, other) in enumerate(zip(recorded, asked, strict=False)):
                found = difference(one, other, f"{path}[{number}]")
                if found is not None:
                    return found
            return None if len(recorded) == len(asked) else f"{path}[{min(len(recorded), len(asked))}]"
    return None if recorded == asked and type(recorded) is type(asked) else path


def _request_of(text: str) -> list[str]:
    """The lines of the request of a file, without its headers."""
    lines = text.split("\n")
    begin = lines.index(_REQUEST)
    end = next((at for at in range(begin, len(lines)) if lines[at].startswith(_RESPONSE)), len(lines) - 1)
    return [line for line in lines[begin:end] if not line.startswith("  headers:")]
