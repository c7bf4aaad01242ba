"""A turn whose process died goes on in another one: it waits here for its place, its service call is listened to again, or the
next one is made. Law: the same turn and the same log; one process takes it, and nothing is asked of the backend before.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog
from msgspec.structs import replace

from gateway.a2a.tool_calls import rendering
from gateway.core import ownership
from gateway.core.agents import Agent
from gateway.core.failures import OWNER_CONFLICT
from gateway.core.lifecycles import SERVICE_CALL, advance
from gateway.core.replay import MakeCall, ResumeCall, ShownOutput, resume_plan, shown_before
from gateway.core.task_record import TurnOutput, repeats, replay
from gateway.engine.fanout import Fanout
from gateway.engine.journal import Journal
from gateway.engine.runtime import Runtime
from gateway.engine.turn_context import TurnFailed
from gateway.engine.turn_run import LiveTask, Rejoined, TurnRun, status
from gateway.foundation.clock import timestamp
from gateway.ledger.calls import RESTARTED, Fail, LatestCall
from gateway.ledger.errors import Conflict
from gateway.ledger.events import Update
from gateway.ledger.leases import Claim, Heartbeat, TakeOver, UnfinishedTurn
from gateway.ledger.points import CommitPoint
from gateway.ledger.port import Ledger
from gateway.ledger.states import ServiceCallStatus
from gateway.ledger.threads import ThreadRecord
from gateway.ledger.turns import Preferences

log = structlog.get_logger("gateway.taking-over")


async def take_over_turn(
    leftover: UnfinishedTurn, agent: Agent | None, means: Runtime, fanout: Fanout
) -> tuple[TurnRun, ThreadRecord] | None:
    """The turn, with its thread as this leaves it; None: nobody can go on with it, or another did.

    The fanout's hold on the task belongs to the turn then. Raises: TurnFailed where the agent's settings do not let the thread
    go on; LedgerUnavailable, CorruptRecord.
    """
    # What this process itself has lost has met a fault here, which it would meet again.
    anew = leftover.process != means.holder and not (leftover.cancel_asked and leftover.expired)
    if agent is None or not (leftover.expired or (leftover.waits and anew)):
        return None
    thread = await means.ledger.thread(leftover.thread)
    if thread is None:
        return None
    if not ownership.can_serve(agent.adapter.ownership, thread):
        raise TurnFailed(OWNER_CONFLICT, f"the thread began with ({thread.owner}, {thread.handle_kind})")
    if leftover.waits:
        return await _take_queued(leftover, agent, thread, means, fanout)
    return await _take_begun(leftover, agent, thread, means, fanout, anew=anew)


async def _take_queued(
    leftover: UnfinishedTurn, agent: Agent, thread: ThreadRecord, means: Runtime, fanout: Fanout
) -> tuple[TurnRun, ThreadRecord] | None:
    """Nothing of it was sent: it takes its place here."""
    known = await _known(leftover, means.ledger)
    now = means.clock.now()
    claim = Claim(leftover.turn, leftover.process, means.holder, now)
    if not await _stored(means, Heartbeat(means.holder, means.lease_until(), now), claim):
        return None
    log.info("turn.taken-up", agent=agent.name, task=leftover.task.id, turn=leftover.turn)
    return _work(leftover, agent, known, means, fanout), thread


async def _take_begun(
    leftover: UnfinishedTurn, agent: Agent, thread: ThreadRecord, means: Runtime, fanout: Fanout, *, anew: bool
) -> tuple[TurnRun, ThreadRecord] | None:
    """`anew`: a service call may be made, besides listening to one."""
    call = await means.ledger.latest_call(leftover.turn)
    open_tools = bool(await means.ledger.open_tool_calls(leftover.turn))

    def find(updates: Sequence[Update]) -> ResumeCall | MakeCall | None:
        way = resume_plan(agent, thread, call, updates, open_tools=open_tools)
        return None if isinstance(way, MakeCall) and not anew else way

    # What nobody could go on with, had it shown nothing, is not read: at a start there may be thousands of them.
    if call is None or find(()) is None:
        return None
    known = await _known(leftover, means.ledger)
    way = find(known.updates)
    if way is None:
        return None
    taken = replace(thread, generation=leftover.generation + 1)
    now = means.clock.now()
    # What is listened to may be what killed its process; calls that are made again are counted themselves.
    tries = leftover.tries + 1 if isinstance(way, ResumeCall) else 0
    take = TakeOver(thread.id, leftover.generation, means.holder, means.lease_until(), leftover.turn, now, tries)
    gives_up = isinstance(way, MakeCall) and way.instead_of is not None
    if not await _stored(means, take, *([_given_up(call, leftover, taken, now)] if gives_up else [])):
        return None
    work = _work(leftover, agent, known, means, fanout)
    work.base = call.base
    match way:
        case ResumeCall(pending=pending):
            work.service_call, work.prepared = call.id, True
            before = shown_before(known.outputs[-1], known.updates, call.round)
            work.rejoined = Rejoined(call.round, call.attempt, pending, before)
        case MakeCall(round=round_, attempt=attempt):
            # In an artifact of its own: which of those that were shown goes on growing is not known.
            work.rejoined = Rejoined(round_, attempt, None, ShownOutput(known.outputs[-1], ""))
    log.info("turn.taken-over", agent=agent.name, task=leftover.task.id, turn=leftover.turn)
    return work, taken


@dataclass(frozen=True, slots=True)
class _Known:
    """`outputs` of the task's turns, the last of them is this one's; `updates` are those in its log, `number` its last."""

    outputs: list[TurnOutput]
    updates: list[Update]
    number: int
    preferences: Preferences


async def _known(leftover: UnfinishedTurn, ledger: Ledger) -> _Known:
    task = leftover.task
    turns = (await ledger.turns((task.id,), artifacts=True))[task.id]
    events = await ledger.events(task.id, task.last_event)
    outputs = [TurnOutput.stored(turn) for turn in turns]
    updates = [update for _, update in replay(outputs[-1], turns[-1], events)]
    number = events[-1][0] if events else task.last_event
    return _Known(outputs, updates, number, await ledger.preferences(leftover.turn))


def _work(leftover: UnfinishedTurn, agent: Agent, known: _Known, means: Runtime, fanout: Fanout) -> TurnRun:
    task, loop, named = leftover.task, asyncio.get_running_loop(), known.preferences.named
    policies = agent.policies
    return TurnRun(
        turn=leftover.turn,
        agent=agent,
        caller=leftover.caller,
        live=LiveTask(
            id=task.id,
            context_id=task.context_id,
            agent=agent.name,
            caller=leftover.caller,
            status=status(task.state, timestamp(task.status_at), task.status_message),
            outputs=known.outputs,
            journal=Journal(means.ledger, fanout.hold(task.id), task.id, known.number),
        ),
        message=known.outputs[-1].message,
        first_message=known.outputs[0].message,
        accepted_output_modes=known.preferences.modes,
        fresh_thread=False,
        opened=loop.create_future(),
        done=loop.create_future(),
        rendering=rendering(policies.tool_calls, leftover.caller.principal, named),
        repeats_answer=repeats(policies.repeat_answer, named),
    )


def _given_up(call: LatestCall, leftover: UnfinishedTurn, thread: ThreadRecord, now: int) -> Fail:
    """The call that nobody hears the end of. Its error class is what counts such calls."""
    return Fail(
        thread=thread.id,
        generation=thread.generation,
        turn=leftover.turn,
        service_call=call.id,
        status=advance(SERVICE_CALL, call.status, ServiceCallStatus.FAILED),
        error_class=RESTARTED,
        items=(),
        now=now,
    )


async def _stored(means: Runtime, *points: CommitPoint) -> bool:
    try:
        await means.ledger.commit(*points)
    except Conflict:
        return False
    return True
