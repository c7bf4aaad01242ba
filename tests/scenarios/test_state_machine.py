"""Random interleavings of clients, a backend, restarts and a slow disk; every invariant is checked after each step."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as some
from hypothesis.stateful import rule, run_state_machine_as_test
from structlog.testing import capture_logs

from gateway.a2a.errors import Busy, InvalidParams, TaskNotFound
from gateway.ledger.calls import Complete, Prepare
from gateway.ledger.tasks import Append, Finish
from gateway.ledger.tool_calls import ToolEnds, ToolStarts
from gateway.ledger.turns import Accept
from gateway.ports.adapter import Ending
from gateway.ports.conversation import Ownership
from tests.scenarios.controlled import BUG, CUT, NOT_TAKEN, REFUSED, Operation, Watching
from tests.scenarios.ledger_checks import ENDED
from tests.scenarios.random_walk import Walk
from tests.scenarios.world import WAITING
from tests.support.core import soon
from tests.support.scripted import BR, G

CONTEXTS = ("a", "b", "c", None)
WAYS = ("wait", "at once", "stream")
HELD = (Accept, Prepare, Append, Complete, Finish, ToolStarts, ToolEnds)
FAILURES = ("cut", "refused", "bug", "without a handle", "not taken", "not taken in the middle")
TOOL_ENDS = ("output", "output", "output", "error", "breaks", "cancels itself")

# Nothing that is drawn depends on what has happened: which of two that came at once was first may differ in a repeat.
contexts = some.sampled_from(CONTEXTS)
ways = some.sampled_from(WAYS)
indices = some.integers(0, 11)
afterwards = some.sampled_from([None, None, None, 0, 1, 4])
"""None: everything continues until nothing more can happen; n: the next step comes after n rounds of the loop."""


class Conversations(Walk):
    async def say(self, context: str | None, way: str, after: int | None, *, keyed: bool = False) -> None:
        text = self.name("m")
        await self.send(text, context, way, {"context": context}, f"k-{text}" if keyed else None, after)

    async def otherwise(self, index: int) -> None:
        """Of a step for which there is nothing to do yet: something to do."""
        going = self.going(index) if index % 3 else None
        run = self.at_tool(index) if going is None and index % 4 else None
        if run is not None:
            self.end(run, TOOL_ENDS[index % len(TOOL_ENDS)])
            await self.then()
        elif going is None:
            await self.say(CONTEXTS[index % 4], WAYS[index % 3], None)
        elif index % 2:
            if index % 3 == 1:
                self.ask(going, index)
            else:
                self.complete(going)
            await self.then()
        else:
            self.speak(going, index)
            await self.then()

    @rule(context=contexts, way=ways, keyed=some.booleans(), after=afterwards)
    def message(self, context: str | None, way: str, keyed: bool, after: int | None) -> None:
        self.run(self.say(context, way, after, keyed=keyed))

    @rule(index=indices, way=ways, keyed=some.booleans(), after=afterwards)
    def message_to_a_task(self, index: int, way: str, keyed: bool, after: int | None) -> None:
        async def step() -> None:
            waiting = [task for task in self.world.tasks if task.state in WAITING]
            tasks = waiting if waiting and index % 4 else self.world.tasks
            if tasks:
                task, text = tasks[index % len(tasks)], self.name("m")
                key = f"k-{text}" if keyed else None
                await self.send(text, task.context, way, {"task": task.id}, key, after)
            else:
                await self.otherwise(index)

        self.run(step())

    @rule(index=indices, way=ways, keyed=some.booleans(), after=afterwards)
    def the_same_again(self, index: int, way: str, keyed: bool, after: int | None) -> None:
        """With its key it is the same message; without one a new message of the same words."""

        async def step() -> None:
            found = [said for said in self.world.said if (said.key is not None) is keyed and said.context is not None]
            if found:
                first = found[-1 - index % len(found)]
                where = first.where
                context = first.context if "task" in where else where["context"]
                await self.send(first.text, context, way, where, first.key, after)
            else:
                await self.otherwise(index)

        self.run(step())

    @rule(index=indices)
    def another_message_under_a_used_key(self, index: int) -> None:
        async def step() -> None:
            keys = [said.key for said in self.world.said if said.key is not None and said.turn is not None]
            if keys and not self.held:
                with pytest.raises(InvalidParams):
                    await soon(self.core.send("other", self.core.call(key=keys[index % len(keys)])))
                await self.then()
            else:
                await self.otherwise(index)

        self.run(step())

    @rule(index=indices, after=afterwards)
    def cancel(self, index: int, after: int | None) -> None:
        async def step() -> None:
            going = [task for task in self.world.tasks if task.state not in ENDED]
            tasks = going if going and index % 4 else self.world.tasks
            if tasks:
                task = tasks[index % len(tasks)]
                self.touch(task.context)
                self.world.contend(task.id)
                over = task.state in ENDED
                if not over:
                    self.world.cancel_asked.add(task.id)
                process = self.home(task.context)
                asked = Operation(process, process.core.cancel(task.id))
                self.world.cancels.append((task.id, over and self.calm, asked))
                await self.then(after)
            else:
                await self.otherwise(index)

        self.run(step())

    @rule(index=indices, after=afterwards)
    def a_client_goes_away(self, index: int, after: int | None) -> None:
        async def step() -> None:
            found: list[Operation | Watching] = [watching for _, watching in self.world.watching if not watching.ended]
            found += [s.asked for s in self.world.said if isinstance(s.asked, Operation) and not s.asked.done]
            found += [asked for _, _, asked in self.world.cancels if not asked.done]
            if found:
                found[index % len(found)].leave()
                await self.then(after)
            else:
                await self.otherwise(index)

        self.run(step())

    @rule(index=indices, known=some.integers(-1, 9), after=afterwards)
    def subscribe(self, index: int, known: int, after: int | None) -> None:
        """With the number of the last event that it knows, or -1: without."""

        async def step() -> None:
            tasks = self.world.tasks
            if tasks and not self.held:
                task = tasks[-1 - index % len(tasks)]
                last = known % (len(task.events) + 1) if known >= 0 else None
                process = self.home(task.context)
                opening = process.core.subscribe(task.id, process.core.call(last=last))
                self.world.watching.append((task.id, Watching(process, opening, last)))
                await self.then(after)
            else:
                await self.otherwise(index)

        self.run(step())

    @rule(index=indices, after=afterwards)
    def get_a_task(self, index: int, after: int | None) -> None:
        """It shows stored data: a beginning of it while commits continue, and all of it when nothing runs."""

        async def step() -> None:
            tasks = self.world.tasks
            if not tasks:
                await self.otherwise(index)
                return
            name = tasks[-1 - index % len(tasks)].id
            self.world.reads.append((name, Operation(self.process, self.core.get(name))))
            await self.then(after)
            if not self.calm:
                return
            got = await soon(self.core.get(name))
            [rows] = [rows for rows in self.world.snapshot.values() if name in rows.tasks]
            self.world.check_task(got, rows)
            for operation in (self.core.get, self.core.cancel, self.core.subscribe):
                with pytest.raises(TaskNotFound):
                    await soon(operation(name, self.core.call("bob")))

        self.run(step())

    @rule(index=indices, size=some.integers(1, 5))
    def list_tasks(self, index: int, size: int) -> None:
        async def step() -> None:
            names = sorted(self.world.snapshot)
            if names and not self.held:
                await self.then()
                rows = self.world.snapshot[names[index % len(names)]]
                listed, token = [], ""
                while True:
                    found = await soon(
                        self.core.list(context_id=rows.public_id, page_size=size, page_token=token or None)
                    )
                    assert found.total_size == len(rows.tasks)
                    listed += [(task.id, str(task.status.state)) for task in found.tasks]
                    token = found.next_page_token
                    if not token:
                        break
                assert sorted(listed) == sorted((task.id, task.state) for task in rows.tasks.values())
                assert (await soon(self.core.list(self.core.call("bob")))).total_size == 0
            else:
                await self.otherwise(index)

        self.run(step())

    # --- the backend

    @rule(index=indices, much=some.integers(0, 3), after=afterwards)
    def the_backend_speaks(self, index: int, much: int, after: int | None) -> None:
        async def step() -> None:
            going = self.going(index)
            if going is not None:
                self.speak(going, much)
                await self.then(after)
            else:
                await self.otherwise(index)

        self.run(step())

    @rule(
        index=indices,
        text=some.booleans(),
        tools=some.sampled_from([None, 0, 1, 2, 3]),
        ending=some.sampled_from([*Ending, *[Ending.COMPLETED] * 5]),
        after=afterwards,
    )
    def the_backend_completes(
        self, index: int, text: bool, tools: int | None, ending: Ending, after: int | None
    ) -> None:
        """With `tools` it asks for some."""

        async def step() -> None:
            going = self.going(index)
            if going is not None:
                if tools is None:
                    self.complete(going, ending, text=text)
                else:
                    self.ask(going, tools)
                await self.then(after)
            else:
                await self.otherwise(index)

        self.run(step())

    @rule(
        index=indices,
        how=some.sampled_from(FAILURES),
        after=afterwards,
    )
    def the_backend_fails(self, index: int, how: str, after: int | None) -> None:
        """Never in a way that allows a retry: cut after some output, or refused for good."""

        async def step() -> None:
            going = self.going(index)
            if going is not None:
                match how:
                    case "cut":
                        going.say(self.name("t"))
                        going.fail(CUT)
                    case "refused":
                        going.fail(REFUSED)
                    case "not taken":
                        going.fail(NOT_TAKEN)
                    case "not taken in the middle":
                        going.say(self.name("t"))
                        going.fail(NOT_TAKEN)
                    case "bug":
                        going.fail(BUG)
                    case _:
                        going.complete(None, Ending.COMPLETED)
                await self.then(after)
            else:
                await self.otherwise(index)

        self.run(step())

    @rule(index=indices, how=some.sampled_from(TOOL_ENDS), after=afterwards)
    def a_tool_ends(self, index: int, how: str, after: int | None) -> None:
        async def step() -> None:
            run = self.at_tool(index)
            if run is None:
                await self.otherwise(index)
                return
            self.end(run, how)
            await self.then(after)

        self.run(step())

    # --- the process and its disk

    @rule(point=some.sampled_from(HELD), index=indices)
    def the_disk_hesitates(self, point: type, index: int) -> None:
        """The next commit of this kind, and all after it, are not stored until the disk continues."""

        async def step() -> None:
            if not self.held and self.at_work():
                await self.then()
                self.core.ledger.hold(point)
                self.held, self.calm = True, False
            else:
                await self.otherwise(index)

        self.run(step())

    @rule(index=indices, after=afterwards)
    def the_disk_goes_on(self, index: int, after: int | None) -> None:
        async def step() -> None:
            if self.held:
                self.go_on()
                await self.then(after)
            else:
                await self.otherwise(index)

        self.run(step())

    @rule(index=indices)
    def the_process_is_restarted(self, index: int) -> None:
        """It takes no message any more, ends what it has, and another one takes its place."""

        async def step() -> None:
            if not self.at_work():
                await self.otherwise(index)
                return
            self.go_on()
            await self.then()
            self.core.drain.set()
            with pytest.raises(Busy):
                await self.core.send("too late")
            while (going := self.going(0)) is not None or (run := self.at_tool(0)) is not None:
                self.touched = None
                if going is not None:
                    self.complete(going)
                elif run is not None:
                    self.end(run)
                await self.then()
            await soon(self.core.runner.idle())
            # What an idle process still holds goes back with its next upkeep; the next process would wait for that.
            await self.core.runner._upkeep.renew()
            self.world.leave(self.process)
            await self.process.stop()
            self.processes[0] = await self.start()
            await self.then()

        self.run(step())

    @rule(index=indices)
    def the_process_is_killed(self, index: int) -> None:
        """What it was about to store is lost; another one starts when its leases have run out."""

        async def step() -> None:
            if not self.at_work():
                await self.otherwise(index)
                return
            self.touched = None
            self.world.learn(self.file.read())
            process = self.process
            await self.kill(process)
            self.world.learn(self.file.read())
            self.world.bereave(process)
            self.held = False
            await self.expire()
            self.processes.insert(0, await self.start())
            await self.then()

        self.run(step())


class TwoProcesses(Conversations):
    """On one file. Clients switch from one to the other, but wait and watch at the process that runs their context."""

    processes_at_once = 2

    @rule(index=indices)
    def clients_turn_to_the_other_process(self, index: int) -> None:
        async def step() -> None:
            if not self.held:
                await self.then()
                self.processes.reverse()
            await self.otherwise(index)

        self.run(step())


class Refusals(Conversations):
    """A backend that often is away, or does not take what a request carries, in a few messages in a row."""

    @rule(
        context=some.sampled_from(CONTEXTS[:2]),
        hows=some.lists(some.sampled_from(["away", "refuses", "tool, away", "tool, refuses"]), min_size=2, max_size=4),
        takes=some.lists(some.booleans(), min_size=8, max_size=8),
    )
    def messages_in_a_row_go_wrong(self, context: str, hows: list[str], takes: list[bool]) -> None:
        """`takes`: whether the backend takes the second try, without what is in doubt."""

        async def step() -> None:
            for how in hows:
                await self.say(context, "at once", None)
                if how.startswith("tool") and (going := self.going_in(context)) is not None:
                    self.ask(going, 0)
                    await self.then()
                    while (run := self.at_tool(0)) is not None:
                        self.end(run)
                        await self.then()
                if (going := self.going_in(context)) is not None:
                    going.fail(NOT_TAKEN if how.endswith("refuses") else REFUSED)
                    await self.then()
                while how.endswith("refuses") and (going := self.going_in(context)) is not None and takes:
                    if takes.pop():
                        self.complete(going)
                    else:
                        going.fail(NOT_TAKEN)
                    await self.then()

        self.run(step())


STEPS = 50
"""In one walk, at most."""


def walk(machine: type[Conversations], ownership: Ownership, walks: int) -> int:
    """Derandomised: every run of the tests takes the same walks, so that only a change of the code can fail them."""
    machine.ownership, machine.steps = ownership, 0
    fixed = settings(
        max_examples=walks,
        stateful_step_count=STEPS,
        derandomize=True,
        database=None,
        # A walk opens a database and makes hundreds of commits: it is slow, and much of it is drawn.
        suppress_health_check=list(HealthCheck),
    )
    # Hundreds of faults are told to the log, and a traceback that is set in type takes longer than the walk.
    with capture_logs():
        run_state_machine_as_test(machine, settings=fixed)
    return machine.steps


OWNERS = pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])


@OWNERS
def test_what_must_hold_holds_after_every_step_of_a_random_walk(ownership: Ownership) -> None:
    assert walk(Conversations, ownership, 60) >= 2500


@OWNERS
def test_what_a_backend_refuses_never_holds_up_a_conversation(ownership: Ownership) -> None:
    assert walk(Refusals, ownership, 40) >= 2000


@OWNERS
def test_two_processes_that_take_turns_hold_it_too(ownership: Ownership) -> None:
    assert walk(TwoProcesses, ownership, 40) >= 1500
