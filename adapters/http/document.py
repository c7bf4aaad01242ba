"""A whole JSON document of a backend -> a value."""

from typing import Any

import msgspec

from adapters.http.half_characters import with_whole_characters


def read_document(document: bytes, kind: Any = Any) -> Any:
    """A value of the type `kind`. Half a character becomes U+FFFD.

    Raises: ValueError for what is no JSON, of another form, or nested too deep.
    """
    try:
        return msgspec.json.decode(with_whole_characters(document), type=kind)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
