"""One turn as a transcript: adapter events in, commands out."""

import asyncio
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from gateway.a2a import tool_calls
from gateway.a2a.model import (
    Artifact,
    Json,
    Message,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from gateway.a2a.redaction import json_path
from gateway.core.failures import HANDLE_MISSING, OWNER_CONFLICT, TURN_TIMEOUT, UNKNOWN_TOOL, safe_text
from gateway.core.task_record import answer_id
from gateway.core.tools.tool_call import ToolPolicy
from gateway.core.turn.commands import (
    AbortCall,
    Command,
    CompleteCall,
    EndTurn,
    OwnershipConflict,
    Publish,
    RecordPending,
    Reply,
    UnknownFinish,
)
from gateway.core.turn.machine import TurnFacts, TurnMachine
from gateway.core.turn.output import REASONING_URI
from gateway.foundation.clock import Clock
from gateway.ledger.calls import NewItem, NewToolCall
from gateway.ledger.states import ToolCallStatus, TurnStatus
from gateway.ports.adapter import (
    AdapterError,
    AdapterEvent,
    ApprovalAsked,
    ArtifactReady,
    CallCompleted,
    CallStarted,
    ConsentAsked,
    DirectReply,
    Ending,
    ErrorClass,
    ItemReady,
    PartReady,
    Progress,
    ReasoningDelta,
    TextDelta,
    ToolCallAnnounced,
    ToolCallArguments,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import (
    AssistantItem,
    CallItem,
    HandleKind,
    Item,
    OpaqueItem,
    OutputItem,
    Ownership,
    ReasoningItem,
    StorageOwner,
)
from gateway.ports.tools import ToolDeclaration
from tests.support.scripted_tools import ScriptedTools

G = Ownership(StorageOwner.GATEWAY, HandleKind.NONE)
BR = Ownership(StorageOwner.BACKEND, HandleKind.ROTATING)
NOW = "2026-11-20T10:00:00.000Z"
START = 1_795_168_800_000
OFFERED = asyncio.run(ScriptedTools({"one": 1}).offered())
FILE = Part(raw="AA==", media_type="image/png")
DONE = CallCompleted()
CALL = ToolCallReady("c", "add", '{"a":1}', handled=True)
ENDED = EndTurn(TurnStatus.COMPLETED, TaskState.COMPLETED)
ADDED = NewToolCall("call_id-1", 0, "c", "add", '{"a":1}', "backend", ToolCallStatus.COMPLETED, "3", asked_at=START)


def turn(ownership: Ownership = G, **facts: Any) -> TurnMachine:
    numbers = count(1)
    clock = Clock(
        now=lambda: START,
        monotonic=lambda: 0.0,
        new_id=lambda: f"id-{next(numbers)}",
        correlation_id=lambda: "c0ffee",
    )
    return TurnMachine(TurnFacts("t", "c", "turn", ownership, **facts), clock)


def play(machine: TurnMachine, *events: AdapterEvent) -> list[Command]:
    return [command for event in events for command in machine.receive(event)]


def agent(message_id: str, *parts: Part, task: str | None = "t", metadata: dict[str, Json] | None = None) -> Message:
    return Message(message_id=message_id, context_id="c", task_id=task, role=Role.AGENT, parts=parts, metadata=metadata)


def answers(part: Part, *, append: bool) -> Publish:
    made = Artifact(artifact_id=answer_id("turn"), parts=(part,))
    return Publish(TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=made, append=append))


def tells(message: Message | None = None, metadata: dict[str, Json] | None = None) -> Publish:
    status = TaskStatus(state=TaskState.WORKING, message=message, timestamp=NOW)
    return Publish(TaskStatusUpdateEvent(task_id="t", context_id="c", status=status, metadata=metadata))


def note(text: str) -> Part:
    return Part(text=text)


def text(words: str) -> AssistantItem:
    return AssistantItem((Part(text=words),))


def closes(*items: Item, handle: str | None = None) -> CompleteCall:
    return CompleteCall(handle, None, None, tuple(NewItem(item) for item in items), ())


def closed(commands: Sequence[Command]) -> CompleteCall:
    found = [command for command in commands if isinstance(command, CompleteCall)]
    assert len(found) == 1
    return found[0]


def kept(commands: Sequence[Command]) -> list[Item]:
    return [new.item for new in closed(commands).items]


def phases(commands: Sequence[Command]) -> list[str]:
    """The shown phases of tool calls, in order."""
    told: list[str] = []
    for command in commands:
        if isinstance(command, Publish) and isinstance(command.update, TaskStatusUpdateEvent):
            message = command.update.status.message
            places = [command.update.metadata, *(part.metadata for part in (message.parts if message else ()))]
            told += [place[tool_calls.URI]["phase"] for place in places if place and tool_calls.URI in place]
    return told


# --- the answer ---


def test_text_grows_one_artifact_and_is_kept_as_one_answer() -> None:
    assert play(turn(), TextDelta("Hel"), TextDelta("lo"), DONE) == [
        answers(Part(text="Hel"), append=False),
        answers(Part(text="lo"), append=True),
        closes(text("Hello")),
        ENDED,
    ]


def test_parts_take_their_place_between_the_texts() -> None:
    assert play(turn(), TextDelta("a"), PartReady(FILE), TextDelta("b"), DONE) == [
        answers(Part(text="a"), append=False),
        answers(FILE, append=True),
        answers(Part(text="b"), append=True),
        closes(AssistantItem((Part(text="a"), FILE, Part(text="b")))),
        ENDED,
    ]


def test_an_empty_delta_says_nothing() -> None:
    assert play(turn(), TextDelta(""), DONE) == [closes(), ENDED]


def test_a_call_that_says_nothing_ends_well() -> None:
    assert play(turn(), DONE) == [closes(), ENDED]


def test_an_artifact_of_its_own_is_shown_as_it_is_and_kept_with_the_answer() -> None:
    report = Artifact(artifact_id="report", name="Report", parts=(FILE,))
    commands = play(turn(), TextDelta("see"), ArtifactReady(report, append=True, last_chunk=True), DONE)
    assert commands[1] == Publish(
        TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=report, append=True, last_chunk=True)
    )
    assert kept(commands) == [AssistantItem((Part(text="see"), FILE))]


