"""Settings of any HTTP service. Law: a value that cannot work is refused when it is read."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from adapters.http.address import path_segment
from gateway.config.settings import Settings, Text, TimeLimit, WebUrl

_TOKEN = re.compile(r"[!-~]*")


def _base_url(value: str) -> str:
    if any(mark in value for mark in "?#"):
        raise ValueError("must have no query and no fragment: paths are put behind it")
    return value.rstrip("/")


def _usable_key(value: SecretStr) -> SecretStr:
    key = value.get_secret_value().strip()
    if _TOKEN.fullmatch(key) is None:
        raise ValueError("must be one line of visible ASCII characters")
    return SecretStr(key)


def _name_in_path(value: str) -> str:
    path_segment(value)
    return value


ApiKey = Annotated[SecretStr, AfterValidator(_usable_key)]
BaseUrl = Annotated[WebUrl, AfterValidator(_base_url)]
NameInPath = Annotated[Text, AfterValidator(_name_in_path)]
"""The name of an object of the service, which stands in the addresses of requests."""


class Timeouts(Settings):
    """How long a backend may be silent. The whole turn has a limit of its own."""

    connect: TimeLimit = Field(5, description="To find the host and connect, TLS included.")
    first_byte: TimeLimit = Field(60, description="From the request to the first byte of the answer.")
    between_bytes: TimeLimit = Field(60, description="Between two reads of the answer.")
