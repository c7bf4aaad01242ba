"""All messages and requests so far, of clients and of the backend, and what must follow from them. Law: knows only these and
the ledger's file; the order of concurrent events is read from the ledger, never their results."""

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from gateway.a2a.errors import Busy, TaskNotCancelable, UnsupportedOperation
from gateway.a2a.model import Role, Task, TaskState
from gateway.core.tools.tool_call import FAILED
from gateway.ports.adapter import Ending, ErrorClass
from gateway.ports.conversation import StorageOwner
from gateway.ports.tools import ToolOutput
from tests.scenarios.controlled import QUEUED, Answer, ControlledBackend, Operation, Process, Run, SteeredCall, Watching
from tests.scenarios.conversation_model import ConversationModel
from tests.scenarios.ledger_checks import ENDED, ContextRows, Snapshot, TaskRow, ToolRow, TurnRow, spoken, told
from tests.support.core import answer as shown
from tests.support.core import events, numbers, streamed
from tests.support.core import said as history_of
from tests.support.scripted import in_words

ENDINGS = {
    Ending.COMPLETED: TaskState.COMPLETED,
    Ending.INPUT_REQUIRED: TaskState.INPUT_REQUIRED,
    Ending.AUTH_REQUIRED: TaskState.AUTH_REQUIRED,
    Ending.REJECTED: TaskState.REJECTED,
}
WAITING = frozenset({str(TaskState.INPUT_REQUIRED), str(TaskState.AUTH_REQUIRED)})


@dataclass
class Said:
    """A message of a client. `id` is of this one alone, also where it repeats another; `where` is what it names.

    `turn`: the row that it became. `acknowledged`: the task that its client was told of. `gone`: it can never be stored
    any more.

    `refusals`: the errors that may be the answer; `welcome`: it may be accepted.
    """

    id: str
    text: str
    context: str | None
    process: Process
    asked: Operation | Watching
    key: str | None = None
    where: dict[str, Any] = field(default_factory=dict)
    at_once: bool = False
    gone: bool = False
    turn: str | None = None
    acknowledged: str | None = None
    refused: bool = False
    refusals: tuple[type[Exception], ...] = ()
    welcome: bool = True


