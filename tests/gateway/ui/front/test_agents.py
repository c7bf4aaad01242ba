"""What the page says of an agent."""

import pytest

from gateway.config.agents import CardConfig, SkillConfig
from gateway.config.gateway import ProviderConfig
from gateway.core.agents import Agent
from gateway.http.cards import build_card
from gateway.ui.front.agents import Skill, Way, shown
from tests.interaction.harness import Unused

URL = "https://a.example"


def agent(card: CardConfig | None = None, **more: object) -> Agent:
    made = build_card("echo", card or CardConfig(), URL, **more)  # type: ignore[arg-type]
    return Agent("echo", made, Unused())


def test_each_address_has_the_versions_that_are_spoken_there() -> None:
    found = shown(agent(versions=("1.0", "1.1"), grpc="a.example:443"), URL)
    assert found.ways == (
        Way("JSONRPC", f"{URL}/a2a/echo", ("1.0", "1.1", "0.3"), ""),
        Way("HTTP+JSON", f"{URL}/a2a/echo", ("1.0", "1.1", "0.3"), ""),
        Way("GRPC", "a.example:443", ("1.0",), "echo"),
    )


def test_it_says_what_the_card_says() -> None:
    card = CardConfig(
        name="Support", description="Answers.", version="2.1", documentation_url="https://d.example", tenant="acme"
    )
    provider = ProviderConfig(url="https://p.example", organization="P")
    found = shown(agent(card, provider=provider, api_keys=True, push_notifications=True), URL)
    assert (found.title, found.description, found.version) == ("Support", "Answers.", "2.1")
    assert (found.provider, found.provider_url, found.documentation) == ("P", "https://p.example", "https://d.example")
    assert (found.card, found.keyed) == (f"{URL}/a2a/echo/.well-known/agent-card.json", True)
    assert (found.takes, found.abilities) == ("text/plain", ("streams", "push notifications"))
    assert {way.tenant for way in found.ways} == {"acme"}


@pytest.mark.parametrize("address", [URL, f"{URL}/"])
def test_a_documentation_that_is_the_page_itself_is_not_linked_there(address: str) -> None:
    assert shown(agent(documentation_url=address), URL).documentation == ""


def test_of_many_skills_the_first_are_shown() -> None:
    skills = tuple(SkillConfig(id=str(n), name=f"s{n}", description="d" * 9000, tags=("t",)) for n in range(23))
    found = shown(agent(CardConfig(skills=skills)), URL)
    assert (len(found.skills), found.hidden_skills) == (20, 3)
    assert found.skills[0] == Skill("s0", "d" * 300 + "…")


def test_of_many_media_types_the_first_are_shown() -> None:
    found = shown(agent(CardConfig(input_modes=tuple(f"a/{n}" for n in range(30)))), URL)
    assert found.takes.endswith("a/19, …")


def test_an_agent_that_takes_no_text_is_shown_with_its_card_alone() -> None:
    found = shown(agent(CardConfig(input_modes=("application/json",))), URL)
    assert [each.title for each in found.snippets] == ["curl: the card"]
