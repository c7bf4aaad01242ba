"""Contexts, threads and handles for operators."""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from gateway.a2a.model import TaskState
from gateway.ledger.admin.contexts import (
    Approval,
    ContextFilter,
    ContextMap,
    ContextPage,
    Continuation,
    HandleStep,
    HandleSteps,
    ListedContext,
    ListedThread,
    ListedTurn,
    QueuedDeletion,
    Standing,
    StepKey,
    ThreadMap,
    ThreadTurn,
    ThreadTurns,
)
from gateway.ledger.admin.reads import PATIENCE
from gateway.ledger.states import ServiceCallStatus, TurnStatus
from gateway.ledger.threads import Caller
from gateway.ports.conversation import HandleKind, StorageOwner
from storage import compiled
from storage.read import rows as records
from storage.read.admin.searching import LAST, Pace
from storage.read.admin.words import correlation_id, first_text, needle, text_around
from storage.read.queries import Readers
from storage.statement import Query, Row

_MOST = 100
"""Rows of a page, but for lists of contexts."""

_CHUNK = 5000
"""Open turns, tasks that wait, or threads that cannot continue, that are looked at."""

_NO_TIME, _NO_NUMBER = 2**62, 2**62
_WORDS, _SHORT_WORDS = 600, 200
_LONGEST_TEXT = 200

_CONTEXT, _TURN = 7, 7
"""Numbers of columns."""

_INDEXED: dict[Standing | None, Query] = {
    Standing.WORKING: compiled.ADMIN_CONTEXTS_OPEN,
    Standing.WAITING: compiled.ADMIN_CONTEXTS_WAITING,
    Standing.LOST: compiled.ADMIN_CONTEXTS_BROKEN,
    Standing.UNSYNCED: compiled.ADMIN_CONTEXTS_BROKEN,
}
"""Where an index has the turns, tasks or threads of a standing."""

Listed = tuple[str, Row, str]
"""The place of a context in its list, its row, and its words."""


