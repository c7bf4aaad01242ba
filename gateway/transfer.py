"""Contexts that come from elsewhere and go there: export, import, and taking up a conversation that a backend already has.

Law: whoever may do this runs the gateway; a document is validated as a whole before anything of it is stored.
"""

import asyncio

import msgspec

from gateway.abilities import HandleChecking
from gateway.accepting import new_thread
from gateway.agents import Agent, Agents
from gateway.checks import Limits, check_id
from gateway.clock import Clock
from gateway.commits.failures import Conflict
from gateway.commits.importing import Adopt, Import
from gateway.commits.threads import Caller, ThreadRecord
from gateway.errors import Busy, InvalidParams, NotFound, UnsupportedOperation, echo, invalid
from gateway.importing import read
from gateway.items import StorageOwner
from gateway.ledger_port import Ledger
from gateway.model import Json
from gateway.ownership import serves
from gateway.portable import PortableThread

_HANDLES = Limits(id_length=4096)
"""Those of some services are longer than any id of ours."""

_OVER = frozenset({"closed", "expired", "deleted"})
"""States of a thread that no message goes on with."""

_encoder = msgspec.json.Encoder()


class Transfer:
    """What the admin API does with whole contexts. Every context is its caller's own."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock

    async def export(self, caller: Caller, context_id: str) -> bytes:
        """The document, as JSON. Raises: NotFound, Busy while a turn waits or runs."""
        try:
            document = await self._ledger.export(caller, context_id)
        except Conflict as error:
            raise Busy("The context is at work; try again when that has ended.", retry_after=5) from error
        if document is None:
            raise NotFound(f"there is no context {echo(context_id)} of yours")
        return await asyncio.to_thread(_encoder.encode, document)

    async def bring(self, caller: Caller, agents: Agents, value: Json, limits: Limits) -> str:
        """Stores the context of a document as the caller's own. Returns its id. Raises: InvalidParams naming the place."""
        document = await asyncio.to_thread(read, value)
        check_id("contextId", document.context_id, limits)
        for index, thread in enumerate(document.threads):
            _check_agent(f"threads[{index}]", thread, agents)
        await self._refuse_known(caller, "contextId", document.context_id)
        try:
            await self._ledger.commit(Import(caller, document, self._clock.now()))
        except Conflict as error:
            raise InvalidParams(
                "Invalid parameters: ids of this document exist here already, or contradict each other"
            ) from error
        return document.context_id

    async def adopt(self, caller: Caller, agent: Agent, handle: str, context_id: str | None, limits: Limits) -> str:
        """A new context that goes on where `handle` stands at the backend. Returns its id.

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
        _check_kind(agent, handle)
        public = context_id or self._clock.new_id()
        check_id("contextId", public, limits)
        await self._refuse_known(caller, "contextId", public)
        thread = new_thread(agent, self._clock.row_id(), self._clock.row_id())
        try:
            await self._ledger.commit(
                Adopt(caller, public, msgspec.structs.replace(thread, handle=handle), self._clock.now())
            )
        except Conflict as error:
            raise _exists("contextId", public) from error
        return public

    async def _refuse_known(self, caller: Caller, field: str, context_id: str) -> None:
        """Also what is deleted or expired: an id means one conversation for ever."""
        if await self._ledger.context(caller, context_id, "") is not None:
            raise _exists(field, context_id)


def _check_kind(agent: Agent, handle: str) -> None:
    """Raises: InvalidParams for what the agent's backend could not go on from."""
    if not isinstance(agent.adapter, HandleChecking):
        return
    try:
        agent.adapter.check_handle(handle)
    except ValueError as error:
        raise invalid("handle", f"{echo(handle)} {error}") from error


def _exists(field: str, context_id: str) -> InvalidParams:
    return invalid(field, f"{echo(context_id)} exists here already")


def _check_agent(place: str, thread: PortableThread, agents: Agents) -> None:
    """Raises: InvalidParams when the next message of the thread could not go on."""
    if thread.state in _OVER:
        return
    agent = agents.by_name.get(thread.agent)
    if agent is None:
        raise invalid(f"{place}.agent", f"no agent is called {echo(thread.agent)} here")
    ownership = agent.adapter.ownership
    if not serves(ownership, _record(thread)):
        raise invalid(
            f"{place}.owner",
            f"the history is kept by the {thread.owner} ({thread.handle_kind}), and the agent {agent.name!r} is set to "
            f"have it kept by the {ownership.owner} ({ownership.handle})",
        )
    if (thread.state_version or 1) > ownership.state_version:
        raise invalid(
            f"{place}.stateVersion", f"{thread.state_version} is newer than {ownership.state_version}, the agent's"
        )


def _record(thread: PortableThread) -> ThreadRecord:
    return ThreadRecord(
        id=thread.id,
        context="",
        agent=thread.agent,
        epoch=thread.epoch,
        owner=thread.owner,
        handle_kind=thread.handle_kind,
        handle=thread.handle,
        generation=thread.generation,
        adapter_state=thread.adapter_state,
    )
