"""Which parts of a history are sent. Source: docs/state-model.md, scenarios of groups F and J, and related ones of A to D."""

from typing import Any

import msgspec
import pytest

from gateway.a2a.model import TaskState
from gateway.app.build import build_agents
from gateway.config.agents import AgentConfig, HistoryConfig
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid
from gateway.config.settings import Settings
from gateway.config.storage import StorageConfig
from gateway.ledger.calls import Complete, NewItem
from gateway.ledger.errors import Conflict
from gateway.ports.adapter import (
    AdapterError,
    AdapterFactory,
    CallCompleted,
    ErrorClass,
    ItemReady,
    ServiceRequest,
    TextDelta,
    ToolCallReady,
    ToolResultReady,
)
from gateway.ports.conversation import OpaqueItem, OutputItem, Ownership, ReasoningItem
from gateway.testing.serving import serve
from tests.emulators.responses_server import ResponsesServer
from tests.emulators.scripts import Conversation, Item, Say, Step, Think
from tests.support.core import Core, answer, query
from tests.support.scripted import BR, G, Script, ScriptedAdapter, says

G_OPAQUE = Ownership(G.owner, G.handle, opaque_replay=True)
KINDS = "SELECT kind FROM history_item ORDER BY position"


def thought(text: str) -> ItemReady:
    return ItemReady(ReasoningItem("", {"of": text}), f"rs_{text}")


def called(call_id: str, output: str | None = None) -> Script:
    """A tool that the backend ran; without an output it never said how that ended."""
    asked = ToolCallReady(call_id, "add", "{}", handled=True)
    return [asked] if output is None else [asked, ToolResultReady(call_id, output)]


def echo(request: ServiceRequest) -> Script:
    return says(f"re {request.message.parts[0].text}", "r")


async def talk(core: Core, adapter: ScriptedAdapter, count: int, **policies: Any) -> list[str]:
    """What went out with the last of so many messages."""
    core.agent(adapter, **policies)
    for number in range(1, count + 1):
        await core.send(str(number), context="c")
    return adapter.sent[-1][1]


# --- 30: a window belongs to a history that the gateway keeps ---

FILE = "version: 1\nagents:\n  a: {type: openai-responses, model: m, history: {owner: backend, max_tokens: 100}}\n"


@pytest.mark.parametrize("owner", ["owner: backend, ", ""], ids=["said", "by itself"])
@pytest.mark.parametrize("window", ["max_messages: 5", "max_tokens: 100"])
def test_30_a_window_over_a_history_of_the_backends_is_an_error_that_names_both_settings(
    tmp_path: Any, owner: str, window: str
) -> None:
    text = FILE.replace("owner: backend, ", owner).replace("max_tokens: 100", window)
    with pytest.raises(ConfigInvalid) as refused:
        load(text, source="gateway.yaml", env={}, plugins=Registry(), base_dir=tmp_path)
    [problem] = refused.value.problems
    assert (problem.line, problem.path) == (3, "agents.a.history")
    assert f"history.{window.partition(':')[0]}" in problem.message
    assert "history.owner is 'backend'" in problem.message
    load(text.replace(owner, "owner: gateway, ") if owner else text.replace("{max", "{owner: gateway, max"),
         source="gateway.yaml", env={}, plugins=Registry(), base_dir=tmp_path)  # fmt: skip


class _Strangers(Registry):
    """A foreign agent type that does not read `history` itself."""

    def factory(self, _: str) -> Any:
        return AdapterFactory(settings=Settings, build=lambda _: ScriptedAdapter(BR), summary="", states=())


def test_30_a_type_that_does_not_look_at_it_is_no_way_around() -> None:
    def config(**history: int) -> GatewayConfig:
        agent = AgentConfig(type="x", name="a", settings=Settings(), history=HistoryConfig(**history))
        return GatewayConfig(version=1, storage=StorageConfig(settings=Settings()), agents={"a": agent})

    build_agents(config(), _Strangers())
    with pytest.raises(ValueError, match=r"agents\.a: history\.max_tokens .* history\.owner is 'backend'"):
        build_agents(config(max_tokens=5), _Strangers())


# --- F. tool calls in the view ---


async def test_86_a_round_without_outcome_goes_with_its_reasoning_and_stays_in_the_ledger(core: Core) -> None:
    adapter = ScriptedAdapter(G_OPAQUE, [thought("1"), *called("c1"), *says("A1")], otherwise=echo)
    assert await talk(core, adapter, 2) == ["U 1", "A A1", "U 2"]
    assert query(core.path, KINDS) == [("user",), ("reasoning",), ("call",), ("assistant",), ("user",), ("assistant",)]


