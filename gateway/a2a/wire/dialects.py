"""The dialects of each binding, and the choice of one. Law: major and minor version decide, not the patch; none means 0.3.

Source: A2A 1.0, section 3.6.
"""

import re
from collections.abc import Mapping

from gateway.a2a.errors import VersionNotSupported, echo
from gateway.a2a.wire import v1_0, v1_1
from gateway.a2a.wire.dialect import Dialect
from gateway.a2a.wire.v0_3 import http_json, json_rpc

JSON_RPC: Mapping[str, Dialect] = {v1_0.VERSION: v1_0.DIALECT, json_rpc.VERSION: json_rpc.DIALECT}
HTTP_JSON: Mapping[str, Dialect] = {v1_0.VERSION: v1_0.DIALECT}
HTTP_JSON_BELOW_V1: Mapping[str, Dialect] = {json_rpc.VERSION: http_json.DIALECT}
_DRAFTS: Mapping[str, Dialect] = {v1_1.VERSION: v1_1.DIALECT}

UNNAMED = "0.3"
"""The version of a request that names none."""

_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(?:\.[0-9]{1,4})?")


def with_drafts(dialects: Mapping[str, Dialect]) -> Mapping[str, Dialect]:
    """The dialects of a binding, and versions that are not final where it speaks the final one before them."""
    return {**dialects, **_DRAFTS} if v1_0.VERSION in dialects else dialects


def negotiate(requested: str | None, dialects: Mapping[str, Dialect], elsewhere: str = "") -> Dialect:
    """The dialect of the requested version. `elsewhere` says where others are spoken.

    Raises: VersionNotSupported naming the supported ones.
    """
    text = requested or ""
    dialect = dialects.get(text or UNNAMED)
    if dialect is None and (match := _VERSION.fullmatch(text)):
        dialect = dialects.get(f"{int(match[1])}.{int(match[2])}")
    if dialect is not None:
        return dialect
    supported = ", ".join(dialects)
    asked = f"A2A version {echo(text)}" if text else f"A2A version {UNNAMED} (assumed without A2A-Version)"
    why = "; ".join(filter(None, (f"{asked} is not supported", f"supported: {supported}", elsewhere)))
    raise VersionNotSupported(why, metadata={"supportedVersions": supported})
