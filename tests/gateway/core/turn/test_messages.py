"""The messages of an answer: what callers see of them, and what the model gets back."""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from gateway.a2a import tool_calls
from gateway.a2a.model import (
    Artifact,
    Message,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatusUpdateEvent,
)
from gateway.core.replay import Replay, ShownOutput
from gateway.core.task_record import TurnOutput
from gateway.core.tools.tool_call import CUT, ToolPolicy
from gateway.core.turn.commands import Command, EndTurn, Publish
from gateway.core.turn.machine import TurnMachine
from gateway.ledger.events import Update
from gateway.ledger.tasks import StoredArtifact, TurnRecord
from gateway.ports.adapter import (
    AdapterEvent,
    AnswerReplaced,
    ApprovalAsked,
    ArtifactReady,
    CallCompleted,
    ItemReady,
    MessageReady,
    PartReady,
    ReasoningDelta,
    TextDelta,
    ToolCallAnnounced,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import AssistantItem, CallItem, OpaqueItem, OutputItem, ReasoningItem
from tests.gateway.core.turn.test_machine import BR, DONE, FILE, G, answers, closed, kept, phases, play, text, turn
from tests.support.scripted_tools import ScriptedTools

TOOLS = ToolPolicy(asyncio.run(ScriptedTools({"ask": 1}).offered()))

RAN: list[AdapterEvent] = [ToolCallReady("c", "look", "{}", handled=True), ToolResultReady("c", "3")]
CHECK, ANSWER = TextDelta("Let me check."), TextDelta("It is 3 degrees.")


def shown(machine: TurnMachine, *events: AdapterEvent) -> list[Part]:
    """The parts of the answer, as GetTask gives them."""
    output = TurnOutput(Message(message_id="m", role=Role.USER, parts=()))
    for update in updates(machine, *events):
        output.apply(update)
    [answer] = [artifact for name, artifact in output.artifacts.items() if name == machine.answer]
    return list(answer.whole().parts)


def updates(machine: TurnMachine, *events: AdapterEvent) -> list[Update]:
    return [command.update for command in play(machine, *events) if isinstance(command, Publish)]


def texts(*words: str) -> list[Part]:
    return [Part(text=word) for word in words]


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(RAN, id="a tool"),
        pytest.param([MessageReady("Let me check.")], id="the end of a message"),
        pytest.param([ItemReady(OpaqueItem("x", {}))], id="an item"),
        pytest.param([ArtifactReady(Artifact(artifact_id="b", parts=()))], id="an artifact"),
        pytest.param([MessageReady("Let me check."), ReasoningDelta("hm"), *RAN], id="all of that"),
    ],
)
def test_a_text_behind_another_output_is_a_part_of_its_own_and_never_glued(between: list[AdapterEvent]) -> None:
    assert shown(turn(), CHECK, *between, ANSWER) == texts("Let me check.\n\n", "It is 3 degrees.")


def test_the_answer_behind_the_gateways_own_tools_is_a_part_of_its_own() -> None:
    machine = turn(tools=TOOLS)
    first = updates(machine, CHECK, ToolCallReady("c", "ask", "{}"), DONE)
    machine.next_call()
    output = TurnOutput(Message(message_id="m", role=Role.USER, parts=()))
    for update in (*first, *updates(machine, ANSWER, DONE)):
        output.apply(update)
    assert list(output.artifacts[machine.answer].whole().parts) == texts("Let me check.\n\n", "It is 3 degrees.")


@pytest.mark.parametrize(("first", "second"), [("One. ", "Two."), ("One.", " Two."), ("One.\n", "Two.")])
def test_nothing_is_put_between_texts_that_have_white_space_there(first: str, second: str) -> None:
    assert shown(turn(), TextDelta(first), MessageReady(first), TextDelta(second)) == texts(first, second)


def test_a_text_stands_apart_from_a_file_without_anything_between_them() -> None:
    assert shown(turn(), CHECK, PartReady(FILE), ANSWER) == [*texts("Let me check."), FILE, *texts("It is 3 degrees.")]


def test_a_whole_text_is_a_part_of_its_own() -> None:
    assert shown(turn(), CHECK, PartReady(Part(text="a")), ANSWER) == texts(
        "Let me check.\n\n", "a\n\n", "It is 3 degrees."
    )


# --- artifacts beside the answer ---------------------------------------------------------------------------------------


def beside(*parts: str, append: bool = False, key: str = "b") -> ArtifactReady:
    return ArtifactReady(Artifact(artifact_id=key, parts=tuple(texts(*parts))), append=append)


def test_the_model_gets_a_text_of_an_artifact_whole_that_came_in_pieces() -> None:
    pieces = [beside("re", append=False), beside("po", append=True), beside("rt", "2nd", append=True)]
    items = kept(play(turn(), CHECK, *pieces, beside("other", key="c"), beside("!", append=True), DONE))
    assert items == [AssistantItem(tuple(texts("Let me check.", "report", "2nd", "other", "!")))]


