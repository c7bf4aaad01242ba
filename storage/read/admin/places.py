"""Where an id belongs, for operators."""

from gateway.ledger.admin.contexts import Place, PlaceKind, Places
from gateway.ledger.admin.reads import PATIENCE
from storage import compiled
from storage.read.admin.searching import LAST, Pace
from storage.read.queries import Readers
from storage.statement import Query

_MOST = 20

_KEYED: tuple[tuple[PlaceKind, Query], ...] = (
    (PlaceKind.CONTEXT, compiled.ADMIN_PLACE_CONTEXT),
    (PlaceKind.CONTEXT, compiled.ADMIN_PLACE_PUBLIC_CONTEXT),
    (PlaceKind.TASK, compiled.ADMIN_PLACE_TASK),
    (PlaceKind.MESSAGE, compiled.ADMIN_PLACE_MESSAGE),
    (PlaceKind.TOOL_CALL, compiled.ADMIN_PLACE_TOOL_CALL),
    (PlaceKind.THREAD, compiled.ADMIN_PLACE_THREAD),
    (PlaceKind.TURN, compiled.ADMIN_PLACE_TURN),
    (PlaceKind.CALL, compiled.ADMIN_PLACE_CALL),
)
"""What an index finds."""

_SEARCHED: tuple[tuple[PlaceKind, Query], ...] = (
    (PlaceKind.HANDLE, compiled.ADMIN_PLACE_HANDLE),
    (PlaceKind.TOOL_CALL, compiled.ADMIN_PLACE_EXTERNAL),
    (PlaceKind.TRACE, compiled.ADMIN_PLACE_TRACE),
    (PlaceKind.FAILURE, compiled.ADMIN_PLACE_FAILURE),
)


class PlaceQueries:
    """A part of `AdminQueries`."""

    _readers: Readers

    async def locate(
        self, tenant: str, wanted: str, before: str | None = None, *, patience: float = PATIENCE
    ) -> Places:
        found: list[Place] = []
        values: dict[str, object] = {"tenant": tenant, "wanted": wanted}
        if before is None:
            found = [*await self._keys(tenant, wanted), *await self._places(_KEYED, values)]
            if found:
                return Places(tuple(found[:_MOST]))
        pace, at = Pace(patience), LAST if before is None else before
        while True:
            values |= {"before": at, "chunk": pace.chunk}
            [edge] = await self._readers.scan_all((compiled.ADMIN_TURN_EDGE, values))
            found += await self._places(_SEARCHED, values)
            if not edge:
                return Places(tuple(found[:_MOST]))
            at, searched_to = edge[0]
            if len(found) >= _MOST or not pace.looked():
                return Places(tuple(found[:_MOST]), at, searched_to)

    async def _places(self, kinds: tuple[tuple[PlaceKind, Query], ...], values: dict[str, object]) -> list[Place]:
        answers = await self._readers.scan_all(*[(query, values) for _, query in kinds])
        return [Place(kind, *row) for (kind, _), rows in zip(kinds, answers, strict=True) for row in rows]

    async def _keys(self, tenant: str, wanted: str) -> list[Place]:
        """API keys by their name or the part of them that is shown."""
        rows = await self._readers.scan(compiled.ADMIN_PLACE_KEY, {"tenant": tenant, "wanted": wanted})
        return [Place(PlaceKind.KEY, name) for (name,) in rows]