def test_progress_is_shown_and_not_stored() -> None:
    assert play(turn(), Progress("looking"), DONE) == [tells(agent("id-1", note("looking"))), closes(), ENDED]


def test_notes_are_marked_as_thoughts_for_who_knows_the_mark() -> None:
    marked = {"adk_thought": True}
    shown, _, end = play(turn(marks_thoughts=True), Progress("looking"), CallCompleted(finish="MAX_TOKENS"))
    assert shown == tells(agent("id-1", Part(text="looking", metadata=marked)))
    assert isinstance(end, EndTurn)
    assert end.message is not None
    assert [part.metadata for part in end.message.parts] == [marked]


def test_the_pending_handle_is_noted_and_not_taken_for_the_confirmed_one() -> None:
    commands = play(turn(BR), CallStarted("r2"), CallStarted(), CallCompleted("r3"))
    assert commands == [RecordPending("r2", None), closes(handle="r3"), ENDED]


def test_state_usage_and_handle_close_the_call() -> None:
    commands = play(turn(BR), CallCompleted("r1", usage={"tokens": 1}, state={"n": 1}))
    assert commands == [CompleteCall("r1", {"n": 1}, {"tokens": 1}, (), ()), ENDED]


# --- reasoning ---


def test_reasoning_is_shown_in_pieces_and_then_whole_before_the_text_after_it() -> None:
    assert play(turn(), ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("yes"), DONE) == [
        tells(metadata={REASONING_URI: {"delta": "h"}}),
        tells(metadata={REASONING_URI: {"delta": "m"}}),
        tells(agent("id-1", note("hm"))),
        answers(Part(text="yes"), append=False),
        closes(ReasoningItem("hm"), text("yes")),
        ENDED,
    ]


def test_a_reasoning_item_takes_the_place_of_its_pieces() -> None:
    item = ReasoningItem("hm!", {"encrypted": "x"})
    commands = play(turn(), ReasoningDelta("hm"), ItemReady(item, "rs_1"), TextDelta("yes"), DONE)
    assert commands[1] == tells(agent("id-1", note("hm!")))
    assert closed(commands).items == (NewItem(item, "rs_1"), NewItem(text("yes")))


def test_a_reasoning_item_without_text_is_shown_by_its_pieces() -> None:
    item = ReasoningItem("", {"encrypted": "x"})
    commands = play(turn(), ReasoningDelta("hm"), ItemReady(item), DONE)
    assert commands == [
        tells(metadata={REASONING_URI: {"delta": "hm"}}),
        tells(agent("id-1", note("hm"))),
        closes(item),
        ENDED,
    ]


def test_a_reasoning_item_that_cannot_be_read_is_kept_and_not_shown() -> None:
    item = ReasoningItem("", {"encrypted": "x"})
    assert play(turn(), ItemReady(item), DONE) == [closes(item), ENDED]


def test_reasoning_at_the_end_is_kept() -> None:
    commands = play(turn(), ReasoningDelta("hm"), DONE)
    assert commands[1:] == [tells(agent("id-1", note("hm"))), closes(ReasoningItem("hm")), ENDED]


def test_items_are_kept_in_the_order_in_which_they_came() -> None:
    opaque = OpaqueItem("compaction", {})
    commands = play(
        turn(),
        TextDelta("a"),
        ReasoningDelta("r"),
        ItemReady(opaque, "x_1"),
        ReasoningDelta("s"),
        PartReady(FILE),
        ReasoningDelta("u"),
        ArtifactReady(Artifact(artifact_id="b", parts=(Part(text="b"),))),
        DONE,
    )
    assert kept(commands) == [
        text("a"),
        ReasoningItem("r"),
        opaque,
        ReasoningItem("s"),
        AssistantItem((FILE,)),
        ReasoningItem("u"),
        text("b"),
    ]


