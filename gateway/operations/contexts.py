"""Whole contexts: deletion, expiry, export, import, and adoption of a conversation that a backend already has.

Law: turns of a context that ends are cancelled, and later commits to it fail; a document is validated as a whole before
anything of it is stored.
"""

import asyncio
from contextlib import suppress

import msgspec
import structlog
from msgspec.structs import replace

from gateway.a2a.errors import A2AError, Busy, InvalidParams, NotFound, UnsupportedOperation, echo, invalid
from gateway.a2a.limits import Limits, check_id
from gateway.a2a.model import Json
from gateway.core.agents import Agent, Agents
from gateway.core.document_import import read
from gateway.core.ownership import can_serve
from gateway.engine.fanout import Fanout
from gateway.engine.other_processes import cancel_in_processes
from gateway.foundation.clock import Clock
from gateway.foundation.shutdown import Drain, DrainOver
from gateway.ledger.documents import Adopt, Import, PortableThread
from gateway.ledger.errors import Conflict, CorruptRecord
from gateway.ledger.port import Ledger
from gateway.ledger.retention import AgedContext, DeleteContext, ExpireContext, PurgeContext
from gateway.ledger.threads import Caller
from gateway.operations.call import draining
from gateway.operations.paused_turns import PausedTurns
from gateway.operations.target import new_thread
from gateway.ports.capabilities import CanCheckHandle
from gateway.ports.conversation import StorageOwner
from gateway.scheduling.runner import Runner

log = structlog.get_logger("gateway.operations.contexts")

_HANDLES = Limits(id_length=4096)
"""Handles of some services are longer than any id of the gateway."""

_ENDED = frozenset({"closed", "expired", "deleted"})
"""States of a thread that takes no further message."""

_encoder = msgspec.json.Encoder()


class Contexts:
    """Deletes and expires contexts. One instance serves every agent of the gateway."""

    def __init__(self, ledger: Ledger, runner: Runner, fanout: Fanout, clock: Clock, drain: Drain) -> None:
        self._ledger = ledger
        self._runner = runner
        self._clock = clock
        self._drain = drain
        self._paused = PausedTurns(ledger, runner, fanout, clock)

    async def delete(self, caller: Caller, context_id: str, agent: Agent | None = None) -> None:
        """Deletes a context with its threads on every agent. With `agent`, the context is deleted only if it has a
        thread on that agent.

        Source: docs/state-model.md, scenarios 139 and 140. Raises: NotFound, also for a context of another caller and
        for a deleted context; Busy where the process ends before its turns.
        """
        context = await self._ledger.context(caller, context_id, agent.name if agent is not None else "")
        if context is None or context.state == "deleted" or (agent is not None and context.thread is None):
            raise _not_found(context_id, agent)
        try:
            await self._close(caller, context_id, context.id)
        except DrainOver:
            raise draining() from None
        try:
            await self._ledger.commit(DeleteContext(caller, context.id, self._clock.now()))
        except Conflict as error:
            raise _not_found(context_id, agent) from error
        # Turns of messages that were accepted meanwhile can no longer commit.
        with suppress(DrainOver):
            await self._cancel(caller, context_id)
        await self._purge(context.id)

    async def expire(self, context: AgedContext, idle_before: int) -> bool:
        """Ends a context that is unused since `idle_before`, or completes an interrupted expiry. Returns False when the
        context was used, and where the process ends before it is done.

        Source: docs/state-model.md, scenario 142. Raises: Conflict, LedgerUnavailable.
        """
        if context.idle:
            try:
                await self._ledger.commit(ExpireContext(context.id, idle_before, self._clock.now()))
            except Conflict:
                return False
        try:
            await self._close(context.caller, context.public_id, context.id)
        except DrainOver:
            return False
        await self._purge(context.id)
        return True

    async def _purge(self, row: str) -> None:
        """Purges a context in pieces, so that no turn waits long for the writer. Retention completes an interrupted
        purge."""
        while await self._ledger.purge_pending(row):
            await self._ledger.commit(PurgeContext(row, self._clock.now()))

    async def _close(self, caller: Caller, public_id: str, row: str) -> None:
        """Raises: DrainOver."""
        await self._cancel(caller, public_id)
        # A paused turn belongs to no process, so no process can confirm its cancellation.
        changes, patience = self._runner.runtime.changes, self._runner.patience
        await cancel_in_processes(self._ledger, changes, row, lambda turn: not turn.waits, patience, self._drain)
        try:
            waiting = await self._ledger.waiting_tasks(row)
        except CorruptRecord as error:
            # A record that cannot be read can still be deleted.
            log.error("task.unreadable", context=public_id, error=str(error))
            return
        for task in waiting:
            await self._paused.cancel(caller, task)

    async def _cancel(self, caller: Caller, context_id: str) -> None:
        """The last turn first, so that none begins because the turn before it has ended. Raises: DrainOver."""
        for run in reversed(self._runner.runs_in(caller, context_id)):
            self._runner.cancel(run)
            await self._drain.before_over(run.done)


