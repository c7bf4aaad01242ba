"""Sources without a citation are not sent again, and new ones get numbers of their own. Source: docs/state-model.md,
scenarios 97 and 98."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.app.build import build_agents
from gateway.config.gateway import GatewayConfig
from gateway.config.loader import load
from gateway.config.plugins import Registry
from gateway.config.problems import ConfigInvalid
from gateway.core.citations import NONE_CITED
from gateway.core.tools.approval_rules import ApprovalRule
from tests.invariants import violations
from tests.scenarios.test_approvals import asked, reply, yes
from tests.scenarios.test_tool_loop import adapter_of, asks, call
from tests.support.core import Core, query
from tests.support.scripted import G, Script, ScriptedAdapter, says
from tests.support.scripted_tools import ScriptedTools


def found(*texts: str, first: int = 0) -> list[dict[str, Any]]:
    return [{"source_number": number, "content": text} for number, text in enumerate(texts, first)]


def searching(core: Core, *scripts: Script, **policies: Any) -> ScriptedAdapter:
    """An agent whose tool `search` finds two sources every time, and numbers them from 0; `list` has one, in a text."""
    adapter = adapter_of(G, *scripts)
    box = ScriptedTools({"search": found("a", "b"), "list": json.dumps({"result": found("c")})})
    core.agent(adapter, toolset=box, **({"uncited_sources": "drop"} | policies))
    return adapter


SEARCH = call("c1", "search")


async def test_97_sources_that_were_cited_stay_under_their_numbers_and_the_record_keeps_all(core: Core) -> None:
    adapter = searching(core, asks("r", SEARCH), says("see [Source1]"), says("fine"))
    await core.send("1", context="c")
    before = query(core.path, "SELECT payload FROM history_item ORDER BY position")
    await core.send("2", context="c")
    assert adapter.sent[1][1][-1] == f"O c1 {found('a', 'b')}"
    assert adapter.sent[2][1] == ["U 1", "C c1 search", f"O c1 {found('b', first=1)}", "A see [Source1]", "U 2"]
    assert query(core.path, "SELECT payload FROM history_item ORDER BY position")[: len(before)] == before
    assert violations(core.path) == []


async def test_97_a_result_of_which_nothing_was_cited_leaves_one_sentence(core: Core) -> None:
    adapter = searching(core, asks("r", SEARCH), says("I know that"), says("fine"))
    await core.send("1", context="c")
    await core.send("2", context="c")
    assert adapter.sent[2][1] == ["U 1", "C c1 search", f"O c1 {NONE_CITED}", "A I know that", "U 2"]


async def test_97_without_the_setting_everything_is_sent_as_it_came(core: Core) -> None:
    adapter = searching(core, asks("r", SEARCH), says("no"), asks("r", SEARCH), says("no"), uncited_sources="keep")
    await core.send("1", context="c")
    await core.send("2", context="c")
    assert [line for line in adapter.sent[3][1] if line.startswith("O")] == [f"O c1 {found('a', 'b')}"] * 2


async def test_98_numbers_go_on_from_the_highest_through_rounds_and_turns(core: Core) -> None:
    both = asks("r", SEARCH, call("c2", "list"))
    adapter = searching(core, both, asks("r", SEARCH), says("[source4]"), asks("r", SEARCH), says("done"))
    await core.send("1", context="c")
    await core.send("2", context="c")
    last = [line for line in adapter.sent[4][1] if line.startswith("O")]
    assert last == [
        f"O c1 {NONE_CITED}",
        f"O c2 {NONE_CITED}",
        f"O c1 {found('b', first=4)}",
        f"O c1 {found('a', 'b', first=5)}",
    ]
    [stored] = query(core.path, "SELECT outcome FROM tool_call WHERE name = 'list'")
    assert json.loads(json.loads(stored[0])) == {"result": found("c", first=2)}


async def test_98_numbers_go_on_behind_a_turn_that_waited_and_a_process_that_knew_them_not(core: Core) -> None:
    adapter = searching(
        core, asks("r", SEARCH), says("no"), asks("r", call("c2", "list")), says("done"),
        approvals=(ApprovalRule("box.list"),),
    )  # fmt: skip
    await core.send("1", context="c")
    waiting = await reply(core, None, "2", context_id="c")
    await reply(core, waiting.id, yes(asked(waiting)[0]["id"]))
    listed = json.dumps({"result": found("c", first=2)}, separators=(",", ":"))
    assert adapter.sent[3][1][-1] == f"O c2 {listed}"


async def test_98_a_window_that_has_no_source_begins_at_0(core: Core) -> None:
    adapter = searching(
        core, asks("r", SEARCH), says("no"), says("hm"), asks("r", SEARCH), says("done"), history_messages=1
    )
    for text in "123":
        await core.send(text, context="c")
    assert adapter.sent[4][1] == ["U 3", "C c1 search", f"O c1 {found('a', 'b')}"]


@pytest.mark.parametrize("owner", ["{owner: backend, uncited_sources: drop}", "{uncited_sources: drop}"])
def test_30_sources_of_a_conversation_that_the_backend_keeps_cannot_be_dropped(owner: str) -> None:
    text = f"version: 1\nagents: {{a: {{type: openai-responses, model: m, history: {owner}}}}}"
    with pytest.raises((ConfigInvalid, ValueError), match=r"history\.uncited_sources can only limit"):
        build_agents(_loaded(text), Registry())


def test_97_the_setting_reaches_the_agent() -> None:
    text = "version: 1\nagents: {a: {type: openai-chat, model: m, base_url: 'http://x/v1', history: {uncited_sources: drop}}}"
    assert build_agents(_loaded(text), Registry()).by_name["a"].policies.uncited_sources == "drop"


def _loaded(text: str) -> GatewayConfig:
    return load(text, source="test.yaml", env={"OPENAI_API_KEY": "k"}, plugins=Registry(), base_dir=Path())