# --- tool calls of the backend ---


def shows(phase: str, detail: Json = None, *, message: str = "", server: str | None = None) -> Publish:
    call = tool_calls.CallFacts("call_id-1", "add", 0, 0, "backend", server, NOW)
    place = tool_calls.Place("t", "c", NOW, lambda: message)
    update = tool_calls.update(call, tool_calls.Phase(phase), detail, tool_calls.Rendering(), place)
    assert update is not None
    return Publish(update)


def test_a_tool_call_is_shown_from_its_name_to_its_result() -> None:
    commands = play(
        turn(),
        ToolCallAnnounced("c", "add"),
        ToolCallArguments("c", '{"a"'),
        ToolCallArguments("c", ":1}"),
        CALL,
        ToolResultReady("c", "3"),
        TextDelta("three"),
        DONE,
    )
    assert commands == [
        shows("args-delta", ""),
        shows("args-delta", '{"a"'),
        shows("args-delta", ":1}"),
        shows("requested", '{"a":1}', message="id-2"),
        shows("executing"),
        shows("succeeded", "3", message="id-3"),
        answers(Part(text="three"), append=False),
        CompleteCall(
            None,
            None,
            None,
            (
                NewItem(CallItem("c", "add", '{"a":1}', True), None, "call_id-1"),
                NewItem(OutputItem("c", "3"), None, "call_id-1"),
                NewItem(text("three")),
            ),
            (replace(ADDED, started_at=START, ended_at=START),),
        ),
        ENDED,
    ]


def test_a_call_that_was_not_announced_is_shown_when_it_is_ready() -> None:
    commands = play(turn(), ToolCallReady("c", "add", "{}", handled=True, provider_id="fc_1"), ToolResultReady("c", ""))
    assert phases(commands) == ["requested", "executing", "succeeded"]


def test_the_id_that_the_backend_gave_an_item_is_kept_apart() -> None:
    commands = play(
        turn(), ToolCallReady("c", "add", "{}", handled=True, provider_id="fc_1"), ToolResultReady("c", ""), DONE
    )
    assert closed(commands).items[0] == NewItem(CallItem("c", "add", "{}", handled=True), "fc_1", "call_id-1")


def test_the_server_is_shown_as_soon_as_it_is_known() -> None:
    announced, ready, *_ = play(
        turn(), ToolCallAnnounced("c", "add"), ToolCallReady("c", "add", "{}", handled=True, server="mcp:sums")
    )
    assert isinstance(announced, Publish)
    assert announced == shows("args-delta", "")
    assert ready == shows("requested", "{}", message="id-2", server="mcp:sums")


def test_a_caller_who_is_shown_no_tool_calls_gets_none_and_the_ledger_all() -> None:
    hidden = turn(rendering=tool_calls.Rendering(exposure="none"))
    commands = play(hidden, ToolCallAnnounced("c", "add"), CALL, ToolResultReady("c", "3"), TextDelta("three"), DONE)
    assert [command for command in commands if isinstance(command, Publish)] == [
        answers(Part(text="three"), append=False)
    ]
    assert kept(commands) == [CallItem("c", "add", '{"a":1}', True), OutputItem("c", "3"), text("three")]
    assert closed(commands).tool_calls == (replace(ADDED, started_at=START, ended_at=START),)


def test_what_is_masked_on_the_wire_is_whole_in_the_ledger() -> None:
    masked = turn(rendering=tool_calls.Rendering(redact=(json_path("$.args.a"), json_path("$.response.result"))))
    commands = play(masked, CALL, ToolResultReady("c", "3"), DONE)
    assert "[redacted]" in str(commands[0])
    assert "[redacted]" in str(commands[2])
    assert kept(commands) == [CallItem("c", "add", '{"a":1}', True), OutputItem("c", "3")]


def test_a_failed_tool_is_shown_as_failed_and_its_text_is_the_outcome() -> None:
    commands = play(turn(), CALL, ToolResultReady("c", {"why": "no"}, error=True), DONE)
    assert phases(commands) == ["requested", "executing", "failed"]
    assert kept(commands)[1] == OutputItem("c", {"why": "no"}, error=True)
    assert [(call.status, call.outcome) for call in closed(commands).tool_calls] == [("failed", {"why": "no"})]
    assert commands[-1] == ENDED


@pytest.mark.parametrize("output", ["", [], 0, False, None])
def test_an_empty_result_is_an_outcome(output: Json) -> None:
    commands = play(turn(), CALL, ToolResultReady("c", output), DONE)
    assert kept(commands) == [CallItem("c", "add", '{"a":1}', True), OutputItem("c", output)]
    assert [(call.status, call.outcome) for call in closed(commands).tool_calls] == [("completed", output)]


