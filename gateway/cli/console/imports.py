"""Imports without an optional package. Law: after the block the package can be imported as before."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from types import ModuleType
from typing import cast


@contextmanager
def hidden(package: str) -> Generator[None]:
    """While the block runs, the package counts as not installed, unless it is loaded already.

    structlog imports rich, which typer brings along, whenever it is installed, and has no setting against that. Rich paints
    tracebacks on a terminal; the gateway logs JSON. It would add 0.1 s and 4 MB to every start.
    """
    if package in sys.modules:
        yield
        return
    modules = cast("dict[str, ModuleType | None]", sys.modules)
    modules[package] = None
    try:
        yield
    finally:
        del modules[package]
