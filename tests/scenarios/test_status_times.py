"""A task has the very status that its stream has shown, including its time, however long a commit takes."""

from gateway.a2a.model import TaskState
from gateway.ports.conversation import Ownership
from tests.scenarios.test_approvals import PAY, asked, reply, setup, start, yes
from tests.scenarios.test_tool_loop import ALL, asks, call
from tests.support.core import Core, events, frames, logged


@ALL
async def test_119_a_waiting_task_that_is_cancelled_has_the_status_that_its_stream_told(
    core: Core, ownership: Ownership
) -> None:
    setup(core, ownership, asks("r1", PAY))
    task = await start(core)
    watching = await core.subscribe(task.id)
    core.time.step = 1
    canceled = await core.cancel(task.id)
    told = events(await frames(watching))[-1].status_update
    assert told is not None
    assert (told.status, canceled.status.state) == (canceled.status, TaskState.CANCELED)
    assert (await core.get(task.id)).status == told.status


@ALL
async def test_119_a_task_that_asks_again_has_the_status_that_its_stream_told(core: Core, ownership: Ownership) -> None:
    setup(core, ownership, asks("r1", PAY, call("c3", "pay_more")))
    task = await start(core)
    core.time.step = 1
    still = await reply(core, task.id, yes(asked(task)[1]["id"]))
    told = events(logged(core.path, task.id))[-1].status_update
    assert told is not None
    assert told.status == still.status
    assert (await core.get(task.id)).status == told.status