def test_calls_are_numbered_in_the_order_in_which_they_came() -> None:
    commands = play(
        turn(),
        ToolCallAnnounced("c", "add"),
        ToolCallAnnounced("d", "sub"),
        ToolCallReady("d", "sub", "{}", handled=True),
        CALL,
        ToolResultReady("c", 1),
        ToolResultReady("d", 2),
        DONE,
    )
    assert [(c.sequence, c.external_id, c.status) for c in closed(commands).tool_calls] == [
        (0, "c", "completed"),
        (1, "d", "completed"),
    ]


def test_text_and_thoughts_before_a_call_come_before_it() -> None:
    commands = play(turn(), TextDelta("let me see"), ReasoningDelta("hm"), CALL, ToolResultReady("c", 3), DONE)
    assert kept(commands) == [
        text("let me see"),
        ReasoningItem("hm"),
        CallItem("c", "add", '{"a":1}', True),
        OutputItem("c", 3),
    ]


def test_a_call_that_the_backend_ran_and_never_answered_is_closed_as_unknown() -> None:
    commands = play(turn(), CALL, TextDelta("done"), DONE)
    assert phases(commands) == ["requested", "executing", "interrupted"]
    assert kept(commands) == [CallItem("c", "add", '{"a":1}', True), text("done")]
    assert [(call.executor, call.status) for call in closed(commands).tool_calls] == [("backend", "external")]
    assert commands[-1] == ENDED


def test_a_call_that_was_only_announced_is_closed_as_never_made() -> None:
    commands = play(turn(), ToolCallAnnounced("c", "add"), DONE)
    assert closed(commands).tool_calls == (
        replace(ADDED, arguments="", status=ToolCallStatus.CANCELLED, outcome=None, ended_at=START),
    )
    assert kept(commands) == []
    assert commands[-1] == ENDED


@pytest.mark.parametrize("handled", [None, False])
@pytest.mark.parametrize(("ownership", "handle"), [(G, None), (BR, "r1")])
def test_a_call_that_nobody_answers_is_refused_and_the_turn_fails(
    ownership: Ownership, handle: str | None, handled: bool | None
) -> None:
    facts = ToolPolicy(unknown_fails=True)
    commands = play(turn(ownership, tools=facts), ToolCallReady("c", "add", "{}", handled), CallCompleted(handle))
    assert phases(commands) == ["requested", "failed"]
    refusal = "This tool is not available."
    assert closed(commands) == CompleteCall(
        handle,
        None,
        None,
        (
            NewItem(CallItem("c", "add", "{}", handled), None, "call_id-1"),
            NewItem(OutputItem("c", refusal, error=True), None, "call_id-1", unsent=ownership is BR),
        ),
        (
            replace(
                ADDED,
                arguments="{}",
                executor="gateway",
                status=ToolCallStatus.NOT_FOUND,
                outcome=refusal,
                ended_at=START,
            ),
        ),
    )
    why = agent(
        "id-4",
        Part(text=safe_text(UNKNOWN_TOOL, "c0ffee")),
        metadata={"correlationId": "c0ffee", "errorClass": UNKNOWN_TOOL},
    )
    assert commands[-1] == EndTurn(TurnStatus.FAILED, TaskState.FAILED, why, UNKNOWN_TOOL)


def test_an_agent_that_asks_for_input_may_leave_a_call_unanswered() -> None:
    commands = play(turn(), ToolCallReady("c", "ask", "{}"), CallCompleted(ending=Ending.INPUT_REQUIRED))
    assert commands[-1] == EndTurn(TurnStatus.COMPLETED, TaskState.INPUT_REQUIRED)
    assert [call.status for call in closed(commands).tool_calls] == ["not_found"]


# --- what a backend keeps itself ---

SAID: tuple[AdapterEvent, ...] = (
    ReasoningDelta("hm"),
    CALL,
    ToolResultReady("c", 3),
    TextDelta("three"),
    CallCompleted("r1"),
)


@pytest.mark.parametrize(
    ("shadow", "shadowed"),
    [
        ("items", [ReasoningItem("hm"), CallItem("c", "add", '{"a":1}', True), OutputItem("c", 3), text("three")]),
        ("text", [text("three")]),
        ("none", []),
    ],
)
def test_of_a_conversation_that_the_backend_keeps_as_much_is_kept_here_as_is_asked_for(
    shadow: str, shadowed: list[Item]
) -> None:
    commands = play(turn(BR, shadow=shadow), *SAID)
    assert kept(commands) == shadowed
    assert len(closed(commands).tool_calls) == 1


@pytest.mark.parametrize("shadow", ["items", "text", "none"])
def test_a_conversation_of_our_own_is_kept_whole(shadow: str) -> None:
    assert len(kept(play(turn(G, shadow=shadow), *SAID[:-1], DONE))) == 4


