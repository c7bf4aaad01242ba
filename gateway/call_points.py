"""What a service call and its end mean to the ledger: the machine's commands as commit points. Law: pure, and the one place
that knows what a handle has to do with what was carried."""

from gateway import ownership
from gateway.agents import Agent
from gateway.commits.calls import Complete, Fail
from gateway.commits.points import CommitPoint
from gateway.commits.threads import Lose, Orphan, ThreadRecord, Unsync
from gateway.commits.tools import ToolEnds, ToolStarts
from gateway.items import StorageOwner
from gateway.live import Work
from gateway.projection import View
from gateway.recall import weight_to_measure
from gateway.reconciling import is_unheard
from gateway.turn_commands import CloseCall, DropCall, EndTool, StartTool


def complete(work: Work, thread: ThreadRecord, view: View, command: CloseCall, now: int) -> Complete:
    # Without a new handle the chain goes on from before this request, and does not hold what it carried.
    carried = command.handle is not None or thread.owner is StorageOwner.GATEWAY
    return Complete(
        thread=thread.id,
        generation=thread.generation,
        turn=work.turn,
        service_call=work.service_call,
        handle_in=thread.handle,
        handle_out=command.handle if command.handle is not None else thread.handle,
        state=command.state,
        usage=command.usage,
        items=command.items,
        tool_calls=command.tool_calls,
        sent=view.positions if carried else (),
        now=now,
        weight=weight_to_measure(work.agent, view, command.tool_calls),
        state_version=work.agent.adapter.ownership.state_version,
    )


def drop(
    work: Work, thread: ThreadRecord, command: DropCall, pending: str | None, now: int, *, loses: bool = True
) -> list[CommitPoint]:
    """`loses`: nothing follows in this turn; a handle that the backend does not know marks the thread as lost."""
    if not work.prepared:
        return []
    agent = work.agent
    unheard = loses and is_unheard(agent.adapter, agent.policies, thread, command.error_class, pending)
    fail = Fail(
        thread=thread.id,
        generation=thread.generation,
        turn=work.turn,
        service_call=work.service_call,
        status="unknown" if unheard else command.status,
        error_class=command.error_class,
        items=command.items,
        now=now,
    )
    if unheard:
        return [fail, Unsync(thread.id, work.turn)]
    points: list[CommitPoint] = [fail]
    if loses and command.error_class in ownership.LOST and thread.handle is not None and not thread.lost:
        points.append(Lose(thread.id, thread.generation))
    left = ownership.orphan(thread, pending)
    if left is not None:
        points.append(orphan(work.agent, thread, left, now))
    return points


def orphan(agent: Agent, thread: ThreadRecord, handle: str, now: int) -> Orphan:
    return Orphan(thread.id, agent.name, handle, now)


def tool_starts(thread: ThreadRecord, command: StartTool, now: int) -> ToolStarts:
    return ToolStarts(thread.id, thread.generation, command.id, now)


def tool_ends(thread: ThreadRecord, turn: str, service_call: str, command: EndTool) -> ToolEnds:
    return ToolEnds(
        thread=thread.id,
        generation=thread.generation,
        turn=turn,
        service_call=service_call,
        tool_call=command.id,
        status=command.status,
        outcome=command.outcome,
        item=command.item,
    )
