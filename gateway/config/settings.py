"""The base model of all settings, and the types of values that gateway.yaml has as text: durations, sizes, addresses, files.

Law: the error of a value says how to write it. Adapters use this module for their own settings.
"""

import math
import re
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from gateway.config.files import read_text

EXPECTED = "expected_form"
"""The type of an error whose text is followed by ", not <the value>", but for a secret."""

LEAST, MOST_OF_ALL = "x-minimum", "x-maximum"
"""Annotations of a duration or a size in a JSON Schema: what it must be at least, and at most."""

_KEY_LENGTH = 32

LONGEST = 36500 * 86400
"""Seconds of the longest duration: a time so far from now has four digits for its year."""

LARGEST = 999_999_999 * 2**30
"""Bytes of the largest size, which is far below what 64 bits count."""

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = {"B": 1, "kB": 1000, "KB": 1000, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]{1,3})?)(ms|s|m|h|d)")
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_MEDIA_TYPE = re.compile(r"[^/\s;,]+/[^/\s;,]+")
_SIZE = re.compile(r"([0-9]+)(B|kB|KB|MB|GB|KiB|MiB|GiB)")


def duration(text: str) -> float:
    """Seconds of a text such as 500ms, 30s, 15m, 1h or 7d. Raises: ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("must be a duration such as 500ms, 30s, 15m, 1h or 7d")
    seconds = float(match[1]) * _SECONDS[match[2]]
    if seconds > LONGEST:
        raise ValueError(f"must be at most {duration_text(LONGEST)}")
    return seconds


def duration_text(seconds: float) -> str:
    for unit in ("d", "h", "m", "s"):
        if seconds % _SECONDS[unit] == 0 and (seconds or unit == "s"):
            return f"{int(seconds / _SECONDS[unit])}{unit}"
    return f"{seconds * 1000:g}ms"


def size(text: str) -> int:
    """Bytes of a text such as 64KiB (1024 each) or 8MB (1000 times 1000). Raises: ValueError."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("must be a size such as 512B, 64KiB, 8MiB or 10MB")
    if float(match[1]) * _BYTES[match[2]] > LARGEST:
        raise ValueError(f"must be at most {size_text(LARGEST)}")
    return int(match[1]) * _BYTES[match[2]]


def size_text(count: int) -> str:
    for unit in ("GiB", "MiB", "KiB", "GB", "MB", "kB"):
        if count and count % _BYTES[unit] == 0:
            return f"{count // _BYTES[unit]}{unit}"
    return f"{count}B"


def expected(message: str) -> PydanticCustomError:
    """The error of a validator in words of its own. Nothing in them is masked, so they must not quote a secret."""
    return PydanticCustomError(EXPECTED, message)


def matching(pattern: re.Pattern[str], requirement: str) -> Callable[[str], str]:
    """A validator that accepts only what the pattern matches as a whole."""

    def check(value: str) -> str:
        if pattern.fullmatch(value) is None:
            raise expected(requirement)
        return value

    return check


def _quantity(read: Callable[[str], float], units: tuple[str, str, str]) -> BeforeValidator:
    """Reads a text with a unit; a bare number is an error that names the first units."""

    def check(value: object) -> float:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            first, second, third = (f"{value}{unit}" for unit in units)
            raise expected(f"must have a unit: write {first}, {second} or {third}")
        try:
            return read(value if isinstance(value, str) else "")
        except ValueError as error:
            raise expected(str(error)) from error

    return BeforeValidator(check)


class _InSchema(NamedTuple):
    """A quantity in a JSON Schema: text, with its limits as annotations, which no keyword has for text."""

    pattern: re.Pattern[str]
    written: Callable[[Any], str]

    def __get_pydantic_json_schema__(self, core: Any, _: object) -> dict[str, Any]:
        while "schema" in core:
            core = core["schema"]
        limits = {LEAST: core.get("ge"), MOST_OF_ALL: core.get("le")}
        written = {name: self.written(limit) for name, limit in limits.items() if limit is not None}
        return {"type": "string", "pattern": f"^{self.pattern.pattern}$", **written}