@pytest.mark.parametrize(("shadow", "shadowed"), [("text", 3), ("none", 2)])
def test_an_output_that_the_backend_waits_for_is_kept_whatever_is_asked_for(shadow: str, shadowed: int) -> None:
    commands = play(turn(BR, shadow=shadow), TextDelta("hm"), *SAID[1:3], ToolCallReady("d", "x", "{}"), SAID[-1])
    items = [new for new in closed(commands).items if not isinstance(new.item, AssistantItem)]
    assert [new.item for new in items] == [
        CallItem("d", "x", "{}"),
        OutputItem("d", "This tool is not available.", error=True),
    ]
    assert [new.unsent for new in items] == [False, True]
    assert len(closed(commands).items) == shadowed


def test_a_completed_call_without_a_handle_fails_where_the_backend_keeps_the_conversation() -> None:
    commands = play(turn(BR), TextDelta("lost"), DONE)
    why = agent(
        "id-1",
        Part(text=safe_text(HANDLE_MISSING, "c0ffee")),
        metadata={"correlationId": "c0ffee", "errorClass": HANDLE_MISSING},
    )
    assert commands[1:] == [
        AbortCall(HANDLE_MISSING, (NewItem(text("lost"), replayable=False),)),
        EndTurn(TurnStatus.FAILED, TaskState.FAILED, why, HANDLE_MISSING),
    ]


def test_a_completed_call_without_a_handle_can_be_tolerated_with_a_gap() -> None:
    closing, end = play(turn(BR, tolerate_missing_handle=True), TextDelta("ok"), DONE)[1:]
    assert closing == closes(text("ok"))
    assert isinstance(end, EndTurn)
    assert (end.state, end.failure, end.metadata) == (
        TaskState.COMPLETED,
        HANDLE_MISSING,
        {"contextGap": HANDLE_MISSING},
    )
    assert end.message is not None
    assert end.message.metadata == end.metadata


def test_the_answer_to_an_open_call_of_a_tolerated_gap_is_not_sent_on_a_chain_without_the_call() -> None:
    *_, closing, _ = play(turn(BR, tolerate_missing_handle=True), ToolCallReady("d", "sub", "{}"), DONE)
    assert isinstance(closing, CompleteCall)
    assert [new.unsent for new in closing.items] == [False, False]


# --- a backend that keeps what it should not ---

KEPT = {
    "a handle": (CallCompleted("r1"), "r1"),
    "a handle and its word": (CallCompleted("r1", stored=True), "r1"),
    "its word alone": (CallCompleted(stored=True), None),
}


@pytest.mark.parametrize("how", KEPT)
def test_a_call_of_the_gateways_that_the_backend_kept_fails(how: str) -> None:
    event, handle = KEPT[how]
    conflict, dropped, ended = play(turn(), TextDelta("ok"), event)[1:]
    assert conflict == OwnershipConflict(handle, adopts=False)
    assert dropped == AbortCall(OWNER_CONFLICT, (NewItem(text("ok"), replayable=False),))
    assert isinstance(ended, EndTurn)
    assert (ended.status, ended.failure) == ("failed", OWNER_CONFLICT)


@pytest.mark.parametrize("how", KEPT)
def test_a_call_that_the_backend_kept_counts_where_that_is_only_warned_of(how: str) -> None:
    event, handle = KEPT[how]
    machine = turn(on_owner_conflict="warn")
    assert play(machine, TextDelta("ok"), event)[1:] == [
        closes(text("ok")),
        OwnershipConflict(handle, adopts=False),
        ENDED,
    ]


def test_a_call_that_the_backend_kept_can_be_adopted_by_its_handle() -> None:
    machine = turn(on_owner_conflict="adopt")
    told = play(machine, TextDelta("ok"), CallCompleted("r1"))[1:]
    assert told == [closes(text("ok")), OwnershipConflict("r1", adopts=True), ENDED]


def test_a_call_that_the_backend_kept_under_no_name_cannot_be_adopted() -> None:
    machine = turn(on_owner_conflict="adopt")
    assert play(machine, CallCompleted(stored=True))[0] == OwnershipConflict(None, adopts=False)
    assert machine.ended


@pytest.mark.parametrize("event", [CallCompleted(), CallCompleted(stored=False), CallCompleted(stored=None)])
def test_a_call_that_the_backend_did_not_keep_is_no_conflict(event: CallCompleted) -> None:
    assert play(turn(), event) == [closes(), ENDED]


def test_a_rebuilt_conversation_is_announced() -> None:
    machine = turn()
    [told] = machine.announce_rebuild(ErrorClass.HANDLE_EXPIRED)
    assert isinstance(told, Publish)
    assert isinstance(told.update, TaskStatusUpdateEvent)
    assert told.update.metadata == {"contextRebuilt": "handle-expired"}
    assert told.update.status.message is not None
    assert told.update.status.message.metadata == {"contextRebuilt": "handle-expired"}
    with pytest.raises(AdapterError, match="direct reply"):
        machine.receive(DirectReply((Part(text="pong"),)))


# --- endings ---


