"""The extended card: what each principal sees."""

import pytest

from gateway.a2a.model import AgentCard, AgentSkill
from gateway.config.agents import CardConfig, SkillConfig
from gateway.http.cards import build_card
from gateway.http.extended_cards import ExtendedCard, ExtendedSkill


def skill(name: str, description: str = "Does") -> AgentSkill:
    return AgentSkill(id=name, name=name, description=description, tags=("t",))


PUBLIC = build_card(
    "a", CardConfig(skills=(SkillConfig(id="ask", name="ask", description="Does", tags=("t",)),)), "http://a.example"
)
REFUND, FREE = skill("refund"), skill("ask", "Does more")


def card(signatures: list[AgentCard]) -> ExtendedCard:
    def sign(card: AgentCard) -> AgentCard:
        signatures.append(card)
        return card

    return ExtendedCard(PUBLIC, (ExtendedSkill(REFUND, ("staff-*", "ada")), ExtendedSkill(FREE, ("*-premium",))), sign)


@pytest.mark.parametrize(
    ("principal", "skills"),
    [
        ("guest", (skill("ask"),)),
        ("ada", (skill("ask"), REFUND)),
        ("staff-1", (skill("ask"), REFUND)),
        ("bob-premium", (FREE,)),
        ("staff-premium", (FREE, REFUND)),
        ("Ada", (skill("ask"),)),
    ],
)
def test_a_caller_sees_the_skills_that_are_for_its_principal(principal: str, skills: tuple[AgentSkill, ...]) -> None:
    made = card([])(principal)
    assert made.skills == skills
    assert made.capabilities == PUBLIC.capabilities


def test_callers_who_see_the_same_get_one_card_that_is_signed_once() -> None:
    signatures: list[AgentCard] = []
    extended = card(signatures)
    assert extended("ada") is extended("staff-1")
    assert extended("guest") is not extended("ada")
    assert len(signatures) == 2
