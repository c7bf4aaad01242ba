"""Gateways for the tests of pages."""

from tests.running import start_local

__all__ = ["start_local"]