@pytest.mark.parametrize(
    ("ending", "status", "state"),
    [
        (Ending.COMPLETED, "completed", TaskState.COMPLETED),
        (Ending.INPUT_REQUIRED, "completed", TaskState.INPUT_REQUIRED),
        (Ending.AUTH_REQUIRED, "completed", TaskState.AUTH_REQUIRED),
        (Ending.REJECTED, "rejected", TaskState.REJECTED),
    ],
)
def test_a_call_says_how_its_task_is_left(ending: Ending, status: str, state: TaskState) -> None:
    question = (Part(text="which?"),)
    kept_words = () if ending is Ending.COMPLETED else (AssistantItem(question),)
    assert play(turn(), CallCompleted(ending=ending, message=question)) == [
        closes(*kept_words),
        EndTurn(TurnStatus(status), state, agent("id-1", *question)),
    ]


@pytest.mark.parametrize("ownership", [G, BR], ids=["G", "BR"])
def test_the_words_of_an_ending_are_the_last_that_the_agent_said(ownership: Ownership) -> None:
    asks = CallCompleted("r1" if ownership is BR else None, Ending.INPUT_REQUIRED, (Part(text="which?"), FILE))
    commands = play(turn(ownership), TextDelta("Hm."), CALL, ToolResultReady("c", 3), asks)
    assert kept(commands)[-1] == AssistantItem((Part(text="which?"), FILE))
    assert len([item for item in kept(commands) if isinstance(item, AssistantItem)]) == 2


@pytest.mark.parametrize(
    ("said", "question"),
    [
        (("which?",), "which?"),
        (("Let me ask. ", "which?"), "which?"),
        (("Let me ask.\n", "which", " one?"), "which one?"),
    ],
)
def test_words_that_the_agent_has_said_already_are_kept_once(said: Sequence[str], question: str) -> None:
    asks = CallCompleted(ending=Ending.INPUT_REQUIRED, message=(Part(text=question),))
    commands = play(turn(), *map(TextDelta, said), asks)
    assert kept(commands) == [text("".join(said))]
    assert commands[-1] == EndTurn(TurnStatus.COMPLETED, TaskState.INPUT_REQUIRED, agent("id-1", Part(text=question)))


@pytest.mark.parametrize("said", ["which? Or not", "a hitch?", "Itch?", "itch"])
def test_words_that_the_answer_does_not_end_with_are_kept(said: str) -> None:
    asks = CallCompleted(ending=Ending.INPUT_REQUIRED, message=(Part(text="itch?"),))
    assert kept(play(turn(), TextDelta(said), asks)) == [text(said), text("itch?")]


def test_words_with_more_than_the_answer_ends_with_are_kept_whole() -> None:
    asks = CallCompleted(ending=Ending.INPUT_REQUIRED, message=(Part(text="which?"), FILE))
    assert kept(play(turn(), TextDelta("which?"), asks)) == [text("which?"), AssistantItem((Part(text="which?"), FILE))]


def test_parts_that_the_agent_has_given_already_are_kept_once() -> None:
    asks = CallCompleted(ending=Ending.INPUT_REQUIRED, message=(Part(text="which?"), FILE))
    assert kept(play(turn(), TextDelta("which?"), PartReady(FILE), asks)) == [
        AssistantItem((Part(text="which?"), FILE))
    ]


@pytest.mark.parametrize(("shadow", "words"), [("text", [text("which?")]), ("none", [])])
def test_a_smaller_shadow_has_the_words_of_an_ending_where_it_has_answers(shadow: str, words: list[Item]) -> None:
    asks = CallCompleted("r1", Ending.INPUT_REQUIRED, (Part(text="which?"),))
    assert kept(play(turn(BR, shadow=shadow), asks)) == words


def test_an_answer_that_is_not_whole_says_why() -> None:
    commands = play(turn(), TextDelta("and th"), CallCompleted(finish="max_output_tokens"))
    why: dict[str, Json] = {"finishReason": "max_output_tokens"}
    words = note("The answer is not whole: 'max_output_tokens'.")
    said = commands[-1].message if isinstance(commands[-1], EndTurn) else None
    assert said is not None
    assert (said.parts, said.metadata) == ((words,), why)
    assert commands[-1] == EndTurn(TurnStatus.COMPLETED, TaskState.COMPLETED, said, None, why)


@pytest.mark.parametrize(
    ("reason", "shown"), [("MAX_TOKENS", "max_tokens"), ("SAFETY", "safety"), ("refusal", "refusal")]
)
def test_a_known_reason_is_told_by_its_name(reason: str, shown: str) -> None:
    end = play(turn(), CallCompleted(finish=reason))[-1]
    assert isinstance(end, EndTurn)
    assert end.metadata == {"finishReason": shown}


@pytest.mark.parametrize("reason", ["error sk-secret", "sk_secret", "<b>\n{0} {finishReason}", "Z" * 5000, "other", ""])
def test_an_unknown_reason_is_kept_for_the_log(reason: str) -> None:
    commands = play(turn(), TextDelta("and th"), CallCompleted(finish=reason))
    unknown, end = commands[-2:]
    assert isinstance(unknown, UnknownFinish)
    assert isinstance(end, EndTurn)
    assert unknown.reason == reason
    assert end.metadata == {"finishReason": "other"}
    assert end.message is not None
    assert end.message.metadata == {"finishReason": "other", "correlationId": unknown.correlation_id}
    (part,) = end.message.parts
    assert part.text == f"The answer is not whole, for another reason (correlation id {unknown.correlation_id})."


