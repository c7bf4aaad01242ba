"""Which dialect a request speaks. Law: major and minor decide, patch numbers do not; no version at all means 0.3.

Source: A2A 1.0, section 3.6.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gateway.errors import VersionNotSupported, echo
from gateway.model import Json, Wire
from gateway.wire import v1_0


@dataclass(frozen=True, slots=True)
class Dialect:
    """One version's JSON: method names, requests in, results out."""

    version: str
    method: Callable[[str], v1_0.Method]
    decode: Callable[[type[Wire], Json], Any]
    decode_query: Callable[[type[Wire], Sequence[tuple[str, str]], Mapping[str, str]], Any]
    encode: Callable[[Wire], bytes]


DIALECTS: Mapping[str, Dialect] = {
    v1_0.VERSION: Dialect(v1_0.VERSION, v1_0.method, v1_0.decode, v1_0.decode_query, v1_0.encode)
}

_UNNAMED = "0.3"
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,4})?")


def negotiate(requested: str | None) -> Dialect:
    """The dialect of the version that a request asks for. Raises: VersionNotSupported naming those there are."""
    text = (requested or "").strip()
    dialect = DIALECTS.get(text or _UNNAMED)
    if dialect is None and (match := _VERSION.fullmatch(text)):
        dialect = DIALECTS.get(f"{int(match[1])}.{int(match[2])}")
    if dialect is not None:
        return dialect
    supported = ", ".join(DIALECTS)
    asked = f"A2A version {echo(text)}" if text else f"A2A version {_UNNAMED} (assumed without A2A-Version)"
    raise VersionNotSupported(
        f"{asked} is not supported; supported: {supported}", metadata={"supportedVersions": supported}
    )