class World:
    def __init__(self, backend: ControlledBackend) -> None:
        self.backend = backend
        self.said: list[Said] = []
        self.answers: list[Answer] = []
        self.cancels: list[tuple[str, bool, Operation]] = []
        self.cancel_asked: set[str] = set()
        self.watching: list[tuple[str | None, Watching]] = []
        self.reads: list[tuple[str, Operation]] = []
        self.ended: dict[str, Task] = {}
        self.orphaned: set[str] = set()
        self.snapshot: Snapshot = {}

    # --- what is known

    @property
    def tasks(self) -> list[TaskRow]:
        return [task for rows in self.snapshot.values() for task in rows.tasks.values()]

    def turns(self, rows: ContextRows, task: str) -> list[TurnRow]:
        return [turn for turn in rows.turns if turn.task == task]

    def open_in(self, context: str | None) -> tuple[int, int]:
        """How many turns are open in a context, at least and at most."""
        rows = self.snapshot.get(context or "")
        known = sum(not turn.ended for turn in rows.turns) if rows is not None else 0
        return known, known + sum(1 for said in self.said if said.context == context and self._may_come(said))

    def busy_in(self, context: str | None) -> Process | None:
        """The process in which a client waits or watches in this context."""
        rows = self.snapshot.get(context or "")
        going = {turn.id for turn in rows.turns if not turn.ended} if rows is not None else set()
        for said in self.said:
            coming = context is not None and said.context == context and self._may_come(said)
            if said.process.alive and (said.turn in going or coming):
                return said.process
        tasks = rows.tasks if rows is not None else {}
        for meant, watching in self.watching:
            if meant in tasks and not watching.over:
                return watching.process
        return None

    def leave(self, process: Process) -> None:
        """All connections to a process end."""
        asked: list[Operation | Watching] = [said.asked for said in self.said]
        asked += [watching for _, watching in self.watching]
        asked += [cancel for _, _, cancel in self.cancels]
        asked += [read for _, read in self.reads]
        for one in asked:
            if one.process is process:
                one.leave()

    def bereave(self, process: Process) -> None:
        """The process is dead: its turns can only end as failed, and none of its messages arrives any more."""
        for said in self.said:
            if said.process is process:
                said.gone = said.gone or said.turn is None
                if said.turn is not None and not self._row(said).ended:
                    self.orphaned.add(said.turn)

    def _may_come(self, said: Said) -> bool:
        return said.turn is None and not (said.refused or said.gone) and self.owner_of(said.key) is None

    def reception(self, context: str | None, key: str | None) -> tuple[tuple[type[Exception], ...], bool]:
        """Of a message on a context: the refusals that are right, and whether it may be accepted."""
        if self.owner_of(key) is not None:
            return (), True
        least, most = self.open_in(context) if context is not None else (0, 0)
        if most <= QUEUED:
            return (), True
        for said in self.said:
            if said.context == context and self._may_come(said):
                said.refusals += (Busy,)
        return (Busy,), least <= QUEUED

    def owner_of(self, key: str | None) -> Said | None:
        """The message that a key led to."""
        return next((said for said in self.said if key is not None and said.key == key and said.turn), None)

    def collect(self) -> None:
        """Service calls that arrived."""
        for call in self.backend.calls[len(self.answers) :]:
            self.answers.append(Answer(call))

    def contend(self, task: str) -> None:
        """What is asked of a task now may overtake the messages to it that are on their way."""
        for said in self.said:
            if said.where.get("task") == task and self._may_come(said):
                said.refusals += (UnsupportedOperation,)

    # --- after a step

    def learn(self, snapshot: Snapshot) -> None:
        """Raises: AssertionError when the ledger holds what was never sent, or lacks what was acknowledged."""
        self.collect()
        self.snapshot = snapshot
        for said in self.said:
            self._hear(said)
        for rows in snapshot.values():
            adopted = {said.turn for said in self.said}
            for turn in rows.turns:
                if turn.id not in adopted:
                    self._adopt(rows.public_id, turn)
        for said in self.said:
            if said.acknowledged is not None:
                kept = said if said.turn else self.owner_of(said.key)
                assert kept is not None, f"{said.text!r} was acknowledged and is not in the ledger"
                assert said.acknowledged == self._row(kept).task, f"{said.text!r} was answered with another task"

    def _hear(self, said: Said) -> None:
        """The answer to the client of a message."""
        asked = said.asked
        answered = asked if isinstance(asked, Operation) else asked.opening
        if said.acknowledged is not None or said.refused or asked.lost or not answered.done:
            return
        if answered.error is not None:
            assert isinstance(answered.error, said.refusals), f"{said.text!r}: {answered.error!r}"
            said.refused = True
        elif isinstance(asked, Operation):
            said.acknowledged = asked.result.id
        elif asked.frames:
            first = events(asked.frames[:1])[0].task
            assert first is not None
            said.acknowledged = first.id
        assert said.refused or said.welcome or said.acknowledged is None, f"{said.text!r} was not refused"

    def _adopt(self, context: str, turn: TurnRow) -> None:
        assert self.owner_of(turn.key) is None, f"{turn.text!r} was stored twice under one key"
        for said in self.said:
            if said.id == turn.message and said.welcome and self._may_come(said):
                assert (said.text, said.key) == (turn.text, turn.key)
                assert said.context in (None, context)
                said.turn, said.context = turn.id, context
                return
        raise AssertionError(f"{turn} is in the ledger of {context!r}: nobody sent it, or it was refused")

    def _row(self, said: Said) -> TurnRow:
        return next(turn for rows in self.snapshot.values() for turn in rows.turns if turn.id == said.turn)

    def let_go(self) -> None:
        """Nothing is under way: what is not in the ledger now never will be."""
        for said in self.said:
            said.gone = said.gone or said.turn is None

    # --- what went upstream

    def check_requests(self) -> None:
        for answer in self.answers:
            if answer.turn is None:
                answer.turn = self._turn_of(answer.call)
        for rows in self.snapshot.values():
            self._check_requests(rows)

    def _turn_of(self, call: SteeredCall) -> str:
        request = call.request
        taken = {answer.turn for answer in self.answers if not (answer.asked or answer.refused)}
        rows = self.snapshot[request.context_id]
        for turn in rows.turns:
            if (turn.task, turn.message) == (request.task_id, request.message.message_id) and turn.id not in taken:
                return turn.id
        raise AssertionError(f"{request} was sent twice, or for nobody")

    def _check_requests(self, rows: ContextRows) -> None:
        """Every request is what the messages and the answers before it make, nothing twice, and the chain never forks."""
        backend = self.backend.ownership.owner is StorageOwner.BACKEND
        model = ConversationModel(backend, frozenset(turn.id for turn in rows.turns if turn.status == "failed"))
        rounds: Counter[str] = Counter()
        places = {turn.id: place for place, turn in enumerate(rows.turns)}
        completed = {(call.turn, call.round) for call in rows.calls if call.status == "completed"}
        for answer in self.answers:
            if answer.turn not in places:
                continue
            place = places[answer.turn]
            due = rows.turns[: place + 1]
            assert all(turn.ended for turn in due[:-1]), (
                f"{due[-1].text!r} began before the turns ahead of it had ended"
            )
            for number, turn in enumerate(due):
                model.arrive(turn.id, number, turn.text)
                if number < place:
                    model.interrupt(turn.id, number, self._interrupted(rows, turn))
            sent = [in_words(item) for item in answer.call.request.items]
            assert (answer.call.request.handle, sent) == model.request(answer.turn, place)
            if answer.refused:
                ended = due[-1].failure == ErrorClass.REJECTED
                model.refuse(answer.turn, place, emitted=bool(answer.items), ended=ended)
            elif (answer.turn, rounds[answer.turn]) in completed:
                model.complete(answer.turn, place, answer.handle, self._said(rows, answer, backend=backend))
                rounds[answer.turn] += 1
            else:
                assert due[-1].status not in ("completed", "rejected"), f"{due[-1]} counts, and its call does not"
        assert rows.handle == model.handle
        assert rows.left_out == model.left_out

    def _asked(self, rows: ContextRows, answer: Answer) -> list[ToolRow]:
        """The calls of tools of an answer, in their order."""
        found = [tool for tool in rows.tools if tool.external_id in answer.asked]
        assert [tool.external_id for tool in found] == list(answer.asked)
        return found

    def _interrupted(self, rows: ContextRows, turn: TurnRow) -> list[str]:
        """What the last call of a cancelled turn had said."""
        completed = {call.id for call in rows.calls if call.status == "completed"}
        items = [i for i in rows.items if (i.turn, i.kind) == (turn.id, "assistant") and i.call not in completed]
        texts = ["".join(part.get("text", "") for part in json.loads(item.payload or "")["parts"]) for item in items]
        if turn.status != "cancelled":
            return []
        assert rows.tasks[turn.task].text.endswith("".join(texts)), f"{turn} is said to have said {texts}"
        return texts

    def _said(self, rows: ContextRows, answer: Answer, *, backend: bool) -> list[tuple[str, str, bool]]:
        """What a completed answer adds to the conversation. A backend has to get the outcome of each tool; where the gateway
        keeps the conversation, a call that never ran is nothing that a model has to know."""
        asked = [tool for tool in self._asked(rows, answer) if tool.outcome is not None]
        if backend:
            return [("O", _output(tool), True) for tool in asked]
        ran = [tool for tool in asked if tool.status != "cancelled"]
        calls = [f"C {tool.external_id} {tool.name}" for tool in ran]
        # That there is no such tool was known when the service call was complete.
        outputs = [("O", _output(tool), tool.status != "not_found") for tool in ran]
        return [*(("X", text, False) for text in (*answer.items, *calls)), *outputs]

    # --- what the tools did

    def check_tools(self) -> None:
        """Each ran once at most, and only when that was stored; what came of it is what it said."""
        runs = {run.key: run for run in self.backend.tools.runs}
        assert len(runs) == len(self.backend.tools.runs), "a tool call ran twice"
        for rows in self.snapshot.values():
            for tool in rows.tools:
                if tool.executor == "gateway":
                    self._check_tool(tool, runs.pop(tool.id, None))
        assert not runs, f"{runs} ran and nobody asked for it"

    def _check_tool(self, tool: ToolRow, run: Run | None) -> None:
        match tool.status:
            case "announced" | "cancelled" | "not_found":
                assert run is None, f"{tool} ran"
            case "completed":
                assert run is not None
                assert run.answer == ToolOutput(json.loads(tool.outcome or ""))
            case "failed":
                assert run is not None
                said = run.answer.output if isinstance(run.answer, ToolOutput) else FAILED
                assert (run.answer is not None, said) == (True, json.loads(tool.outcome or ""))
            case "interrupted":
                assert tool.turn in self.orphaned or self._canceled(tool.turn), f"{tool} was interrupted by nobody"

    def _canceled(self, turn: str) -> bool:
        return any(
            row.task in self.cancel_asked for rows in self.snapshot.values() for row in rows.turns if row.id == turn
        )

    # --- how turns and tasks ended

    def check_ends(self) -> None:
        for rows in self.snapshot.values():
            for turn in rows.turns:
                if turn.ended:
                    assert turn.status in self._ways(turn), f"{turn} ended, and only {self._ways(turn)} could be"
            for task in rows.tasks.values():
                assert task.state in self._states(rows, task), f"{task.id} is {task.state}"

    def answers_to(self, turn: TurnRow) -> list[Answer]:
        """One for each service call that was made, in order."""
        return [answer for answer in self.answers if answer.turn == turn.id]

    def answer_to(self, turn: TurnRow) -> Answer | None:
        """The last one."""
        return next((answer for answer in reversed(self.answers) if answer.turn == turn.id), None)

    def _nothing_works(self, turn: TurnRow) -> bool:
        """All tools failed in the last three rounds."""
        rows = next(rows for rows in self.snapshot.values() if turn in rows.turns)
        last = [self._asked(rows, answer) for answer in self.answers_to(turn)[-3:] if answer.asked]
        return len(last) == 3 and all(tool.status in ("failed", "not_found") for asked in last for tool in asked)

    def _ways(self, turn: TurnRow) -> set[str]:
        ways = {"cancelled"} if turn.task in self.cancel_asked else set()
        if turn.id in self.orphaned:
            ways.add("failed")
        answer = self.answer_to(turn)
        if answer is not None and (answer.failed or self._broken(answer) or self._nothing_works(turn)):
            ways.add("failed")
        elif answer is not None and answer.ending is not None:
            ways.add("rejected" if answer.ending is Ending.REJECTED else "completed")
        return ways

    def _broken(self, answer: Answer) -> bool:
        """It completed without the handle that its thread cannot do without."""
        backend = self.backend.ownership.owner is StorageOwner.BACKEND
        return backend and answer.ending is not None and answer.handle is None

    def _states(self, rows: ContextRows, task: TaskRow) -> set[str]:
        last = self.turns(rows, task.id)[-1]
        answer = self.answer_to(last)
        match last.status:
            case "accepted":
                return {TaskState.SUBMITTED, TaskState.WORKING}
            case "running":
                return {TaskState.WORKING}
            case "failed":
                return {TaskState.FAILED}
            case "cancelled":
                return {TaskState.CANCELED}
            case _:
                assert answer is not None
                assert answer.ending is not None
                state = ENDINGS[answer.ending]
                canceled = state in WAITING and task.id in self.cancel_asked
                return {state, TaskState.CANCELED} if canceled else {state}

    # --- what was told of it

    def check_texts(self, *, settled: bool) -> None:
        """The log holds what the backend said: all of it once nothing is under way, a beginning of it otherwise."""
        for rows in self.snapshot.values():
            for task in rows.tasks.values():
                turns = self.turns(rows, task.id)
                said = "".join(answer.text for turn in turns for answer in self.answers_to(turn))
                assert said.startswith(task.text), f"{task.id}: {task.text!r} of {said!r}"
                broken_off = turns[-1].status == "cancelled" or turns[-1].id in self.orphaned
                if (settled or turns[-1].ended) and not broken_off:
                    assert task.text == said, f"{task.id}: {task.text!r} of {said!r}"

    def check_reads(self) -> None:
        """What was shown of a task was stored."""
        stored = {task.id: task for task in self.tasks}
        for name, read in self.reads:
            if read.done and not read.lost:
                assert stored[name].text.startswith(shown(read.result)), f"{name} was shown before it was stored"
                over = str(read.result.status.state) in ENDED
                assert not over or read.result.status.state == stored[name].state
        self.reads = [asked for asked in self.reads if not asked[1].done]

    def check_task(self, got: Task, rows: ContextRows) -> None:
        """A task as it is shown when nothing is under way. Of one that has ended this never changes."""
        task = rows.tasks[got.id]
        assert (got.context_id, got.status.state, shown(got)) == (task.context, task.state, task.text)
        users = [line for line in history_of(got) if line.startswith("U ")]
        assert users == [f"U {turn.text}" for turn in self.turns(rows, task.id)]
        messages = [message.message_id for message in got.history or () if message.role is Role.AGENT]
        if got.status.message is not None:
            messages.append(got.status.message.message_id)
        assert messages == [name for event in task.events if (name := spoken(event)) is not None]
        assert self.ended.get(task.id, got) == got
        if task.state in ENDED:
            self.ended[task.id] = got

    def check_streams(self, *, settled: bool) -> None:
        """What was streamed is stored, in order, without gap or repeat; what is stored was streamed."""
        stored = {task.id: task for task in self.tasks}
        for meant, watching in self.watching:
            if not watching.frames:
                assert not settled or watching.lost or watching.opening.error is not None, "a stream does not begin"
                continue
            first = events(watching.frames[:1])[0].task
            assert first is not None
            assert meant in (None, first.id)
            task = stored[first.id]
            read = numbers(watching.frames)
            begin = read[0] if read[0] is not None else watching.asked
            assert begin is not None
            assert read[1:] == list(range(begin + 1, begin + len(read))), f"a stream of {task.id} told {read}"
            last = begin + len(read) - 1
            assert [payload for _, payload in watching.frames[1:]] == task.events[begin:last]
            assert streamed(watching.frames) == "".join(told(event)[1] for event in task.events[:last])
            if settled and not watching.lost and not watching.ended:
                assert last == len(task.events), f"a stream of {task.id} told {last} of {len(task.events)} events"

    def check_answers(self) -> None:
        """No client waits needlessly, and none is answered too early. Only where nothing runs."""
        for rows in self.snapshot.values():
            self._check_progress(rows)
        for said in self.said:
            if said.asked.lost or said.refused:
                continue
            self._check_answer(said)
        tasks = {task.id: task for task in self.tasks}
        for name, over, cancel in self.cancels:
            if not cancel.lost:
                assert cancel.done, f"{name} is not canceled"
                assert isinstance(cancel.error, TaskNotCancelable | None), f"cancel {name}: {cancel.error!r}"
                assert tasks[name].state in ENDED
                if cancel.error is None:
                    assert (over, tasks[name].state) == (False, TaskState.CANCELED), f"{name} was told to be canceled"
        self.cancels = [asked for asked in self.cancels if not asked[2].done]
        for meant, watching in self.watching:
            if meant is not None and not watching.lost:
                ended = tasks[meant].state in ENDED
                if watching.opening.error is not None:
                    assert isinstance(watching.opening.error, UnsupportedOperation), f"{watching.opening.error!r}"
                    assert ended
                else:
                    assert watching.ended == ended, (
                        f"a subscription to {meant}, {tasks[meant].state}: {watching.ended=}"
                    )

    def _check_answer(self, said: Said) -> None:
        told_all = said.asked.done if isinstance(said.asked, Operation) else said.asked.ended
        if said.at_once:
            assert told_all, f"{said.text!r} is not answered"
        elif said.turn is not None:
            row = self._row(said)
            assert told_all == row.ended, f"{said.text!r}: its turn is {row.status}, its client has {told_all=}"
        else:
            first = self.owner_of(said.key)
            assert first is not None, f"{said.text!r} is neither stored nor refused"
            task = self._row(first).task
            open_turns = [turn for rows in self.snapshot.values() for turn in self.turns(rows, task) if not turn.ended]
            assert told_all or open_turns, f"the repeat of {said.text!r} is not answered"

    def _check_progress(self, rows: ContextRows) -> None:
        going = [turn for turn in rows.turns if not turn.ended]
        for turn in going[:1]:
            answer = self.answer_to(turn)
            assert answer is not None, f"{turn} is not carried out"
            running = {run.key for run in self.backend.tools.runs if not run.over}
            at_work = any(tool.turn == turn.id and tool.id in running for tool in rows.tools)
            assert answer.goes_on or at_work, f"{turn} does not end"
        for turn in going[1:]:
            assert self.answer_to(turn) is None, f"{turn} runs beside another"


def _output(tool: ToolRow) -> str:
    return f"O {tool.external_id} {json.loads(tool.outcome or '')}"