async def test_87_of_a_round_those_calls_stay_that_were_answered(core: Core) -> None:
    round_ = [called("c1", "3")[0], *called("c2"), ToolResultReady("c1", "3")]
    adapter = ScriptedAdapter(G_OPAQUE, [*round_, *says("A1")], otherwise=echo)
    assert await talk(core, adapter, 2) == ["U 1", "C c1 add", "O c1 3", "A A1", "U 2"]


async def test_89_an_id_that_comes_again_keeps_the_outcome_of_each_time(core: Core) -> None:
    scripts = [[*called("c1", output), *says(f"is {output}")] for output in ("3", "4")]
    adapter = ScriptedAdapter(G, *scripts, otherwise=echo)
    assert await talk(core, adapter, 3) == [
        *("U 1", "C c1 add", "O c1 3", "A is 3"),
        *("U 2", "C c1 add", "O c1 4", "A is 4"),
        "U 3",
    ]


async def test_89_on_the_wire_of_chat_completions_each_output_follows_its_own_call(core: Core) -> None:
    from adapters.openai.chat.messages import encode_messages

    scripts = [[*called("c1", output), *says(f"is {output}")] for output in ("3", "4")]
    adapter = ScriptedAdapter(G, *scripts, otherwise=echo)
    await talk(core, adapter, 3)
    wire: Any = encode_messages(adapter.requests[-1].items)
    assert [message["role"] for message in wire] == ["user", *["assistant", "tool", "assistant", "user"] * 2]
    assert [message["content"] for message in wire if message["role"] == "tool"] == ["3", "4"]


async def test_90_rounds_keep_their_order_and_never_merge(core: Core) -> None:
    parallel = [*called("c1"), *called("c2"), ToolResultReady("c1", "3"), ToolResultReady("c2", "4")]
    adapter = ScriptedAdapter(G, [*parallel, *called("c3", "7"), *says("seven")], otherwise=echo)
    assert await talk(core, adapter, 2) == [
        "U 1",
        *("C c1 add", "C c2 add", "O c1 3", "O c2 4"),
        *("C c3 add", "O c3 7"),
        "A seven",
        "U 2",
    ]


async def talk_to_server(core: Core, *answers: list[Step], **policies: Any) -> ResponsesServer:
    """A Responses server that keeps nothing gets one message for each of its answers."""
    from adapters.openai.responses.adapter import factory

    def script(conversation: Conversation) -> list[Step]:
        return answers[len(server.requests) - 1]

    server = ResponsesServer(script)
    async with serve(server.app) as url:
        options = {"model": "m", "base_url": f"{url}/v1", "history": {"owner": "gateway"}}
        adapter = factory.build(factory.settings.model_validate(options))
        core.agent(adapter, **policies)
        for number in range(1, len(answers) + 1):
            assert (await core.send(str(number), context="c")).status.state is TaskState.COMPLETED
        await adapter.aclose()
    return server


def words(entry: dict[str, Any]) -> str:
    """An input item in a word or two."""
    if entry["type"] != "message":
        return str(entry["type"])
    content = entry["content"]
    return f"{entry['role']} {content if isinstance(content, str) else content[0]['text']}"


async def test_95_ids_of_a_backend_that_keeps_nothing_are_stripped_and_reasoning_is_kept(core: Core) -> None:
    server = await talk_to_server(core, [Think("hm", encrypted="gAAAA1"), Say("A1")], [Say("A2")])
    sent = server.requests[1]["input"]
    assert [words(entry) for entry in sent] == ["user 1", "reasoning", "assistant A1", "user 2"]
    assert sent[1]["encrypted_content"] == "gAAAA1"
    assert not any("id" in entry for entry in sent)
    ids = {value for (value,) in query(core.path, "SELECT provider_id FROM history_item") if value}
    assert any(name.startswith("rs_") for name in ids)


@pytest.mark.parametrize(("ownership", "reasoning"), [(G_OPAQUE, True), (G, False)], ids=["replayed", "not replayed"])
async def test_96_reasoning_is_there_with_what_it_led_to_or_not_at_all(
    core: Core, ownership: Ownership, reasoning: bool
) -> None:
    script = [thought("1"), *called("c1", "3"), thought("2"), *called("c2"), thought("3"), *says("A1")]
    sent = await talk(core, ScriptedAdapter(ownership, script, otherwise=echo), 2)
    led = [f"R ReasoningItem(text='', opaque={{'of': '{n}'}})" for n in (1, 3)] if reasoning else ["", ""]
    expected = ["U 1", led[0], "C c1 add", "O c1 3", led[1], "A A1", "U 2"]
    assert sent == [entry for entry in expected if entry]


