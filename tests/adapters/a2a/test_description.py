"""What the card of another agent says in the words of the port, and what is left out of it."""

import pytest

from adapters.a2a.description import described
from gateway.a2a.model import AgentSkill
from gateway.ports.capabilities import Description
from tests.adapters.a2a.conftest import Reach
from tests.emulators.a2a_agent import A2AAgent


def test_a_whole_card_is_described() -> None:
    card = {
        "name": "Travel",
        "description": "Books trips.",
        "version": "2.1",
        "documentationUrl": "https://agents.example/docs",
        "iconUrl": "https://agents.example/icon.png",
        "defaultInputModes": ["text/plain", "image/*"],
        "defaultOutputModes": ["text", "application/json"],
        "skills": [
            {
                "id": "book",
                "name": "Book",
                "description": "Books.",
                "tags": ["trips"],
                "examples": ["To Oslo"],
                "inputModes": ["text/plain"],
            }
        ],
    }
    assert described(card) == Description(
        name="Travel",
        description="Books trips.",
        version="2.1",
        skills=(
            AgentSkill(
                id="book",
                name="Book",
                description="Books.",
                tags=("trips",),
                examples=("To Oslo",),
                input_modes=("text/plain",),
            ),
        ),
        input_modes=("text/plain", "image/*"),
        output_modes=("text/plain", "application/json"),
        documentation_url="https://agents.example/docs",
        icon_url="https://agents.example/icon.png",
    )


@pytest.mark.parametrize(
    "card",
    [
        {},
        {"name": "", "skills": "none", "defaultInputModes": "text"},
        {"name": 1, "skills": [1, {"id": "x"}, {"name": "x"}], "defaultInputModes": [1, "", "nonsense"]},
    ],
)
def test_what_does_not_fit_is_left_out(card: dict[str, object]) -> None:
    assert described(card) == Description()


async def test_a_card_that_names_another_way_is_followed_from_the_next_request_on(
    agent: A2AAgent, reach: Reach
) -> None:
    adapter = await reach(agent)
    await adapter.probe()
    assert (await adapter.describe()).name == "emulator"
    assert agent.cards == 2
    agent.version = "0.3"
    await adapter.describe()
    assert (await adapter.probe()).notes[0].startswith("it speaks A2A 0.3")
