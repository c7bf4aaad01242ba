"""The health service: what /readyz says, for those who ask over gRPC. Law: a drain ends every watch.

Source: grpc/health/v1/health.proto.
"""

from collections.abc import Awaitable, Callable

from gateway.a2a.errors import NotFound
from gateway.a2a.wire import v1_0_proto
from gateway.a2a.wire.protobuf import TEXT, Enumeration, Field, Message, Procedure
from gateway.foundation.shutdown import Drain
from gateway.grpc.context import Context, receive

PACKAGE = "grpc.health.v1"
SERVICE = f"{PACKAGE}.Health"

_STATUS = Enumeration(
    f"{PACKAGE}.HealthCheckResponse.ServingStatus", "UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN"
)
_REQUEST = Message(f"{PACKAGE}.HealthCheckRequest", Field(1, "service", TEXT))
_RESPONSE = Message(f"{PACKAGE}.HealthCheckResponse", Field(1, "status", _STATUS))
PROCEDURES = {"Check": Procedure(_REQUEST, _RESPONSE), "Watch": Procedure(_REQUEST, _RESPONSE, streaming=True)}

_SERVED = frozenset({"", v1_0_proto.SERVICE})
"""The names under which the whole process and its one service are asked about."""


class HealthService:
    def __init__(self, ready: Callable[[], Awaitable[bool]], drain: Drain, send_timeout: float) -> None:
        """`send_timeout` is the number of seconds that a caller is waited for which takes nothing."""
        self._ready = ready
        self._drain = drain
        self._send_timeout = send_timeout

    async def check(self, context: Context) -> None:
        """Raises: NotFound, and as `receive` and `Context.write`."""
        if await _service(context) not in _SERVED:
            raise NotFound("no service of this name is served here")
        await self._tell(context)

    async def watch(self, context: Context) -> None:
        """Tells the status, and once more when the process is about to end. Raises: as `receive` and `Context.write`."""
        known, draining = await _service(context) in _SERVED, self._drain.is_set()
        if known:
            await self._tell(context)
        else:
            await self._say(context, "SERVICE_UNKNOWN")
        await self._drain.wait()
        if known and not draining:
            await self._tell(context)

    async def _tell(self, context: Context) -> None:
        status = "SERVING" if await self._ready() else "NOT_SERVING"
        await self._say(context, status)

    async def _say(self, context: Context, status: str) -> None:
        await context.write((_RESPONSE.write({"status": status}),), self._send_timeout)


async def _service(context: Context) -> str:
    request, _ = _REQUEST.decode(await receive(context), depth=1)
    context.keep(0)
    name: str = request.get("service", "")
    return name