def tools(request: ServiceRequest) -> Script:
    """Thinks, uses a tool and says something: four items that belong together."""
    text = request.message.parts[0].text or ""
    return [thought(text), *called(f"c{text}", "ok"), *says(f"A{text}")]


def turn(number: int) -> list[str]:
    return [
        f"U {number}",
        f"R ReasoningItem(text='', opaque={{'of': '{number}'}})",
        f"C c{number} add",
        f"O c{number} ok",
        f"A A{number}",
    ]


@pytest.mark.parametrize(
    ("most", "first"), [(1, 5), (2, 5), (3, 4), (4, 4), (5, 3), (6, 3), (8, 2), (9, 1), (99, 1)], ids=str
)
async def test_99_the_last_n_messages_never_end_inside_a_turn(core: Core, most: int, first: int) -> None:
    sent = await talk(core, ScriptedAdapter(G_OPAQUE, otherwise=tools), 5, history_messages=most)
    assert sent == [*(word for number in range(first, 5) for word in turn(number)), "U 5"]


async def test_99_by_tokens_the_backends_own_figures_decide(core: Core) -> None:
    """Of messages and answers of 400 bytes each."""
    used: list[int | None] = [None, None, 104, 700]

    def script(request: ServiceRequest) -> Script:
        tokens = used[len(adapter.requests) - 1] if len(adapter.requests) <= len(used) else None
        return [TextDelta("a" * 384), CallCompleted(usage=None if tokens is None else {"input_tokens": tokens})]

    adapter = ScriptedAdapter(G, otherwise=script)
    core.agent(adapter, history_tokens=420)
    for number in range(1, 7):
        await core.send(str(number) * 384, context="c")
    # 420 tokens of 3 bytes as long as nothing is known, of 8 (1200 / 104 is more than text can have), of 2800 / 700.
    assert [len(request.items) for request in adapter.requests] == [1, 3, 3, 7, 3, 3]
    assert query(core.path, "SELECT weight FROM service_call ORDER BY id") == [
        (400 * len(request.items),) for request in adapter.requests
    ]


async def test_99_a_backend_that_reads_more_than_it_was_sent_measures_nothing(core: Core) -> None:
    script = [*called("c1", "ok"), TextDelta("a"), CallCompleted(usage={"input_tokens": 90_000})]
    await talk(core, ScriptedAdapter(G, script, otherwise=echo), 2, history_tokens=100)
    assert query(core.path, "SELECT weight IS NULL FROM service_call ORDER BY id") == [(1,), (0,)]


async def test_99_without_a_window_nothing_is_measured_and_all_is_sent(core: Core) -> None:
    adapter = ScriptedAdapter(G, otherwise=echo)
    assert len(await talk(core, adapter, 12)) == 23
    assert query(core.path, "SELECT DISTINCT weight FROM service_call") == [(None,)]


async def test_99_a_later_turn_that_waits_takes_no_room(core: Core) -> None:
    adapter = ScriptedAdapter(G, otherwise=echo)
    core.agent(adapter, history_messages=3)
    await core.send("1", context="c")
    for text in "2345":
        await core.send(text, context="c", at_once=True)
    await core.runner.idle()
    assert [sent for _, sent in adapter.sent][1:] == [
        ["U 1", "A re 1", "U 2"],
        ["U 2", "A re 2", "U 3"],
        ["U 3", "A re 3", "U 4"],
        ["U 4", "A re 4", "U 5"],
    ]


async def test_100_a_second_output_for_a_call_is_refused_by_the_ledger(core: Core) -> None:
    adapter = ScriptedAdapter(G, [*called("c1", "3"), *says("A1")], otherwise=echo)
    core.agent(adapter)
    await core.send("1", context="c")
    [done] = [point for unit in core.ledger.units for point in unit if isinstance(point, Complete)]
    tool_call = done.tool_calls[0].id
    before = query(core.path, "SELECT * FROM history_item")
    again = (NewItem(OutputItem("c1", "4"), tool_call=tool_call),)
    await core.send("2", context="c")
    [*_, second] = [point for unit in core.ledger.units for point in unit if isinstance(point, Complete)]
    with pytest.raises(Conflict):
        await core.ledger.commit(msgspec.structs.replace(second, items=again, tool_calls=()))
    assert [row for row in query(core.path, "SELECT * FROM history_item") if row in before] == before
    assert query(core.path, "SELECT count(*) FROM history_item WHERE kind = 'output'") == [(1,)]


