"""Scripts, styles and icons. Law: the address of a file holds a digest of its content, so a browser keeps it for good."""

import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from starlette.types import ASGIApp

from gateway.http.reply import Reply
from gateway.ui.security import HEADERS

BASE = "/ui/static/"
_FOLDER = Path(__file__).parent / "static"
_TYPES = {".css": b"text/css; charset=utf-8", ".js": b"text/javascript; charset=utf-8", ".svg": b"image/svg+xml"}
_DIGITS = 16
_KEPT = (b"cache-control", b"public, max-age=31536000, immutable")


@cache
def _files() -> Mapping[str, tuple[str, Reply]]:
    """The address and the answer of each file, by its name."""
    found = {}
    contents = {path.name: path.read_bytes() for path in sorted(_FOLDER.iterdir()) if path.suffix in _TYPES}
    # Modules import one another by plain names, which lead to files of the same digest: that of all together.
    digest = hashlib.sha256(b"\0".join(contents.values())).hexdigest()[:_DIGITS]
    for name, content in contents.items():
        kind = _TYPES[Path(name).suffix]
        found[name] = f"{BASE}{digest}/{name}", Reply(content, media_type=kind, headers=(*HEADERS, _KEPT))
    return found


def address(name: str) -> str:
    """Raises: KeyError for a file that is not there."""
    return _files()[name][0]


def file_at(path: str) -> ASGIApp | None:
    """What stands at this address, None where nothing does."""
    found = _files().get(path.rpartition("/")[2])
    return found[1] if found is not None and found[0] == path else None