class ContextQueries:
    """A part of `AdminQueries`."""

    _readers: Readers

    # --- lists

    async def contexts(
        self,
        tenant: str,
        where: ContextFilter,
        before: str | None = None,
        *,
        limit: int = 50,
        patience: float = PATIENCE,
    ) -> ContextPage:
        values: dict[str, object] = {
            "tenant": tenant,
            "agent": where.agent or "",
            "principal": where.principal or "",
            "standing": where.standing.value if where.standing else "",
            "since": where.since or 0,
            "until": _NO_TIME if where.until is None else where.until,
            "text": needle((where.text or "")[:_LONGEST_TEXT]),
            "before": LAST if before is None else before,
            "limit": limit + 1,
        }
        indexed = None if where.text else _INDEXED.get(where.standing)
        if indexed is not None:
            rows = await self._readers.scan(indexed, {**values, "chunk": _CHUNK})
            found = _once([(row[_CONTEXT], row, first_text(row[-1], _WORDS)) for row in rows])
            # A context may come more than once.
            behind = _place(rows[-1])[0] if len(rows) > limit else None
            return await self._page(found, limit, behind, None)
        return await self._search(values, where, limit, Pace(patience))

    async def _search(self, values: dict[str, object], where: ContextFilter, limit: int, pace: Pace) -> ContextPage:
        found: list[Listed] = []
        wanted = str(values["text"]) if where.text else None
        while True:
            values["chunk"] = pace.chunk
            chunk, floor, at = await self._chunk(values, wanted)
            found = _once([*found, *chunk])
            if len(found) > limit or floor is None:
                return await self._page(found, limit, None, None)
            values["before"] = floor
            if not pace.looked():
                return await self._page(found, limit, floor, at)

    async def _chunk(
        self, values: dict[str, object], wanted: str | None
    ) -> tuple[list[Listed], str | None, int | None]:
        """What the latest rows before `before` hold, and the id and the time from which to go on; None at the end."""
        listing = compiled.ADMIN_CONTEXTS if wanted is None else compiled.ADMIN_CONTEXTS_SAYING
        queries = [compiled.ADMIN_TURN_EDGE, listing]
        queries += [compiled.ADMIN_CONTEXT_EDGE, compiled.ADMIN_CONTEXTS_BARE] if wanted is None else []
        edge, turns, *others = await self._readers.scan_all(*[(query, values) for query in queries])
        context_edge, bare = others or ([], [])
        listed = [each for row in turns if (each := _with_words(row, wanted)) is not None]
        listed += [(row[0], row, "") for row in bare]
        # A list that was cut goes on behind its last row, however far the others came.
        edges = [*edge, *context_edge]
        edges += [_place(rows[-1]) for rows in (turns, bare) if len(rows) == values["limit"]]
        if not edges:
            return _sorted(listed), None, None
        floor, at = max(edges)
        return _sorted([each for each in listed if each[0] >= floor]), floor, at

    async def _page(self, found: list[Listed], limit: int, before: str | None, searched_to: int | None) -> ContextPage:
        """The first `limit` of what was found, and `before` where this is not more."""
        shown = found[:limit]
        if len(found) > limit:
            before, searched_to = shown[-1][0], None
        threads = await self._listed_threads([row[0] for _, row, _ in shown])
        listed = tuple([_listed(row, words, threads[row[0]]) for _, row, words in shown])
        return ContextPage(listed, before, searched_to)

    async def _listed_threads(self, contexts: Sequence[str]) -> dict[str, list[ListedThread]]:
        threads: dict[str, list[ListedThread]] = defaultdict(list)
        if contexts:
            values = {"contexts": msgspec.json.encode(contexts).decode()}
            for context, thread, agent, owner, epoch, state, turns in await self._readers.scan(
                compiled.ADMIN_LISTED_THREADS, values
            ):
                threads[context].append(ListedThread(thread, agent, StorageOwner(owner), epoch, state, turns))
        return threads

    # --- one context

    async def context(self, tenant: str, context: str) -> ContextMap | None:
        values = {"tenant": tenant, "context": context, "limit": _MOST + 1}
        queries = (compiled.ADMIN_CONTEXT, compiled.ADMIN_THREADS, compiled.ADMIN_APPROVALS)
        found, threads, approvals = await self._readers.scan_all(*[(query, values) for query in queries])
        if not found:
            return None
        told = tuple(map(_thread, threads[:_MOST])), tuple([Approval(*row) for row in approvals[:_MOST]])
        row_id, public_id, owner, principal, state, created_at, last_used_at = found[0]
        place = (row_id, public_id, owner, principal, state)
        cut = max(len(threads), len(approvals)) > _MOST
        return ContextMap(*place, created_at, last_used_at, *told, cut)

    async def turns(self, tenant: str, thread: str, before: int | None = None) -> ThreadTurns | None:
        live = await self._epochs(tenant, thread)
        if not live:
            return None
        values = {"thread": live[0].id, "before": _NO_NUMBER if before is None else before, "limit": _MOST + 1}
        rows = await self._readers.scan(compiled.ADMIN_THREAD_TURNS, values)
        turns = tuple(map(_turn, rows[:_MOST]))
        return ThreadTurns(turns, turns[-1].number if len(rows) > _MOST else None)

    async def _epochs(self, tenant: str, thread: str) -> tuple[ThreadMap, ...]:
        """The thread and the archives of its epochs, the latest first."""
        values = {"tenant": tenant, "thread": thread, "limit": _MOST}
        return tuple(map(_thread, await self._readers.scan(compiled.ADMIN_EPOCHS, values)))

    async def handle_steps(self, tenant: str, thread: str, before: StepKey | None = None) -> HandleSteps | None:
        epochs = await self._epochs(tenant, thread)
        if not epochs:
            return None
        key = before or StepKey(_NO_NUMBER, _NO_NUMBER, _NO_NUMBER)
        # That of the key comes first, ahead of the page.
        most = _MOST + 1 + (before is not None)
        values = {"thread": epochs[0].id, "limit": most, **msgspec.structs.asdict(key)}
        rows, edge = await self._readers.scan_all((compiled.ADMIN_STEPS, values), (compiled.ADMIN_STEP_EDGE, values))
        steps = [*map(_step, rows)]
        ahead = steps.pop(0) if before is not None and steps and _key(steps[0]) == before else None
        shown = tuple(steps[:_MOST])
        following = _key(shown[-1]) if len(steps) > _MOST else None
        if following is None and edge:
            # So many turns had fewer calls than a page.
            following = _key(shown[-1]) if shown else StepKey(edge[0][0] - 1, _NO_NUMBER, _NO_NUMBER)
        return HandleSteps(epochs[0], epochs, shown, ahead, following)

    async def continuation(self, tenant: str, context: str, agent: str) -> Continuation | None:
        values = {"tenant": tenant, "context": context, "agent": agent}
        found = await self._readers.scan(compiled.ADMIN_CONTINUATION, values)
        if not found:
            return None
        public_id, principal, owner, thread, turn = found[0]
        rows = await self._readers.scan(compiled.THREAD, {"thread": thread})
        return Continuation(public_id, Caller(principal, owner), records.thread(rows[0]), turn) if rows else None