async def test_100_a_backend_that_answers_a_call_twice_fails_and_its_turn_leaves_no_pair(core: Core) -> None:
    adapter = ScriptedAdapter(G, [*called("c1", "3"), ToolResultReady("c1", "4")], otherwise=echo)
    assert await talk(core, adapter, 2) == ["U 1", "U 2"]
    assert query(core.path, "SELECT error_class FROM service_call WHERE status = 'failed'") == [("contract-broken",)]


# --- J. compaction ---

COMPACTED = Item({"type": "compaction", "encrypted_content": "gAAAAsummary", "created_by": "model"})


async def test_123_what_the_backend_compacted_goes_back_as_it_came_instead_of_all_before_it(core: Core) -> None:
    server = await talk_to_server(
        core, [Say("A1")], [Think("hm"), COMPACTED, Say("A2")], [Say("A3")], [COMPACTED, Say("A4")], [Say("A5")]
    )
    sent = [[words(entry) for entry in request["input"]] for request in server.requests]
    assert sent[1:] == [
        ["user 1", "assistant A1", "user 2"],
        ["compaction", "assistant A2", "user 3"],
        ["compaction", "assistant A2", "user 3", "assistant A3", "user 4"],
        ["compaction", "assistant A4", "user 5"],
    ]
    assert server.requests[2]["input"][0] == {"type": "compaction", "encrypted_content": "gAAAAsummary"}
    assert query(core.path, "SELECT kind, count(*) FROM history_item GROUP BY kind ORDER BY kind") == [
        ("assistant", 5),
        ("opaque", 2),
        ("reasoning", 1),
        ("user", 5),
    ]


BOUNDARY = ItemReady(OpaqueItem("compaction", {"of": "theirs"}, boundary=True), "cmp_1")


async def test_123_a_call_that_lies_before_the_boundary_leaves_no_output_behind_it(core: Core) -> None:
    script = [called("c1")[0], BOUNDARY, ToolResultReady("c1", "3"), *called("c2", "4"), *says("A1")]
    sent = await talk(core, ScriptedAdapter(G_OPAQUE, script, otherwise=echo), 2)
    assert sent[1:] == ["C c2 add", "O c2 4", "A A1", "U 2"]


async def test_123_a_boundary_of_a_call_that_failed_is_none(core: Core) -> None:
    script: Script = [BOUNDARY, AdapterError(ErrorClass.INTERRUPTED, "cut")]
    adapter = ScriptedAdapter(G_OPAQUE, says("A1"), script, otherwise=echo)
    assert await talk(core, adapter, 3) == ["U 1", "A A1", "U 2", "U 3"]


async def test_123_a_backend_that_keeps_the_conversation_gets_nothing_of_it(core: Core) -> None:
    adapter = ScriptedAdapter(BR, [BOUNDARY, *says("A1", "r1")], otherwise=echo)
    assert await talk(core, adapter, 2) == ["U 2"]
    assert query(core.path, "SELECT kind, provider_id FROM history_item WHERE kind = 'opaque'") == [("opaque", "cmp_1")]


async def test_125_a_window_deletes_nothing_and_takes_nothing_away_for_ever(core: Core) -> None:
    adapter = ScriptedAdapter(G, otherwise=echo)
    assert await talk(core, adapter, 5, history_messages=1) == ["U 5"]
    assert query(core.path, "SELECT count(*) FROM history_item") == [(10,)]
    core.agent(adapter)
    await core.send("6", context="c")
    said = [word for number in range(1, 6) for word in (f"U {number}", f"A re {number}")]
    assert adapter.sent[-1][1] == [*said, "U 6"]


@pytest.mark.parametrize("window", [{"history_tokens": 1}, {"history_messages": 1}], ids=str)
async def test_126_the_message_goes_out_however_narrow_the_window(core: Core, window: dict[str, Any]) -> None:
    adapter = ScriptedAdapter(G, otherwise=echo)
    core.agent(adapter, **window)
    await core.send("1", context="c")
    assert answer(await core.send("long " * 1000, context="c")).startswith("re long")
    assert adapter.sent[-1][1] == [f"U {'long ' * 1000}"]


@pytest.mark.parametrize("policies", [{}, {"history_messages": 4, "history_tokens": 50}], ids=["whole", "window"])
async def test_127_a_turn_writes_as_much_as_it_is_however_long_the_context(
    core: Core, policies: dict[str, Any]
) -> None:
    core.agent(ScriptedAdapter(G, otherwise=echo), **policies)
    written: list[int] = []
    for _ in range(40):
        before = len(core.ledger.units)
        await core.send("the same", context="c")
        written.append(sum(len(msgspec.json.encode(unit)) for unit in core.ledger.units[before:]))
    digits_of_numbers = 40
    assert max(written[5:]) - min(written[5:]) <= digits_of_numbers
