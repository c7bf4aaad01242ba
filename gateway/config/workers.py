"""How many processes serve a gateway, and where more than one cannot."""

from gateway.config.gateway import GatewayConfig
from gateway.config.plugins import Registry
from gateway.config.problems import Problem
from gateway.foundation.cores import usable_cores
from gateway.foundation.shared_port import BALANCED


def workers_problem(config: GatewayConfig, registry: Registry) -> Problem | None:
    """Why this gateway cannot have as many processes as it is to have; None where it can."""
    workers = config.server.workers
    if workers in ("auto", 1):
        return None
    if not BALANCED:
        why = f"{workers} processes cannot serve one port on this system: that needs Linux; serve by 1"
    elif not registry.ledger(config.storage.url).scales_out:
        why = (
            f"{workers} processes on {config.storage.address} would do hardly more than one, because they write one after the "
            "other; keep state in PostgreSQL (storage: {url: postgresql://...}), which they share, or serve by 1"
        )
    else:
        return None
    return Problem(file=None, line=None, column=None, path="server.workers", message=why)


def worker_count(config: GatewayConfig, registry: Registry) -> int:
    """For a configuration without `workers_problem`."""
    workers = config.server.workers
    if workers != "auto":
        return workers
    return usable_cores() if BALANCED and registry.ledger(config.storage.url).scales_out else 1