def base_dir(info: ValidationInfo) -> Path:
    """The folder of the file, against which its relative paths resolve."""
    context = info.context
    return Path(context["base_dir"]) if isinstance(context, dict) else Path()


def _resolve(path: Path, info: ValidationInfo) -> Path:
    if "\0" in str(path):
        raise expected("must be a path, and none has a null character")
    return base_dir(info) / path


def _read_text_or_file(value: object, info: ValidationInfo) -> object:
    match value:
        case {"file": str() as name, **others} if not others:
            return read_text(base_dir(info) / name)
        case dict() | list():
            raise expected("must be text, or a mapping with the one key `file` (a path)")
        case _:
            return value


def _check_web_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 0) >= 0
        credentials = "@" in parts.netloc
    except ValueError:
        usable = credentials = False
    if not usable or re.search(r"[\s\\]", value):
        raise expected("must be an address that starts with http:// or https:// and a host")
    if credentials:
        raise ValueError(
            "must have no user or password in it: addresses are shown, and credentials have settings of their own"
        )
    return value


def _check_network(value: str) -> str:
    try:
        ip_network(value)
    except ValueError as error:
        raise expected("must be a network such as 10.1.0.0/16 or fd00::/8, without bits behind its prefix") from error
    return value


def _check_long_key(value: SecretStr) -> SecretStr:
    key = value.get_secret_value().strip()
    if len(key) < _KEY_LENGTH:
        raise expected(f"must have at least {_KEY_LENGTH} characters")
    return SecretStr(key)


_READ_DURATION = _quantity(duration, ("s", "m", "h"))
_WRITE_DURATION = PlainSerializer(duration_text, return_type=str, when_used="json")
_DURATION_IN_SCHEMA = _InSchema(_DURATION, duration_text)

Duration = Annotated[float, _READ_DURATION, _WRITE_DURATION, _DURATION_IN_SCHEMA]
"""Seconds; in the file `500ms`, `30s`, `15m`, `1h`, `7d`."""

# A limit behind what reads the text would not be seen by the schema.
TimeLimit = Annotated[float, Field(ge=duration("100ms")), _READ_DURATION, _WRITE_DURATION, _DURATION_IN_SCHEMA]
"""A duration in which something has to happen. A shorter one would pass before anything can."""

Size = Annotated[
    int,
    _quantity(size, ("B", "KiB", "MiB")),
    PlainSerializer(size_text, return_type=str, when_used="json"),
    _InSchema(_SIZE, size_text),
]
"""Bytes; in the file `512B`, `64KiB`, `8MiB`, `10MB`."""

LocalPath = Annotated[Path, AfterValidator(_resolve), WithJsonSchema({"type": "string"})]
"""A path, relative to the folder of the file."""

TextOrFile = Annotated[
    str,
    BeforeValidator(_read_text_or_file),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "properties": {"file": {"type": "string", "description": "A UTF-8 text file."}},
                    "required": ["file"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
"""The text itself, or `{file: path}`: the content of that file."""


Network = Annotated[str, AfterValidator(_check_network)]
"""An IP network such as 10.1.0.0/16."""

LongKey = Annotated[SecretStr, AfterValidator(_check_long_key)]
"""A secret of at least 32 characters."""

WebUrl = Annotated[str, AfterValidator(_check_web_url)]
"""An http:// or https:// address, without user and password: these have settings that are kept secret."""


Text = Annotated[str, Field(min_length=1)]
Name = Annotated[
    str,
    AfterValidator(matching(NAME, "must have 1 to 63 of a-z, 0-9 and -, and not begin with -")),
    WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"}),
]
_MediaType = Annotated[
    str,
    AfterValidator(matching(_MEDIA_TYPE, "must be a media type such as text/plain")),
    WithJsonSchema({"type": "string", "pattern": f"^{_MEDIA_TYPE.pattern}$"}),
]
MediaTypes = Annotated[tuple[_MediaType, ...], Field(min_length=1)]
MOST = 2**31 - 1
Count = Annotated[int, Field(ge=1, le=MOST)]
CountOrZero = Annotated[int, Field(ge=0, le=MOST)]


class Settings(BaseModel):
    """One mapping of the file: frozen, unknown keys are errors. Adapters derive their own settings from it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)
