"""Imports without what they would load and nobody uses. Law: what is left out for a moment is there again afterwards."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import cast


@contextmanager
def without(name: str) -> Generator[None]:
    """While the block runs, the module counts as not installed, unless it is loaded already.

    structlog loads rich, where it is installed, to paint tracebacks, and our logs are JSON: 0.1 s and 4 MB of a start.
    """
    if name in sys.modules:
        yield
        return
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    modules[name] = None
    try:
        yield
    finally:
        del modules[name]
