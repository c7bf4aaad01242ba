"""Numbers that YAML can write and no setting can have. Law: what is accepted can be sent as JSON, also where a setting takes
any JSON, as `extra_body` does."""

import math
from collections.abc import Iterator

from gateway.config.problems import KeyPath

_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
"""Integers that JSON of every backend, and of the gateway, can hold."""


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
        case int() if not _SMALLEST <= value <= _LARGEST:
            yield path, "must be a number of at most 64 bits; put it in quotes if it is a text"