def test_a_text_goes_on_behind_an_artifact_within_it_and_both_are_kept() -> None:
    within = ArtifactReady(Artifact(artifact_id="b", parts=tuple(texts("re"))), within_text=True)
    more = ArtifactReady(Artifact(artifact_id="b", parts=tuple(texts("port"))), append=True, within_text=True)
    events: list[AdapterEvent] = [TextDelta("Hel"), within, TextDelta("lo"), ReasoningDelta("hm"), more, TextDelta("!")]
    machine = turn()
    assert shown(machine, *events) == texts("Hello!")
    assert kept(play(turn(), *events, DONE)) == [
        ReasoningItem("hm"),
        AssistantItem(tuple(texts("report", "Hello!"))),
    ]


def test_pieces_that_are_one_value_are_all_kept() -> None:
    piece = Artifact(artifact_id="b", parts=(Part(text="ha"),))
    items = kept(play(turn(), CHECK, ArtifactReady(piece), ArtifactReady(piece, append=True), DONE))
    assert items == [AssistantItem(tuple(texts("Let me check.", "haha")))]


def test_the_model_gets_the_last_form_of_an_artifact_that_is_told_again_as_a_whole() -> None:
    said = [CHECK, MessageReady("Let me check.", key="m"), beside("v"), beside("1", append=True), *RAN]
    items = kept(play(turn(), *said, beside("v2"), MessageReady("Wait.", key="m"), DONE))
    assert items == [text("Wait."), CallItem("c", "look", "{}", True), OutputItem("c", "3"), text("v2")]


# --- an answer that becomes another ------------------------------------------------------------------------------------

ASIDE = ArtifactReady(Artifact(artifact_id="b", parts=(Part(text="aside"),)))
OTHER = AnswerReplaced((Part(text="No:"), FILE, Part(text="it is 4")))


@pytest.mark.parametrize(
    "before",
    [
        pytest.param([], id="nothing"),
        pytest.param([CHECK], id="a text"),
        pytest.param([CHECK, MessageReady("Let me check.", key="m"), ANSWER], id="two messages"),
        pytest.param([CHECK, PartReady(FILE), ANSWER], id="a file"),
        pytest.param([CHECK, *RAN, ANSWER], id="a tool"),
        pytest.param([CHECK, ASIDE, ANSWER], id="an artifact"),
        pytest.param([CHECK, ReasoningDelta("hm"), AnswerReplaced(())], id="an answer that was emptied"),
    ],
)
def test_an_answer_that_is_replaced_is_replaced_whole_and_grows_on(before: list[AdapterEvent]) -> None:
    machine = turn()
    assert shown(machine, *before, OTHER, TextDelta(" degrees.")) == [
        Part(text="No:"),
        FILE,
        Part(text="it is 4 degrees."),
    ]


def test_texts_of_an_answer_that_is_replaced_are_kept_apart() -> None:
    assert shown(turn(), CHECK, AnswerReplaced(tuple(texts("a", "", "b"))), TextDelta("c")) == texts("a\n\n", "bc")


def test_the_model_gets_an_answer_that_was_replaced_once_and_all_else_as_it_was() -> None:
    items = kept(play(turn(), CHECK, ASIDE, *RAN, ANSWER, OTHER, TextDelta(" degrees."), DONE))
    assert items == [
        text("aside"),
        CallItem("c", "look", "{}", True),
        OutputItem("c", "3"),
        AssistantItem((Part(text="No:"), FILE, Part(text="it is 4 degrees."))),
    ]


@pytest.mark.parametrize(
    ("of_turn", "parts"), [(False, texts("Let me check.\n\n", "No.")), (True, texts("No."))], ids=["call", "turn"]
)
def test_an_answer_behind_the_gateways_own_tools_is_replaced_alone_or_with_what_was_said_before(
    of_turn: bool, parts: list[Part]
) -> None:
    machine = turn(tools=TOOLS)
    first = updates(machine, CHECK, ToolCallReady("c", "ask", "{}"), DONE)
    machine.next_call()
    output = TurnOutput(Message(message_id="m", role=Role.USER, parts=()))
    for update in (*first, *updates(machine, ANSWER, AnswerReplaced((Part(text="No."),), of_turn), DONE)):
        output.apply(update)
    assert list(output.artifacts[machine.answer].whole().parts) == parts


def test_the_model_gets_each_message_as_it_was() -> None:
    ends = MessageReady("Let me check.")
    assert kept(play(turn(), CHECK, ends, ANSWER, DONE)) == [text("Let me check."), text("It is 3 degrees.")]


