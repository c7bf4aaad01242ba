"""A turn whose process died goes on in another one, where its backend has gone on meanwhile. Law: the same turn, the same
service call, the same log; nothing is asked of the backend before the lease is taken.
"""

import asyncio

import structlog
from msgspec.structs import replace

from gateway.agents import Agent
from gateway.clock import timestamp
from gateway.commits import Conflict, TakeOver, ThreadRecord, UnfinishedTurn
from gateway.fanout import Fanout
from gateway.journal import Journal
from gateway.live import LiveTask, Rejoined, Work, status
from gateway.means import Means
from gateway.model import TaskState
from gateway.ports import Resuming
from gateway.record import TurnOutput, logged
from gateway.replaying import seen_in

log = structlog.get_logger("gateway.taking-over")


async def take_over(
    leftover: UnfinishedTurn, agent: Agent | None, means: Means, fanout: Fanout
) -> tuple[Work, ThreadRecord] | None:
    """The turn, with its thread as it stands before the lease is taken; None: nobody can go on with it, or another did.

    The fanout's hold on the task belongs to the turn then. Raises: LedgerUnavailable, CorruptRecord.
    """
    if agent is None or not leftover.expired or not isinstance(agent.adapter, Resuming):
        return None
    ledger, task = means.ledger, leftover.task
    call = await ledger.under_way(leftover.turn)
    thread = await ledger.thread(leftover.thread)
    if call is None or call.pending is None or thread is None or thread.lost:
        return None
    turns = (await ledger.turns((task.id,), artifacts=True))[task.id]
    events = await ledger.events(task.id, task.last_event)
    message = turns[-1].message
    output, before = seen_in(message, [logged(payload) for _, payload in events], call.round)
    take = TakeOver(
        thread=thread.id,
        generation=leftover.generation,
        holder=means.holder,
        lease_until=means.lease_until(),
        turn=leftover.turn,
        now=means.clock.now(),
    )
    try:
        await ledger.commit(take)
    except Conflict:
        return None
    loop = asyncio.get_running_loop()
    number = events[-1][0] if events else task.last_event
    work = Work(
        turn=leftover.turn,
        agent=agent,
        caller=leftover.caller,
        live=LiveTask(
            id=task.id,
            context_id=task.context_id,
            agent=agent.name,
            caller=leftover.caller,
            status=status(TaskState.WORKING, timestamp(task.status_at)),
            outputs=[*(TurnOutput.stored(turn) for turn in turns[:-1]), output],
            journal=Journal(ledger, fanout.hold(task.id), task.id, number),
        ),
        message=message,
        first_message=turns[0].message,
        accepted_output_modes=(),
        fresh_thread=False,
        opened=loop.create_future(),
        done=loop.create_future(),
        service_call=call.id,
        prepared=True,
        base=call.base,
        rejoined=Rejoined(call.round, call.attempt, call.pending, before),
    )
    log.info("turn.taken-over", agent=agent.name, task=task.id, turn=work.turn)
    return work, replace(thread, generation=leftover.generation)
