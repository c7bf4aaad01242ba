"""Headers that the operator sends with every request of a source of tools. Law: their values are secrets."""

import re
from typing import Annotated

from pydantic import AfterValidator, SecretStr

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t -~]*")


def _usable(headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
    for name, value in headers.items():
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no name of a header")
        if _VALUE.fullmatch(value.get_secret_value().strip()) is None:
            raise ValueError(f"the value of {name!r} must be one line of visible ASCII characters")
    return headers


SecretHeaders = Annotated[dict[str, SecretStr], AfterValidator(_usable)]


def plain(headers: dict[str, SecretStr]) -> dict[str, str]:
    """The headers of a request."""
    return {name: value.get_secret_value().strip() for name, value in headers.items()}
