"""Numbers that YAML can write and no setting can have. Law: what is accepted can be sent as JSON, also where a setting takes
any JSON, as `extra_body` does."""

import math
from collections.abc import Iterator

from gateway.config.problems import KeyPath


def unusable_numbers(value: object, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """The place of each such number in the value at the path, and what is wrong with it."""
    match value:
        case dict():
            for key, below in value.items():
                yield from unusable_numbers(below, (*path, key))
        case list():
            for index, below in enumerate(value):
                yield from unusable_numbers(below, (*path, index))
        case float() if not math.isfinite(value):
            yield path, "must be a finite number: JSON has no infinity and no NaN; put it in quotes if it is a text"
