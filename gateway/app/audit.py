"""The audit log of a configuration. Law: its modules are imported only where the configuration asks for one."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.config.gateway import AuditConfig, GatewayConfig
from gateway.config.problems import ConfigInvalid, Problem
from gateway.foundation.clock import Clock
from gateway.ports.observer import Actor, AuditEntry

if TYPE_CHECKING:
    from gateway.telemetry.audit import AuditLog

ITSELF = Actor("a2a-gateway")


@contextmanager
def audited(config: AuditConfig, clock: Clock) -> Iterator["AuditLog | None"]:
    """None where no line of it is wanted. Raises: ConfigInvalid where its file cannot be opened."""
    if not config.wanted:
        yield None
        return
    from gateway.telemetry.audit import audit_log

    with ExitStack() as stack:
        try:
            audit = stack.enter_context(audit_log(config.path, config.key, clock))
        except OSError as error:
            raise ConfigInvalid([_problem(config.path, error.strerror)]) from error
        audit.audited(AuditEntry("process.started", ITSELF))
        try:
            yield audit
        finally:
            audit.audited(AuditEntry("process.stopped", ITSELF))


def audit_problem(config: GatewayConfig) -> Problem | None:
    """The problem of a configuration whose audit log is a file that this process could not append to."""
    path = config.audit.path
    if path is None:
        return None
    from gateway.telemetry.audit_places import obstacle

    why = obstacle(path)
    return None if why is None else _problem(path, why)


def _problem(path: Path | None, why: str | None) -> Problem:
    return Problem(file=None, line=None, column=None, path="audit.path", message=f"{path} cannot be opened: {why}")
