"""Every client of the cookbook says to the agent of the examples what its page says, and is answered so."""

from collections.abc import Iterator

import pytest

from tests.interop import peer_processes
from tests.interop.clients import CLIENTS
from tests.interop.cookbook import RECIPES, Recipe
from tests.interop.peer_processes import Peer
from tests.pages.blocks import ROOT

EXAMPLES = ROOT / "examples"
_CONFIGURATION = f"""\
version: 1
agents: {{trips: {{type: python, ref: '{EXAMPLES / "python-agent" / "trips.py"}:plan'}}}}
"""


@pytest.fixture(scope="module")
def trips(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with peer_processes.gateway(tmp_path_factory.mktemp("gateway"), _CONFIGURATION) as peer:
        yield peer


@pytest.mark.xdist_group("cookbook")
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.page)
def test_a_client_is_used_as_its_page_says(
    trips: Peer, tmp_path_factory: pytest.TempPathFactory, recipe: Recipe
) -> None:
    folder = tmp_path_factory.mktemp(recipe.page)
    address = f"{trips.origin}/a2a/trips"
    example = EXAMPLES / "clients" / recipe.example
    printed = peer_processes.example(recipe.program, recipe.peer, folder, example, address, *recipe.says)
    assert printed == recipe.shows or not recipe.shows


def test_every_client_that_is_tested_has_a_page() -> None:
    assert {(client.package, client.peer) for client in CLIENTS} == {
        (recipe.package, recipe.peer) for recipe in RECIPES if recipe.package
    }


def test_every_example_of_a_client_has_a_page() -> None:
    files = {path.name for path in (EXAMPLES / "clients").iterdir() if path.is_file()}
    assert files == {recipe.example for recipe in RECIPES}