def _with_words(row: Row, wanted: str | None) -> Listed | None:
    """None where only the names of fields have what was wanted."""
    piece = row[-1]
    words = first_text(piece, _WORDS) if wanted is None else text_around(piece, wanted, _WORDS)
    return None if words is None else (row[_CONTEXT], row, words)


def _place(row: Row) -> tuple[str, int]:
    """The place of a context in its list, and the time of it."""
    if len(row) == _CONTEXT:
        return row[0], row[4]
    return row[_CONTEXT], row[_CONTEXT + _TURN - 1]


def _sorted(listed: list[Listed]) -> list[Listed]:
    return sorted(listed, key=lambda each: each[0], reverse=True)


def _once(listed: list[Listed]) -> list[Listed]:
    """Each context at its first place."""
    found: dict[str, Listed] = {}
    for each in listed:
        found.setdefault(each[1][0], each)
    return [*found.values()]


def _listed(row: Row, words: str, threads: list[ListedThread]) -> ListedContext:
    context, public_id, principal, state, created_at, last_used_at, standing = row[:_CONTEXT]
    turn = None
    if len(row) > _CONTEXT:
        turn_id, task, agent, number, status, failure, accepted_at = row[_CONTEXT : _CONTEXT + _TURN]
        turn = ListedTurn(turn_id, task, agent, number, TurnStatus(status), failure, accepted_at, words)
    times = (created_at, last_used_at)
    return ListedContext(context, public_id, principal, state, *times, Standing(standing), tuple(threads), turn)


def _thread(row: Row) -> ThreadMap:
    thread, agent, epoch, archived, owner, kind, *rest = row
    return ThreadMap(thread, agent, epoch, bool(archived), StorageOwner(owner), HandleKind(kind), *rest)


def _turn(row: Row) -> ThreadTurn:
    turn, number, task, state, visible, status, failure, displaced, tries, accepted, started, ended, failed, piece = row
    place, times = (turn, number, task, TaskState(state), bool(visible)), (accepted, started, ended)
    words = first_text(piece, _SHORT_WORDS)
    return ThreadTurn(
        *place, TurnStatus(status), failure, bool(displaced), tries, *times, correlation_id(failed), words
    )


def _step(row: Row) -> HandleStep:
    call, turn, task, number, round_, attempt, status, *rest = row
    error, prepared, ended, before, pending, after, run, turn_status, failure, turn_ended, displaced, *jobs = rest
    deletions = [None if job is None else QueuedDeletion(due, tries) for job, due, tries in (jobs[:3], jobs[3:])]
    return HandleStep(
        call, turn, task, number, round_, attempt, ServiceCallStatus(status), error, prepared, ended,
        before, pending, after, run, TurnStatus(turn_status), failure, turn_ended, bool(displaced), *deletions,
    )  # fmt: skip


def _key(step: HandleStep) -> StepKey:
    return StepKey(step.number, step.round, step.attempt)
