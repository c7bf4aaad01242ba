"""What an agent masks for callers is masked on pages."""

from dataclasses import replace

import pytest

from gateway.a2a.redaction import MASK, json_path
from gateway.a2a.tool_calls import Visibility
from gateway.core.agents import Agent, AgentPolicies
from gateway.ui.masks import Masks
from tests.interaction.harness import agent


def masking(*paths: str) -> Agent:
    visibility = Visibility(redact=tuple(map(json_path, paths)))
    return replace(agent("a"), policies=AgentPolicies(tool_calls=visibility))


@pytest.mark.parametrize("kind", ["arguments", "outcome", "item", "said", "artifacts"])
def test_of_an_agent_that_is_gone_nothing_is_shown(kind: str) -> None:
    assert Masks(None).hide(kind, '{"a": 1}') == MASK  # type: ignore[arg-type]


def test_without_masks_all_is_shown() -> None:
    masks = Masks(agent("a"))
    assert (masks.any, masks.hide("arguments", "{")) == (False, "{")


@pytest.mark.parametrize(
    ("kind", "text", "shown"),
    [
        ("arguments", '{"password":"x","user":"u"}', '{"password":"[redacted]","user":"u"}'),
        ("arguments", '{"password":"x', '{"raw":"[redacted]"}'),
        ("outcome", '{"pin":"1","a":{"pin":2}}', '{"pin":"[redacted]","a":{"pin":"[redacted]"}}'),
        ("outcome", '"{\\"pin\\": 3}"', '{"result":"{\\"pin\\":\\"[redacted]\\"}"}'),
        ("outcome", '{"pin":', MASK),
        ("item", '{"kind":"opaque"}', MASK),
        ("message", '{"pin":4}', '{"pin":4}'),
    ],
)
def test_a_mask_covers_what_it_names_and_what_cannot_be_judged(kind: str, text: str, shown: str) -> None:
    masks = Masks(masking("$.args.password", "$.response.pin"))
    assert masks.hide(kind, text) == shown  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "shown"),
    [("echo: plain words", "echo: plain words"), ('the {"pin": 1}', MASK), ("[redacted]", "[redacted]")],
)
def test_words_of_an_answer_are_shown_unless_a_value_is_told_in_them(words: str, shown: str) -> None:
    assert Masks(masking("$.response.pin", "$.response", "$.args")).seen(words) == shown


def test_words_of_an_agent_that_is_gone_are_hidden() -> None:
    assert Masks(None).seen("words") == MASK
