"""The traces of a configuration. Law: OpenTelemetry is imported only where the configuration asks for it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from gateway.config.gateway import GatewayConfig
from gateway.config.problems import ConfigInvalid, Problem
from gateway.ports.observer import Observer


@asynccontextmanager
async def traced(config: GatewayConfig) -> AsyncIterator[Observer | None]:
    """Takes spans while the block runs; None where none are wanted. Raises: ConfigInvalid without the packages, and where the
    environment variables of OpenTelemetry cannot be read."""
    if not config.tracing.enabled:
        yield None
        return
    problem = tracing_problem(config)
    if problem is not None:
        raise ConfigInvalid([problem])
    from gateway.telemetry.otel.traces import traces

    async with AsyncExitStack() as stack:
        try:
            made = await stack.enter_async_context(traces(contents=config.tracing.content))
        except ValueError as error:
            message = f"an environment variable OTEL_... cannot be used: {error}"
            raise ConfigInvalid([_problem(message)]) from error
        yield made


def tracing_problem(config: GatewayConfig) -> Problem | None:
    """The problem of a configuration that asks for traces where their packages cannot be imported."""
    if not config.tracing.enabled:
        return None
    try:
        import gateway.telemetry.otel.traces  # noqa: F401  # asked for its presence
    except ImportError as error:
        message = (
            "traces need `opentelemetry-sdk` and `opentelemetry-exporter-otlp-proto-http`, which cannot be imported "
            f"({error}); install them with: pip install 'a2a-gateway[otel]'"
        )
        return _problem(message)
    return None


def _problem(message: str) -> Problem:
    return Problem(file=None, line=None, column=None, path="tracing.enabled", message=message)
