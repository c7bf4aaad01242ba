"""Which schemas this code may use. Law: a newer one only where it declares that it only adds to this version."""

from storage.compiled import VERSION


def usable(version: str, oldest: int) -> bool:
    """Whether this code may use a schema of this version. `oldest` is the oldest version of the code that may use the
    schema, or 0 when it is not declared."""
    return version == VERSION or (version > VERSION and 0 < oldest <= int(VERSION))