def test_a_refusal_that_says_why_in_words_of_its_own_keeps_them() -> None:
    refused = CallCompleted(ending=Ending.REJECTED, finish="content_filter", message=(Part(text="I may not."),))
    end = play(turn(), refused)[-1]
    assert isinstance(end, EndTurn)
    assert end.message is not None
    assert (end.message.parts, end.message.metadata) == ((Part(text="I may not."),), {"finishReason": "content_filter"})


def test_an_answer_that_waits_for_consent_says_why_it_is_not_whole() -> None:
    end = play(turn(), ConsentAsked("https://a.example"), CallCompleted(finish="length"))[-1]
    assert isinstance(end, EndTurn)
    assert end.message is not None
    assert (end.state, end.metadata) == (TaskState.AUTH_REQUIRED, {"finishReason": "length"})
    assert (end.message.metadata or {})["finishReason"] == "length"


# --- bare messages ---


def test_a_direct_reply_is_the_whole_turn() -> None:
    reply = agent("id-1", Part(text="pong"), task=None)
    assert play(turn(direct_replies=True), DirectReply((Part(text="pong"),), {"n": 1})) == [
        CompleteCall(None, {"n": 1}, None, (NewItem(text("pong")),), ()),
        Reply(reply),
        EndTurn(TurnStatus.COMPLETED, TaskState.COMPLETED, reply),
    ]


@pytest.mark.parametrize(("ownership", "kept"), [(BR, "r1"), (G, None)])
def test_the_handle_of_a_direct_reply_moves_a_conversation_of_the_backend(
    ownership: Ownership, kept: str | None
) -> None:
    machine = turn(ownership, direct_replies=True)
    [complete, *_] = play(machine, DirectReply((Part(text="pong"),), handle="r1"))
    assert complete == CompleteCall(kept, None, None, (NewItem(text("pong")),), ())


def test_a_pending_handle_before_a_direct_reply_shows_nothing() -> None:
    machine = turn(BR, direct_replies=True)
    assert len(play(machine, CallStarted("r1"), DirectReply((Part(text="pong"),)))) == 4


@pytest.mark.parametrize(
    "before", [TextDelta("a"), Progress("a"), ItemReady(OpaqueItem("x", {})), ReasoningDelta("a"), PartReady(FILE)]
)
def test_a_direct_reply_after_anything_else_breaks_the_contract(before: AdapterEvent) -> None:
    with pytest.raises(AdapterError, match="a direct reply must be the first and only answer"):
        play(turn(direct_replies=True), before, DirectReply((Part(text="pong"),)))


def test_a_direct_reply_that_the_agent_may_not_give_breaks_the_contract() -> None:
    with pytest.raises(AdapterError, match="contract-broken"):
        play(turn(), DirectReply((Part(text="pong"),)))


# --- failing and cancelling ---


def test_a_failed_call_keeps_what_was_said_and_never_shows_it_to_the_model_again() -> None:
    machine = turn()
    play(machine, TextDelta("par"), ReasoningDelta("hm"))
    why = agent(
        "id-2",
        Part(text=safe_text(ErrorClass.INTERRUPTED, "c0ffee")),
        metadata={"correlationId": "c0ffee", "errorClass": "interrupted"},
    )
    assert machine.fail(ErrorClass.INTERRUPTED, "c0ffee") == [
        tells(agent("id-1", note("hm"))),
        AbortCall(
            ErrorClass.INTERRUPTED,
            (NewItem(text("par"), replayable=False), NewItem(ReasoningItem("hm"), replayable=False)),
        ),
        EndTurn(TurnStatus.FAILED, TaskState.FAILED, why, ErrorClass.INTERRUPTED),
    ]
    assert machine.ended


@pytest.mark.parametrize("keeps", [True, False])
def test_a_cancelled_call_keeps_what_was_said(keeps: bool) -> None:
    machine = turn(keeps_interrupted=keeps)
    play(machine, TextDelta("par"))
    assert machine.cancel() == [
        AbortCall("cancelled", (NewItem(text("par"), replayable=keeps),)),
        EndTurn(TurnStatus.CANCELLED, TaskState.CANCELED),
    ]
    assert machine.ended


def test_a_turn_can_fail_before_anything_happened() -> None:
    commands = turn().fail(TURN_TIMEOUT, "c0ffee")
    assert commands[0] == AbortCall(TURN_TIMEOUT, ())


