"""An agent that gives back what it was given."""

from collections.abc import Iterator
from typing import Any

from gateway.agent import Turn


def reply(turn: Turn) -> Iterator[dict[str, Any]]:
    yield from turn.message["parts"]
