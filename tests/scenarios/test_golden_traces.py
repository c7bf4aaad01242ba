"""The golden traces of docs/state-model.md: from the output of a backend to the next request, for each kind of owner.

Only the traces without tools of the gateway. A static conversation has no trace where its tail has to be listed first.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.a2a.model import Part
from gateway.core.history import INTERRUPTED
from gateway.ports.adapter import (
    AdapterError,
    CallCompleted,
    CallStarted,
    Ending,
    ErrorClass,
    ItemReady,
    ReasoningDelta,
    TextDelta,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import HandleKind, Ownership, ReasoningItem
from tests.support.core import Core, soon
from tests.support.scripted import BR, BS, G, Pause, Script, ScriptedAdapter, says

G_OPAQUE = Ownership(G.owner, G.handle, opaque_replay=True)
OWNERS = {"G": G, "G with reasoning": G_OPAQUE, "BR": BR, "BS": BS}

Sent = list[tuple[str | None, list[str]]]


@dataclass(frozen=True)
class Send:
    """A message; `key`: with this idempotency key."""

    text: str
    key: str | None = None


@dataclass(frozen=True)
class Cancel:
    """A message that is canceled when its backend has begun to answer."""

    text: str


@dataclass(frozen=True)
class Row:
    """`script`: what each service call says. `upstream`: what went out, by owner. `tasks`: how the tasks ended."""

    name: str
    script: list[Script]
    steps: list[Send | Cancel]
    upstream: dict[str, Sent]
    tasks: list[str]
    policies: dict[str, Any] = field(default_factory=dict)


CANCEL = Pause()
NOTE = f"U {INTERRUPTED}par"
HANDLED: Script = [ToolCallReady("c1", "add", "{}", handled=True), ToolResultReady("c1", "3")]


def rejected() -> Script:
    """Not for what the request carries."""
    return [AdapterError(ErrorClass.UNAUTHORISED, "401")]


def refused(kind: ErrorClass = ErrorClass.REJECTED) -> Script:
    """For what the request carries."""
    return [AdapterError(kind, "400")]


def cut(text: str = "", handle: str | None = None) -> Script:
    """The stream ends in the middle."""
    begun = [CallStarted(handle)] if handle else []
    said = [TextDelta(text)] if text else []
    return [*begun, *said, AdapterError(ErrorClass.INTERRUPTED, "cut")]


def both(name: str, *rest: Any, g: Sent, br: Sent, bs: Sent | None = None, **policies: Any) -> Row:
    script, steps, tasks = rest
    static = {} if bs is None else {"BS": bs}
    return Row(name, script, steps, {"G": g, "BR": br, **static}, tasks, policies)


ROWS = [
    both(
        "plain, 2 turns",
        [says("A1", "r1"), says("A2", "r2")],
        [Send("1"), Send("2")],
        ["COMPLETED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "A A1", "U 2"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"])],
        bs=[(None, ["U 1"]), ("c", ["U 2"])],
    ),
    both(
        "plain, 3 turns",
        [says("A1", "r1"), says("A2", "r2"), says("A3", "r3")],
        [Send("1"), Send("2"), Send("3")],
        ["COMPLETED", "COMPLETED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "A A1", "U 2"]), (None, ["U 1", "A A1", "U 2", "A A2", "U 3"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"]), ("r2", ["U 3"])],
        bs=[(None, ["U 1"]), ("c", ["U 2"]), ("c", ["U 3"])],
    ),
    both(
        "backend handled C1/O1, text A1",
        [[*HANDLED, *says("A1", "r1")], says("A2", "r2")],
        [Send("1"), Send("2")],
        ["COMPLETED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "C c1 add", "O c1 3", "A A1", "U 2"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"])],
        bs=[(None, ["U 1"]), ("c", ["U 2"])],
    ),
    both(
        "the result of a handled call never came",
        [[HANDLED[0], *says("A1", "r1")], says("A2", "r2")],
        [Send("1"), Send("2")],
        ["COMPLETED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "A A1", "U 2"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"])],
        bs=[(None, ["U 1"]), ("c", ["U 2"])],
    ),
    both(
        "a call that nobody can run is answered on the chain",
        [[ToolCallReady("c1", "add", "{}"), CallCompleted("r1")], says("A2", "r2")],
        [Send("1"), Send("2")],
        ["FAILED", "COMPLETED"],
        g=[
            (None, ["U 1"]),
            (None, ["U 1", "C c1 add", "O c1 This tool is not available.", "U 2"]),
        ],
        br=[(None, ["U 1"]), ("r1", ["O c1 This tool is not available.", "U 2"])],
        bs=[(None, ["U 1"]), ("c", ["O c1 This tool is not available.", "U 2"])],
        unknown_tool="fail",
    ),
    both(
        "call 1 fails, known rejected, new message",
        [rejected(), says("A2", "r2")],
        [Send("1"), Send("2")],
        ["FAILED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "U 2"])],
        br=[(None, ["U 1"]), (None, ["U 1", "U 2"])],
        bs=[(None, ["U 1"]), (None, ["U 1", "U 2"])],
    ),
    both(
        "call 1 refused for its content, new message",
        [refused(), says("A2", "r2")],
        [Send("1"), Send("2")],
        ["FAILED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 2"])],
        br=[(None, ["U 1"]), (None, ["U 2"])],
        bs=[(None, ["U 1"]), (None, ["U 2"])],
    ),
    both(
        "call 2 refused for its content, new message",
        [says("A1", "r1"), refused(ErrorClass.OVERFLOW), says("A3", "r3")],
        [Send("1"), Send("2"), Send("3")],
        ["COMPLETED", "FAILED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "A A1", "U 2"]), (None, ["U 1", "A A1", "U 3"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 3"])],
        bs=[(None, ["U 1"]), ("c", ["U 2"]), ("c", ["U 3"])],
    ),
    both(
        "call 1 fails, call 2 refused with and without its message",
        [rejected(), refused(), refused(ErrorClass.POLICY), says("A3", "r3")],
        [Send("1"), Send("2"), Send("3")],
        ["FAILED", "FAILED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "U 2"]), (None, ["U 2"]), (None, ["U 1", "U 3"])],
        br=[(None, ["U 1"]), (None, ["U 1", "U 2"]), (None, ["U 2"]), (None, ["U 1", "U 3"])],
        bs=[(None, ["U 1"]), (None, ["U 1", "U 2"]), (None, ["U 2"]), (None, ["U 1", "U 3"])],
    ),
    both(
        "call 1 fails, call 2 refused for its message",
        [rejected(), refused(), says("A2", "r2"), says("A3", "r3")],
        [Send("1"), Send("2"), Send("3")],
        ["FAILED", "COMPLETED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "U 2"]), (None, ["U 2"]), (None, ["U 2", "A A2", "U 3"])],
        br=[(None, ["U 1"]), (None, ["U 1", "U 2"]), (None, ["U 2"]), ("r2", ["U 3"])],
        bs=[(None, ["U 1"]), (None, ["U 1", "U 2"]), (None, ["U 2"]), ("c", ["U 3"])],
    ),
    both(
        "call 1 fails, outcome unknown, new message of the same text",
        [cut("par", "r1"), says("A2", "r2")],
        [Send("1"), Send("1")],
        ["FAILED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "U 1"])],
        br=[(None, ["U 1"]), (None, ["U 1", "U 1"])],
        bs=[(None, ["U 1"]), (None, ["U 1", "U 1"])],
    ),
    both(
        "call 1 fails, same idempotency key again",
        [cut("par"), says("A2", "r2")],
        [Send("1", "k"), Send("1", "k")],
        ["FAILED", "FAILED"],
        g=[(None, ["U 1"])],
        br=[(None, ["U 1"])],
        bs=[(None, ["U 1"])],
    ),
    both(
        "call 2 fails, new message",
        [says("A1", "r1"), rejected(), says("A3", "r3")],
        [Send("1"), Send("2"), Send("3")],
        ["COMPLETED", "FAILED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "A A1", "U 2"]), (None, ["U 1", "A A1", "U 2", "U 3"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 2", "U 3"])],
        bs=[(None, ["U 1"]), ("c", ["U 2"]), ("c", ["U 2", "U 3"])],
    ),
    both(
        "stream of call 2 fails after created(r2)",
        [says("A1", "r1"), cut("par", "r2"), says("A3", "r3")],
        [Send("1"), Send("2"), Send("3")],
        ["COMPLETED", "FAILED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "A A1", "U 2"]), (None, ["U 1", "A A1", "U 2", "U 3"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 2", "U 3"])],
    ),
    both(
        "two failures in a row send nothing twice",
        [says("A1", "r1"), cut("par"), cut("p"), says("A4", "r4"), says("A5", "r5")],
        [Send("1"), Send("2"), Send("3"), Send("4"), Send("5")],
        ["COMPLETED", "FAILED", "FAILED", "COMPLETED", "COMPLETED"],
        g=[
            (None, ["U 1"]),
            (None, ["U 1", "A A1", "U 2"]),
            (None, ["U 1", "A A1", "U 2", "U 3"]),
            (None, ["U 1", "A A1", "U 2", "U 3", "U 4"]),
            (None, ["U 1", "A A1", "U 2", "U 3", "U 4", "A A4", "U 5"]),
        ],
        br=[
            (None, ["U 1"]),
            ("r1", ["U 2"]),
            ("r1", ["U 2", "U 3"]),
            ("r1", ["U 2", "U 3", "U 4"]),
            ("r4", ["U 5"]),
        ],
    ),
    Row(
        "response without id on turn 2, fail",
        [says("A1", "r1"), [TextDelta("A2"), CallCompleted()], says("A3", "r3")],
        [Send("1"), Send("2"), Send("3")],
        {"BR": [(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 2", "U 3"])]},
        ["COMPLETED", "FAILED", "COMPLETED"],
    ),
    Row(
        "response without id on turn 2, tolerate",
        [says("A1", "r1"), [TextDelta("A2"), CallCompleted()], says("A3", "r3")],
        [Send("1"), Send("2"), Send("3")],
        {"BR": [(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 2", "U 3"])]},
        ["COMPLETED", "COMPLETED", "COMPLETED"],
        {"on_missing_handle": "tolerate"},
    ),
    Row(
        "response without id on turn 2, static",
        [says("A1", "r1"), [TextDelta("A2"), CallCompleted()], says("A3", "r3")],
        [Send("1"), Send("2"), Send("3")],
        {"BS": [(None, ["U 1"]), ("c", ["U 2"]), ("c", ["U 3"])]},
        ["COMPLETED", "COMPLETED", "COMPLETED"],
    ),
    Row(
        "response without id on turn 2, no handle needed",
        [says("A1"), [TextDelta("A2"), CallCompleted()], says("A3")],
        [Send("1"), Send("2"), Send("3")],
        {
            "G": [
                (None, ["U 1"]),
                (None, ["U 1", "A A1", "U 2"]),
                (None, ["U 1", "A A1", "U 2", "A A2", "U 3"]),
            ]
        },
        ["COMPLETED", "COMPLETED", "COMPLETED"],
    ),
    Row(
        "handle lost, default",
        [says("A1", "r1"), [AdapterError(ErrorClass.HANDLE_EXPIRED, "")]],
        [Send("1"), Send("2"), Send("3")],
        {"BR": [(None, ["U 1"]), ("r1", ["U 2"])]},
        ["COMPLETED", "FAILED", "FAILED"],
    ),
    both(
        "cancelled",
        [says("A1", "r1"), [CallStarted("r2"), TextDelta("par"), CANCEL], says("A3", "r3")],
        [Send("1"), Cancel("2"), Send("3")],
        ["COMPLETED", "CANCELED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "A A1", "U 2"]), (None, ["U 1", "A A1", "U 2", "A par", "U 3"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 2", NOTE, "U 3"])],
        bs=[(None, ["U 1"]), ("c", ["U 2"]), ("c", ["U 2", NOTE, "U 3"])],
    ),
    both(
        "cancelled, without a note",
        [says("A1", "r1"), [CallStarted("r2"), TextDelta("par"), CANCEL], says("A3", "r3")],
        [Send("1"), Cancel("2"), Send("3")],
        ["COMPLETED", "CANCELED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "A A1", "U 2"]), (None, ["U 1", "A A1", "U 2", "A par", "U 3"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 2", "U 3"])],
        interrupted_answers="omit",
    ),
    both(
        "the agent asks",
        [[TextDelta("A1"), CallCompleted("r1", Ending.INPUT_REQUIRED, (Part(text="which?"),))], says("A2", "r2")],
        [Send("1"), Send("2")],
        ["INPUT_REQUIRED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "A A1", "A which?", "U 2"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"])],
        bs=[(None, ["U 1"]), ("c", ["U 2"])],
    ),
    Row(
        "reasoning model, store=false",
        [
            [
                ReasoningDelta("hm"),
                ItemReady(ReasoningItem("hm", {"encrypted_content": "x1"}), "rs_1"),
                *HANDLED,
                *says("A1", "r1"),
            ],
            says("A2", "r2"),
        ],
        [Send("1"), Send("2")],
        {
            "G with reasoning": [
                (None, ["U 1"]),
                (
                    None,
                    [
                        "U 1",
                        "R ReasoningItem(text='hm', opaque={'encrypted_content': 'x1'})",
                        "C c1 add",
                        "O c1 3",
                        "A A1",
                        "U 2",
                    ],
                ),
            ],
            "G": [(None, ["U 1"]), (None, ["U 1", "C c1 add", "O c1 3", "A A1", "U 2"])],
            "BR": [(None, ["U 1"]), ("r1", ["U 2"])],
            "BS": [(None, ["U 1"]), ("c", ["U 2"])],
        },
        ["COMPLETED", "COMPLETED"],
    ),
    Row(
        "handle lost, rebuild",
        [says("A1", "r1"), [AdapterError(ErrorClass.HANDLE_EXPIRED, "")], says("A2", "q1"), says("A3", "q2")],
        [Send("1"), Send("2"), Send("3")],
        {"BR": [(None, ["U 1"]), ("r1", ["U 2"]), (None, ["U 1", "A A1", "U 2"]), ("q1", ["U 3"])]},
        ["COMPLETED", "COMPLETED", "COMPLETED"],
        {"on_lost_handle": "rebuild"},
    ),
    Row(
        "handle lost, rebuild refused",
        [says("A1", "r1"), [AdapterError(ErrorClass.HANDLE_EXPIRED, "")], refused(), says("A3", "q1")],
        [Send("1"), Send("2"), Send("3")],
        {"BR": [(None, ["U 1"]), ("r1", ["U 2"]), (None, ["U 1", "A A1", "U 2"]), (None, ["U 1", "A A1", "U 3"])]},
        ["COMPLETED", "FAILED", "COMPLETED"],
        {"on_lost_handle": "rebuild"},
    ),
    Row(
        "handle not found right after its commit",
        [says("A1", "r1"), [AdapterError(ErrorClass.HANDLE_NOT_FOUND, "404")], says("A2", "r2"), says("A3", "r3")],
        [Send("1"), Send("2"), Send("3")],
        {"BR": [(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 2"]), ("r2", ["U 3"])]},
        ["COMPLETED", "COMPLETED", "COMPLETED"],
    ),
    both(
        "call 2 fails, new message, per_turn",
        [says("A1", "r1"), rejected(), says("A3", "r3")],
        [Send("1"), Send("2"), Send("3")],
        ["COMPLETED", "FAILED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "A A1", "U 2"]), (None, ["U 1", "A A1", "U 3"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 3"])],
        persistence="per_turn",
    ),
    both(
        "call 1 fails, new message, per_turn",
        [cut("par", "r1"), says("A2", "r2")],
        [Send("1"), Send("1")],
        ["FAILED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1"])],
        br=[(None, ["U 1"]), (None, ["U 1"])],
        persistence="per_turn",
    ),
    both(
        "a call that nobody can run is left out with its turn, per_turn",
        [says("A1", "r1"), [ToolCallReady("c1", "add", "{}"), CallCompleted("r2")], says("A3", "r3")],
        [Send("1"), Send("2"), Send("3")],
        ["COMPLETED", "FAILED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "A A1", "U 2"]), (None, ["U 1", "A A1", "U 3"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 3"])],
        persistence="per_turn",
        unknown_tool="fail",
    ),
    both(
        "cancelled, per_turn",
        [says("A1", "r1"), [CallStarted("r2"), TextDelta("par"), CANCEL], says("A3", "r3")],
        [Send("1"), Cancel("2"), Send("3")],
        ["COMPLETED", "CANCELED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1", "A A1", "U 2"]), (None, ["U 1", "A A1", "U 2", "A par", "U 3"])],
        br=[(None, ["U 1"]), ("r1", ["U 2"]), ("r1", ["U 2", NOTE, "U 3"])],
        persistence="per_turn",
    ),
    both(
        "a call that did not reach the backend is made again",
        [[AdapterError(ErrorClass.UNREACHABLE, "refused")], says("A1", "r1"), says("A2", "r2")],
        [Send("1"), Send("2")],
        ["COMPLETED", "COMPLETED"],
        g=[(None, ["U 1"]), (None, ["U 1"]), (None, ["U 1", "A A1", "U 2"])],
        br=[(None, ["U 1"]), (None, ["U 1"]), ("r1", ["U 2"])],
    ),
]
CELLS = [(row, owner) for row in ROWS for owner in row.upstream]


@pytest.mark.parametrize(("row", "owner"), CELLS, ids=[f"{row.name} - {owner}" for row, owner in CELLS])
async def test_what_is_sent_upstream_follows_from_what_was_said(core: Core, row: Row, owner: str) -> None:
    adapter = ScriptedAdapter(OWNERS[owner], *(_fresh(script, OWNERS[owner]) for script in row.script))
    core.agent(adapter, **row.policies)
    states = []
    for step in row.steps:
        match step:
            case Send(text=text, key=key):
                states.append((await core.send(text, core.call(key=key), context="c")).status.state.name)
            case Cancel(text=text):
                states.append(await _cancel(core, adapter, text))
    assert adapter.sent == row.upstream[owner]
    assert states == row.tasks


def _fresh(script: Script, ownership: Ownership) -> Script:
    """A pause belongs to the event loop of its test; a static backend says `c` whatever the row says."""
    own: Script = [Pause() if step is CANCEL else step for step in script]
    if ownership.handle is not HandleKind.STATIC:
        return own
    return [
        replace(step, handle="c") if isinstance(step, CallStarted | CallCompleted) and step.handle else step
        for step in own
    ]


async def _cancel(core: Core, adapter: ScriptedAdapter, text: str) -> str:
    task = await core.send(text, context="c", at_once=True)
    await soon(adapter.paused.wait())
    return (await core.cancel(task.id)).status.state.name
