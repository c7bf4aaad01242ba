"""How many processes serve a gateway, and where more than one cannot."""

from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.config.problems import Problem
from gateway.foundation.cores import usable_cores
from gateway.foundation.shared_port import BALANCED

_ALWAYS = ("auto", 1)
"""How many processes any gateway can have."""


def workers_problem(config: GatewayConfig, registry: Registry) -> Problem | None:
    """Why this gateway cannot have as many processes as it is to have; None where it can."""
    return system_problem(config) or ledger_problem(config, registry)


def system_problem(config: GatewayConfig) -> Problem | None:
    """As `workers_problem`, of the system of this machine."""
    workers = config.server.workers
    if BALANCED or workers in _ALWAYS:
        return None
    return _problem(f"{workers} processes cannot serve one port on this system: that needs Linux; serve by 1")


def ledger_problem(config: GatewayConfig, registry: Registry) -> Problem | None:
    """As `workers_problem`, of the ledger."""
    workers = config.server.workers
    if workers in _ALWAYS or registry.ledger(config.storage.url).scales_out:
        return None
    return _problem(
        f"{workers} processes on {config.storage.address} would do hardly more than one, because they write one after the "
        "other; keep state in PostgreSQL (storage: {url: postgresql://...}), which they share, or serve by 1"
    )


def _problem(why: str) -> Problem:
    return Problem(file=None, line=None, column=None, path="server.workers", message=why)


def worker_count(config: GatewayConfig, registry: Registry) -> int:
    """For a configuration without `workers_problem`."""
    workers = config.server.workers
    if workers != "auto":
        return workers
    return usable_cores() if BALANCED and registry.ledger(config.storage.url).scales_out else 1
