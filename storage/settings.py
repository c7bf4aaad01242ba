"""The settings of a ledger on a SQLite file. Law: what names no file is refused when the configuration is read."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationInfo

from gateway.config.settings import Settings, base_dir, expected

_PREFIX = "sqlite:///"
_EXAMPLE = "sqlite:///./data/gateway.db"


def _file_url(value: str, info: ValidationInfo) -> str:
    path = value.removeprefix(_PREFIX)
    if path == value:
        raise expected(f"must start with {_PREFIX}, as {_EXAMPLE}")
    if not path or "?" in path or "\0" in path or str(Path(path)) == ":memory:":
        raise expected(f"must name a file and nothing else: {_EXAMPLE}")
    return f"{_PREFIX}{base_dir(info) / path}"


class SqliteSettings(Settings):
    """A file of SQLite on a disk of this machine."""

    url: Annotated[str, AfterValidator(_file_url)] = Field(
        description="sqlite:///PATH of the database file, relative to the folder of this file."
    )

    @property
    def path(self) -> Path:
        return Path(self.url.removeprefix(_PREFIX))