def _not_found(context_id: str, agent: Agent | None = None) -> A2AError:
    where = "" if agent is None else f" with the agent {agent.name!r}"
    return NotFound(f"there is no context {echo(context_id)} of yours{where}")


class ContextTransfer(msgspec.Struct, frozen=True):
    """Exports, imports and adopts contexts for the admin API. A caller reaches only its own contexts."""

    ledger: Ledger
    clock: Clock

    async def export(self, caller: Caller, context_id: str) -> bytes:
        """The document as JSON. Raises: NotFound, Busy while a turn waits or runs."""
        try:
            document = await self.ledger.export(caller, context_id)
        except Conflict as error:
            raise Busy("The context is at work; try again when that has ended.", retry_after=5) from error
        if document is None:
            raise _not_found(context_id)
        return await asyncio.to_thread(_encoder.encode, document)

    async def import_document(self, caller: Caller, agents: Agents, value: Json, limits: Limits) -> str:
        """Stores the context of a document for this caller. Returns its id. Raises: InvalidParams naming the place."""
        document = await asyncio.to_thread(read, value)
        check_id("contextId", document.context_id, limits)
        for index, thread in enumerate(document.threads):
            _check_agent(f"threads[{index}]", thread, agents)
        await self._refuse_known(caller, document.context_id)
        try:
            await self.ledger.commit(Import(caller, document, self.clock.now()))
        except Conflict as error:
            raise InvalidParams(
                "Invalid parameters: ids of this document exist here already, or contradict each other"
            ) from error
        return document.context_id

    async def adopt(self, caller: Caller, agent: Agent, handle: str, context_id: str | None, limits: Limits) -> str:
        """A new context that continues the backend's conversation at `handle`. Returns its id.

        Raises: InvalidParams, UnsupportedOperation for an agent whose history the gateway keeps.
        """
        if agent.adapter.ownership.owner is not StorageOwner.BACKEND:
            remedy = " Its settings say so: `history.owner: gateway`." if agent.adapter.ownership.either else ""
            raise UnsupportedOperation(
                f"The backend of the agent {agent.name!r} keeps no conversation to go on with.{remedy}"
            )
        if not handle.strip():
            raise invalid("handle", "must not be empty")
        check_id("handle", handle, _HANDLES)
        if isinstance(agent.adapter, CanCheckHandle):
            try:
                agent.adapter.check_handle(handle)
            except ValueError as error:
                raise invalid("handle", f"{echo(handle)} {error}") from error
        public = context_id or self.clock.new_id()
        check_id("contextId", public, limits)
        await self._refuse_known(caller, public)
        thread = new_thread(agent, self.clock.row_id(), self.clock.row_id())
        try:
            await self.ledger.commit(Adopt(caller, public, replace(thread, handle=handle), self.clock.now()))
        except Conflict as error:
            raise _exists(public) from error
        return public

    async def _refuse_known(self, caller: Caller, context_id: str) -> None:
        """Also for a deleted or expired context: an id means one conversation for ever."""
        if await self.ledger.context(caller, context_id, "") is not None:
            raise _exists(context_id)


def _exists(context_id: str) -> InvalidParams:
    return invalid("contextId", f"{echo(context_id)} exists here already")


def _check_agent(place: str, thread: PortableThread, agents: Agents) -> None:
    """Raises: InvalidParams when the thread could not take its next message."""
    if thread.state in _ENDED:
        return
    agent = agents.by_name.get(thread.agent)
    if agent is None:
        raise invalid(f"{place}.agent", f"no agent is called {echo(thread.agent)} here")
    ownership = agent.adapter.ownership
    if not can_serve(ownership, thread):
        raise invalid(
            f"{place}.owner",
            f"the history is kept by the {thread.owner} ({thread.handle_kind}), and the agent {agent.name!r} is set to "
            f"have it kept by the {ownership.owner} ({ownership.handle})",
        )
    if (thread.state_version or 1) > ownership.state_version:
        raise invalid(
            f"{place}.stateVersion", f"{thread.state_version} is newer than {ownership.state_version}, the agent's"
        )
