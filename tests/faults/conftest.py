"""Gateways in this process for every test of faults."""

from tests.running import start_local

__all__ = ["start_local"]
