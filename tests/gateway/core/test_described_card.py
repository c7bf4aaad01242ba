"""What of a backend's description a card says."""

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.a2a.model import AgentCard, AgentSkill
from gateway.config.agents import CardConfig, SkillConfig
from gateway.core.described_card import LONGEST_TEXT, MOST_SKILLS, AgentCards, DescribedCard, usable
from gateway.http.cards import build_card
from gateway.ports.capabilities import Description
from tests.interaction.harness import URL

SKILL = AgentSkill(id="book", name="Book", description="Books a flight", tags=("travel",))
TOLD = Description(
    name="Travel",
    description="Books journeys.",
    version="7.1",
    skills=(SKILL,),
    input_modes=("text/plain", "image/png"),
    output_modes=("text/plain",),
    documentation_url="https://docs.example/travel",
    icon_url="https://docs.example/icon.png",
)
PASSES = ("text/plain", "image/*")


def cleaned(**changes: Any) -> Description:
    return usable(replace(TOLD, **changes), PASSES, PASSES)


def test_a_description_that_a_card_can_say_stays_as_it_is() -> None:
    assert usable(TOLD, PASSES, PASSES) == TOLD


@pytest.mark.parametrize("field", ["documentation_url", "icon_url"])
@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "https://", "http://[", "x" * 9000, ""])
def test_an_address_that_is_none_of_the_web_is_left_out(field: str, url: str) -> None:
    assert getattr(cleaned(**{field: url}), field) is None


def test_media_types_that_the_adapter_does_not_pass_on_are_left_out() -> None:
    modes = ("image/png", "audio/wav", "text/plain", "text", "a b/c", "image/*")
    assert cleaned(input_modes=modes).input_modes == ("image/png", "text/plain", "image/*")
    [skill] = cleaned(
        skills=(AgentSkill(**{**_fields(SKILL), "input_modes": modes, "output_modes": ("audio/wav",)}),)
    ).skills
    assert (skill.input_modes, skill.output_modes) == (("image/png", "text/plain", "image/*"), None)


def _fields(skill: AgentSkill) -> dict[str, Any]:
    return {name: getattr(skill, name) for name in skill.__struct_fields__}


@pytest.mark.parametrize("lacks", ["id", "name", "description"])
def test_a_skill_without_what_a_card_needs_is_left_out(lacks: str) -> None:
    assert cleaned(skills=(AgentSkill(**{**_fields(SKILL), lacks: ""}), SKILL)).skills == (SKILL,)


def test_a_skill_without_tags_is_left_out_and_an_id_counts_once() -> None:
    bare, again = (
        AgentSkill(**{**_fields(SKILL), **changes}) for changes in ({"id": "x", "tags": ()}, {"name": "Again"})
    )
    assert cleaned(skills=(bare, SKILL, again)).skills == (SKILL,)


def test_what_is_too_much_is_cut() -> None:
    many = tuple(AgentSkill(**{**_fields(SKILL), "id": str(number)}) for number in range(MOST_SKILLS + 1))
    found = cleaned(skills=many, name="n" * (LONGEST_TEXT + 1))
    assert (len(found.skills), len(found.name or "")) == (MOST_SKILLS, LONGEST_TEXT)


# --- the card ---


def card(config: CardConfig, described: Description | None) -> AgentCard:
    return build_card("a", config, URL, input_modes=PASSES, output_modes=PASSES, described=described)


def said(card: AgentCard) -> Description:
    names = Description.__struct_fields__
    renamed = {"input_modes": "default_input_modes", "output_modes": "default_output_modes"}
    return Description(**{name: getattr(card, renamed.get(name, name)) for name in names})


def test_without_words_of_the_operator_the_card_says_the_description() -> None:
    assert said(card(CardConfig(), TOLD)) == TOLD


def test_the_words_of_the_operator_stand_on_top_each_for_itself() -> None:
    mine = SkillConfig(id="mine", name="Mine", description="Of mine", tags=("t",))
    config = CardConfig(name="Mine", version="1.0.0", skills=(mine,), output_modes=("image/gif",))
    expected = replace(
        TOLD,
        name="Mine",
        version="1.0.0",
        skills=(AgentSkill(id="mine", name="Mine", description="Of mine", tags=("t",)),),
        output_modes=("image/gif",),
    )
    assert said(card(config, TOLD)) == expected


def test_what_the_backend_does_not_say_is_as_without_it() -> None:
    assert card(CardConfig(), Description()) == card(CardConfig(), None)


def test_the_one_skill_of_an_agent_without_skills_has_the_words_of_the_backend() -> None:
    [skill] = card(CardConfig(), replace(TOLD, skills=())).skills
    assert (skill.id, skill.name, skill.description) == ("a", "Travel", "Books journeys.")


# --- its changes ---


def test_a_description_that_says_the_same_changes_nothing() -> None:
    described = DescribedCard(lambda told: AgentCards(card(CardConfig(), told)), AgentCards(card(CardConfig(), None)))
    assert described.tell(TOLD, 5)
    made = described.cards
    assert not described.tell(replace(TOLD), 9)
    assert (described.cards is made, described.since, made.public.name) == (True, 5, "Travel")


def test_a_description_of_which_no_card_can_be_made_leaves_the_card_before() -> None:
    def refuse(_: Description | None) -> AgentCards:
        raise ValueError("cannot be signed")

    before = AgentCards(card(CardConfig(), None))
    described = DescribedCard(refuse, before)
    with pytest.raises(ValueError, match="signed"):
        described.tell(TOLD, 5)
    assert (described.cards, described.description, described.since) == (before, None, None)