def test_reasoning_in_the_midst_of_a_message_does_not_divide_it() -> None:
    thought = ItemReady(ReasoningItem("hm"))
    events: list[AdapterEvent] = [TextDelta("It is "), ReasoningDelta("hm"), thought, TextDelta("3.")]
    assert shown(turn(), *events) == texts("It is 3.")
    assert kept(play(turn(), *events, DONE)) == [ReasoningItem("hm"), text("It is 3.")]


def test_reasoning_that_goes_back_to_the_backend_keeps_its_place() -> None:
    thought = ReasoningItem("hm", {"encrypted_content": "x"})
    commands = play(turn(), TextDelta("a"), MessageReady("a", "1"), ItemReady(thought), TextDelta("b"), DONE)
    assert kept(commands) == [text("a"), thought, text("b")]


# --- the whole text decides


def test_a_message_that_lost_its_end_gets_it() -> None:
    assert shown(turn(), TextDelta("Hel"), MessageReady("Hello")) == texts("Hello")
    assert shown(turn(), MessageReady("Hello")) == texts("Hello")


@pytest.mark.parametrize("whole", ["Goodbye", "Hel", ""])
def test_a_whole_text_that_differs_takes_the_place_of_what_was_shown(whole: str) -> None:
    events: list[AdapterEvent] = [CHECK, *RAN, TextDelta("Hello"), MessageReady(whole, "m"), DONE]
    machine = turn()
    last = updates(machine, *events)[-1]
    assert isinstance(last, TaskArtifactUpdateEvent)
    parts = tuple(texts("Let me check.\n\n", *filter(None, [whole])))
    assert (last.append, last.artifact.parts) == (False, parts)
    assert kept(play(turn(), *events))[3:] == [text(word) for word in [whole] if word]


def test_an_earlier_message_can_be_told_otherwise() -> None:
    events: list[AdapterEvent] = [
        *(CHECK, MessageReady("Let me check.", "a"), *RAN),
        *(TextDelta("It is 3."), MessageReady("It is 3.", "b"), TextDelta("By")),
        MessageReady("I look.", "a"),
        *(TextDelta("e"), DONE),
    ]
    assert shown(turn(), *events) == texts("I look.\n\n", "It is 3.\n\n", "Bye")
    items = [CallItem("c", "look", "{}", handled=True), OutputItem("c", "3")]
    assert kept(play(turn(), *events)) == [text("I look."), *items, text("It is 3."), text("Bye")]
    same = updates(turn(), *events[:-3], MessageReady("Let me check.", "a"))
    assert same == updates(turn(), *events[:-3])


def test_a_file_before_a_message_stays_with_it() -> None:
    events: list[AdapterEvent] = [PartReady(FILE), TextDelta("a"), MessageReady("a", "1"), MessageReady("b", "1")]
    assert shown(turn(), *events) == [FILE, *texts("b")]
    assert kept(play(turn(), *events, DONE)) == [AssistantItem((FILE, Part(text="b")))]


# --- a call that is repeated

_EVENT: Any = (
    some.sampled_from("ab ").map(TextDelta)
    | some.sampled_from(["a", "b", "ab", ""]).flatmap(
        lambda w: some.sampled_from("xy").map(lambda k: MessageReady(w, k))
    )
    | some.just(PartReady(FILE))
    | some.just(PartReady(Part(text="p")))
    | some.just(ItemReady(OpaqueItem("x", {})))
)
_EVENTS: Any = some.lists(_EVENT, max_size=8)


@given(_EVENTS | some.lists(_EVENT | some.just(ReasoningDelta("hm")) | some.just(OTHER) | some.just(ASIDE), max_size=8))
def test_a_text_that_only_grows_the_answer_is_taken_and_shown_as_any_text_is(events: list[AdapterEvent]) -> None:
    one, other = turn(), turn()
    told = TurnOutput(Message(message_id="m", role=Role.USER, parts=()))
    grown: list[Command] = []
    for event in (*events, DONE):
        artifact = one.grow(event.text) if isinstance(event, TextDelta) else ""
        if isinstance(event, TextDelta) and artifact:
            told.grow(artifact, event.text)
            grown.append(answers(Part(text=event.text), append=True))
        else:
            for command in one.receive(event):
                grown.append(command)
                if isinstance(command, Publish):
                    told.apply(command.update)
    commands = play(other, *events, DONE)
    applied = TurnOutput(told.message)
    for command in commands:
        if isinstance(command, Publish):
            applied.apply(command.update)
    assert (grown, told.artifacts_json()) == (commands, applied.artifacts_json())