@pytest.mark.parametrize("how", ["fail", "cancel"])
def test_a_tool_call_that_is_cut_short_is_shown_as_interrupted(how: str) -> None:
    machine = turn()
    play(machine, CALL, ToolResultReady("c", 3), ToolCallReady("d", "x", "{}"), ToolCallAnnounced("e", "y"))
    commands = machine.fail(ErrorClass.TIMED_OUT, "c0ffee") if how == "fail" else machine.cancel()
    assert phases(commands) == ["interrupted"]
    dropped = commands[1]
    assert isinstance(dropped, AbortCall)
    assert [(new.tool_call, new.replayable) for new in dropped.items] == [(None, False)] * 3


@pytest.mark.parametrize("how", ["fail", "cancel"])
@pytest.mark.parametrize(
    "event",
    [ToolCallReady("c", "one", "{}"), ToolCallReady("c", "camera", "{}"), ApprovalAsked("c", "pay", "{}", "bank")],
    ids=["of the gateway", "of the client", "a question of the backend"],
)
def test_a_call_of_a_cut_answer_that_waited_for_its_end_is_shown_as_cancelled(event: AdapterEvent, how: str) -> None:
    camera = ToolDeclaration("camera", "Takes a picture.", {"type": "object"})
    machine = turn(tools=ToolPolicy(OFFERED, {"camera": camera}))
    play(machine, event)
    commands = machine.fail(ErrorClass.INTERRUPTED, "c0ffee") if how == "fail" else machine.cancel()
    assert phases(commands)[-1] == "cancelled"


@pytest.mark.parametrize("event", [ToolCallReady("c", "one", "{}", True), ToolCallReady("c", "its_own", "{}")])
def test_a_call_of_a_cut_answer_that_its_backend_may_have_run_is_shown_as_interrupted(event: AdapterEvent) -> None:
    machine = turn(tools=ToolPolicy(OFFERED))
    play(machine, event)
    assert phases(machine.fail(ErrorClass.INTERRUPTED, "c0ffee")) == ["interrupted"]


def test_a_failure_among_the_commands_of_an_event_does_not_lose_them() -> None:
    commands = play(turn(BR), CALL, DONE)
    assert phases(commands) == ["requested", "executing", "interrupted"]


# --- what cannot follow ---


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([ToolCallArguments("c", "x")], "nobody announced tool call 'c'"),
        ([ToolResultReady("c", 1), ToolResultReady("c", 2)], "'c' was answered twice"),
        ([ToolCallAnnounced("c", "x"), ToolCallAnnounced("c", "x")], "'c' was announced twice"),
        ([CALL, ToolCallAnnounced("c", "x")], "'c' was announced twice"),
        ([CALL, CALL], "the arguments of tool call 'c' came twice"),
        ([ToolCallReady("c", "x", "{}"), DONE, TextDelta("late")], "TextDelta after the end of the call"),
        ([CALL, ToolResultReady("c", 1), ToolResultReady("c", 2)], "'c' was answered twice"),
        ([DONE, TextDelta("late")], "TextDelta after the end of the call"),
        ([DONE, DONE], "CallCompleted after the end of the call"),
        (["nonsense"], "'nonsense' is not an event of the port"),
    ],
)
def test_an_event_that_cannot_follow_breaks_the_contract(events: list[Any], why: str) -> None:
    machine = turn()
    play(machine, *events[:-1])
    with pytest.raises(AdapterError, match=why) as caught:
        machine.receive(events[-1])
    assert caught.value.kind is ErrorClass.CONTRACT_BROKEN


# --- any order at all ---

_EVENT = some.sampled_from(
    [
        TextDelta("a"),
        ReasoningDelta("r"),
        PartReady(FILE),
        Progress("p"),
        ItemReady(ReasoningItem("r", {})),
        ItemReady(OpaqueItem("x", {})),
        ToolCallAnnounced("c", "add"),
        ToolCallArguments("c", "{"),
        CALL,
        ToolResultReady("c", 1),
        ToolCallReady("d", "sub", "{}"),
        CallStarted("r1"),
        DONE,
    ]
)


@given(some.lists(_EVENT, max_size=10), some.sampled_from(["complete", "fail", "cancel"]))
def test_any_turn_closes_or_drops_its_call_once_and_ends_once_at_the_end(events: list[AdapterEvent], how: str) -> None:
    machine = turn(tools=ToolPolicy(unknown_fails=True))
    commands: list[Command] = []
    try:
        for event in [*events, DONE] if how == "complete" else events:
            if machine.ended:
                break
            commands += machine.receive(event)
        if not machine.ended:
            commands += machine.fail(ErrorClass.UNKNOWN, "c0ffee") if how == "fail" else machine.cancel()
    except AdapterError:
        commands += machine.fail(ErrorClass.CONTRACT_BROKEN, "c0ffee")
    ends = [type(command) for command in commands if isinstance(command, CompleteCall | AbortCall | EndTurn)]
    assert ends in ([CompleteCall, EndTurn], [AbortCall, EndTurn])
    assert isinstance(commands[-1], EndTurn)
    told = phases(commands)
    ready = told.count("requested")
    assert sum(told.count(phase) for phase in ("succeeded", "failed", "interrupted")) == ready