@given(earlier=_EVENTS, first=_EVENTS, second=_EVENTS)
def test_a_repeated_call_leaves_the_answer_that_it_gives_alone(
    earlier: list[AdapterEvent], first: list[AdapterEvent], second: list[AdapterEvent]
) -> None:
    """Whatever was shown of the call before it was repeated, the answer is that of the repetition."""
    machine, output = turn(), TurnOutput(Message(message_id="m", role=Role.USER, parts=()))
    for update in updates(machine, *earlier):
        output.apply(update)
    machine.receive(ItemReady(OpaqueItem("end", {})))
    machine._output.begin_call()
    before = ShownOutput(output, machine.answer)
    alone = TurnOutput.stored(_record(output))
    for update in updates(machine, *first):
        output.apply(update)
    replay = Replay(before, ShownOutput(output, machine.answer))
    machine.replay_call(replay.answer, replay.before)
    for update in updates(machine, *second):
        alone.apply(update)
        filtered = replay.filter(update)
        if filtered is not None:
            output.apply(filtered)
    if (rest := replay.finish()) is not None:
        output.apply(TaskArtifactUpdateEvent(task_id="t", context_id="c", artifact=rest))
    if machine.answer in alone.artifacts:
        assert output.artifacts[machine.answer].whole() == alone.artifacts[machine.answer].whole()


def _record(output: TurnOutput) -> Any:
    artifacts = msgspec.json.decode(output.artifacts_json(), type=tuple[StoredArtifact, ...])
    return TurnRecord(output.message, 0, (), artifacts, ended=True)


# --- an answer that is not whole


@pytest.mark.parametrize("reason", ["incomplete", "max_output_tokens", "length", "content_filter"])
@pytest.mark.parametrize("ownership", [G, BR], ids=["gateway", "backend"])
def test_the_calls_of_an_answer_that_is_not_whole_do_not_run(reason: str, ownership: Any) -> None:
    machine = turn(ownership, tools=TOOLS)
    handle = "r1" if ownership is BR else None
    calls = [ToolCallReady("c", "ask", "{}"), ToolCallReady("d", "ask", '{"x'), ToolCallReady("e", "none", "{}")]
    commands = play(machine, CHECK, *calls, CallCompleted(handle, finish=reason))
    end = commands[-1]
    assert isinstance(end, EndTurn)
    assert (end.state, end.metadata) == (TaskState.COMPLETED, {"finishReason": reason})
    assert end.message is not None
    assert [(row.status, row.outcome) for row in closed(commands).tool_calls] == [("cancelled", CUT)] * 3
    assert phases(commands) == ["requested", "requested", "requested", *["cancelled"] * 3]
    outputs = [new for new in closed(commands).items if isinstance(new.item, OutputItem)]
    assert [(new.item, new.unsent, new.replayable) for new in outputs] == [
        (OutputItem(call.call_id, CUT, error=True), ownership is BR, ownership is BR) for call in calls
    ]


def test_a_question_in_an_answer_that_is_not_whole_is_answered_with_no() -> None:
    commands = play(turn(BR), ApprovalAsked("q", "pay", "{}", "bank"), CallCompleted("r1", finish="incomplete"))
    assert closed(commands).items[-1].item == OutputItem("q", CUT, error=True, approved=False)


def test_what_the_backend_ran_in_an_answer_that_is_not_whole_has_its_outcome() -> None:
    commands = play(turn(), *RAN, CHECK, CallCompleted(finish="length"))
    assert [row.status for row in closed(commands).tool_calls] == ["completed"]


# --- whose tool it is


def facts_of(*events: AdapterEvent) -> list[dict[str, Any]]:
    """What callers are told of the tool calls, with each phase."""
    told: list[dict[str, Any]] = []
    for update in updates(turn(tools=TOOLS), *events):
        assert isinstance(update, TaskStatusUpdateEvent)
        message = update.status.message
        told += [(part.metadata or {})[tool_calls.URI] for part in (message.parts if message else ())]
        told += [update.metadata[tool_calls.URI]] if update.metadata else []
    return told


def test_a_tool_of_the_backend_that_is_named_like_one_of_the_gateways_is_never_told_as_the_gateways() -> None:
    begun = ToolCallAnnounced("m", "ask", handled=True, server="mcp:other")
    ready = ToolCallReady("m", "ask", "{}", handled=True, server="mcp:other")
    told = facts_of(begun, ready, ToolResultReady("m", "3"), DONE)
    assert {(fact["origin"], fact.get("server")) for fact in told} == {("backend", "mcp:other")}
    assert [fact["phase"] for fact in told] == ["args-delta", "requested", "executing", "succeeded"]


def test_a_call_that_turns_out_to_be_answered_by_the_backend_is_the_backends_from_then_on() -> None:
    told = facts_of(ToolCallReady("m", "ask", "{}"), ToolResultReady("m", "3"), DONE)
    assert [(fact["phase"], fact["origin"], fact.get("server")) for fact in told] == [
        ("requested", "gateway", "test:box"),
        ("succeeded", "backend", None),
    ]
